import numpy as np
import torch
from scipy import stats

from aicau.core import streams


def test_generator_is_splitmix64():
    # Reference output of SplitMix64 seeded with 1234567 (Vigna's splitmix64.c).
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    got = streams.bits(torch.tensor(1234567), 5).numpy().astype(np.uint64)
    assert got.tolist() == expected


def test_a_run_draws_the_same_numbers_whoever_stands_beside_it():
    ten, twenty = streams.runs(0, 10), streams.runs(0, 20)
    assert torch.equal(streams.normal(ten, 5, 7), streams.normal(twenty, 5, 7)[:10])
    assert torch.equal(streams.permutation(ten, 9), streams.permutation(twenty, 9)[:10])


def test_draws_have_the_named_distribution():
    keys = streams.runs(1, 50)
    assert stats.kstest(streams.uniform(keys, 400).flatten().numpy(), "uniform").pvalue > 1e-3
    normal = streams.normal(keys, 400).numpy()
    assert stats.kstest(normal.ravel(), "norm").pvalue > 1e-3
    assert np.abs(np.corrcoef(normal)[np.triu_indices(50, 1)]).max() < 0.3


def test_keys_of_different_purposes_differ():
    keys = streams.fold(streams.runs(0, 100)[:, None], torch.arange(100))
    assert len(set(keys.flatten().tolist())) == 10_000
    assert not torch.equal(streams.root(0), streams.root(1))


def test_permutations_are_permutations_and_uniform():
    orders = streams.permutation(streams.runs(5, 2000), 4)
    assert torch.equal(orders.sort(-1).values, torch.arange(4).expand(2000, 4))
    counts = torch.bincount(orders[:, 0], minlength=4)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
