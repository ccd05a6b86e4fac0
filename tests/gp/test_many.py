"""Processes of many rows: against the exact one, dense sums, and each other."""

import numpy as np
import pytest
import torch

from aicau import gp
from aicau.bias import Posterior
from aicau.core import streams
from aicau.core.observations import Observations
from aicau.ensembles import MLP
from aicau.gp import many, noise
from aicau.prediction.regression import ValuePredictor
from aicau.round import Round


@pytest.fixture(scope="module")
def case():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(1, 600, 3, generator=draw).double()
    y = 5 + torch.sin(2 * x[..., 0]) + x[..., 1] + 0.1 * torch.randn(1, 600, generator=draw).double()
    process = gp.Process(
        noise=True, constant=10.0, signal_prior=(0.0, 1.0), length_prior=(0.5, 1.0), linear=0.3, shape="matern"
    )
    weight = torch.rand(1, 600, generator=draw).double() + 0.5
    found = process.found(x, y, torch.ones_like(y, dtype=torch.bool), weight, most=150)
    return found, torch.randn(1, 300, 3, generator=draw).double()


def sizes(monkeypatch, carriers, block, exact=100):
    for name, value in {"CARRIERS": carriers, "BLOCK": block, "EXACT": exact}.items():
        monkeypatch.setattr(many, name, value)


@pytest.mark.parametrize(("carriers", "block"), [(50, 600), (600, 80)])
def test_with_one_block_or_all_rows_as_carriers_it_is_the_process_itself(case, monkeypatch, carriers, block):
    found, at = case
    sizes(monkeypatch, carriers, block)
    few = gp.Many.of(*found)
    assert len(few.blocks) == (1 if block == 600 else 8)
    for ours, exact in zip(few.both(at), gp.Posterior.of(*found).both(at), strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-3, atol=1e-4)
    assert torch.equal(few.mean(at), few.both(at)[0])
    assert torch.equal(few.noise(), gp.Posterior.of(*found).noise())


def test_it_is_the_posterior_under_its_own_covariance(case, monkeypatch):
    """Q between blocks, K within them and to the carriers, by dense matrices."""
    (theta, rows, shift, scale), at = case
    sizes(monkeypatch, 40, 90)
    few = gp.Many.of(theta, rows, shift, scale)
    assert len(few.blocks) == 8
    units = few.lengths()
    home, place = (many.placed(few.tree, x[0] / units) for x in (rows.x, at))
    z = few.basis[None]
    core = rows.prior(theta, z, z)[0] + many.JITTER * torch.eye(40)

    def covariance(a, b, same):
        cross = rows.prior(theta, z, a)[0].mT @ torch.linalg.solve(core, rows.prior(theta, z, b)[0])
        return torch.where(same, rows.prior(theta, a, b)[0], cross)

    whole = covariance(rows.x, rows.x, home[:, None] == home) + rows.noise(theta)[0].diag()
    cross = covariance(at, rows.x, place[:, None] == home)
    mean = cross @ torch.linalg.solve(whole, rows.y[0])
    variance = rows.prior_at(theta, at)[0] - (cross * torch.linalg.solve(whole, cross.mT).mT).sum(-1)
    torch.testing.assert_close(few.mean(at)[0], mean * scale + shift, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(few.variance(at)[0], variance * scale**2, rtol=1e-5, atol=1e-7)


def test_left_out_groups_are_predicted_without_their_rows(case, monkeypatch):
    found, _ = case
    exact = gp.Posterior.of(*found).left_out_groups(torch.arange(600) % 5)
    sizes(monkeypatch, 100, 150)
    error, variance = gp.Many.of(*found).left_out_groups(torch.arange(600) % 5)
    torch.testing.assert_close(variance, exact[1], rtol=0.3, atol=1e-3)
    assert float((error**2).mean()) == pytest.approx(float((exact[0] ** 2).mean()), rel=0.1)


def test_halves_are_of_rows_that_differ_most_and_equal_rows_are_never_parted(monkeypatch):
    monkeypatch.setattr(many, "BLOCK", 5)
    x = torch.tensor([[0.0, 0.0]] * 4 + [[0.0, 9.0]] * 8 + [[1.0, 9.0]] * 3).double()
    leaves = []
    tree = many.split(x, torch.arange(15), leaves)
    # Of eight rows that are all alike five stay.
    assert [one.tolist() for one in leaves] == [[0, 1, 2, 3], [4, 5, 6, 7, 8], [12, 13, 14]]
    assert tree.feature == 1
    assert many.placed(tree, x).tolist() == [0] * 4 + [1] * 8 + [2] * 3
    assert many.placed(tree, torch.tensor([[5.0, -1.0], [0.5, 10.0]]).double()).tolist() == [0, 2]


def test_noise_of_many_rows_is_found_from_some_and_all_are_used(monkeypatch):
    draw = torch.Generator().manual_seed(1)
    x = torch.linspace(-1.7, 1.7, 400).double()[None, :, None]
    size = torch.where(x[..., 0] < 0, 0.05, 0.5)
    y, counts = x[..., 0] + size * torch.randn(1, 400, generator=draw).double(), torch.ones(1, 400)
    sizes(monkeypatch, 50, 60)
    monkeypatch.setattr(gp, "EXACT", 200)
    found, at = noise.fit_many(x, y, counts), torch.tensor([[[-1.0], [1.0]]]).double()
    assert found.posterior.rows.y.shape == (1, 200)
    assert found.many.rows.y.shape == (1, 400)
    quiet, loud = found.variance_at(at)[0].tolist()
    assert loud > 5 * quiet
    for few, whole in zip(found.both(at), noise.fit(x, y, local=True).both(at), strict=True):
        torch.testing.assert_close(few, whole, rtol=0.3, atol=0.05)


def test_a_round_of_many_rows_is_as_good_as_the_exact_one_and_comes_back_from_its_tensors(monkeypatch):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((500, 2)))
    truth = torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
    index = torch.from_numpy(np.r_[np.arange(150), np.arange(150)])[None]
    y = truth[index] + 0.1 * torch.from_numpy(rng.standard_normal((1, 300)))
    rows = Observations(index, y, torch.zeros_like(index[0]), torch.zeros_like(index))
    estimator, how = Posterior(rank=0, most_rows=100), Round(MLP())

    def said():
        state = how.fit(x, rows, streams.runs(0, 1))
        predictor = how.predictor(state, estimator)
        return state, predictor, predictor.predict(state)

    exact = said()[-1]
    sizes(monkeypatch, 30, 50)
    monkeypatch.setattr(gp, "EXACT", 100)
    state, predictor, few = said()
    assert predictor.correction.process.many is not None
    assert isinstance(predictor.combination.models["process"].posterior, gp.Many)
    error = [float(((one.mean - truth) ** 2).mean()) for one in (few, exact)]
    assert error[0] < 1.5 * error[1]
    again = ValuePredictor.load(predictor.tensors(), predictor.words(), predictor.figures)
    for name, column in again.predict(state).columns().items():
        assert np.array_equal(column, few.columns()[name]), name
