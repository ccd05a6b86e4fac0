"""Debiased prediction: closer to the truth than the ensemble, with intervals that hold what they say."""

from dataclasses import replace

import pytest
import torch

from aicau.bias import Posterior
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.ensembles import MLP
from aicau.prediction.base import gaussian, quantile
from aicau.problems import type2
from aicau.round import Round

ROUND = Round.paper(MLP())  # targets as they are, so that estimates and predictions are in the same units


@pytest.fixture(scope="module")
def many():
    problem, keys = type2(grid=20), streams.runs(0, 3)
    index = streams.permutation(keys, problem.pool.n)[:, :110]
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    state = ROUND.fit(problem.pool.x, Observations(index, y, torch.zeros(110, dtype=torch.int64)), keys)
    runs = [state[run : run + 1] for run in range(3)]
    return problem, runs, [ROUND.predictor(one).predict(one) for one in runs]


def together(found, name):
    return torch.stack([getattr(one, name) for one in found])


def test_debiased_is_far_closer_and_intervals_cover(many):
    problem, _, found = many
    mean, ensemble, low, new_low, new_high = (
        together(found, name) for name in ("mean", "ensemble", "low", "new_low", "new_high")
    )
    assert float(((mean - problem.truth) ** 2).mean()) < 0.2 * float(((ensemble - problem.truth) ** 2).mean())
    new = problem.truth + problem.noise(streams.runs(9, 3)[:, None])[:, 0]
    assert 0.82 < float(((new_low <= new) & (new <= new_high)).double().mean()) < 0.97
    assert bool((low >= new_low).all())
    wide = [replace(one, level=0.99) for one in found]
    assert bool((together(wide, "high") > together(found, "high")).all())


def test_parts_are_the_papers(many):
    _, runs, found = many
    for state, one in zip(runs, found, strict=True):
        evidence = state.evidence()
        moments = Posterior().moments(evidence)
        # Of C a prediction computes the diagonal itself, and an estimate its factor and what the factor leaves.
        torch.testing.assert_close(one.bias, (moments.mean**2 + moments.variance())[0], rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(one.ensemble - one.mean, moments.mean[0])
        square = Posterior().estimate(evidence).diagonal()[0].double()
        torch.testing.assert_close(square, one.bias, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(
            one.epistemic, state.predictions[0].double().var(0, correction=0), rtol=1e-4, atol=1e-7
        )


def test_a_level_is_a_probability(many):
    with pytest.raises(InputError, match="between 0 and 1"):
        _ = replace(many[2][0], level=90).low


def test_the_quantile_is_between_the_errors_and_the_gaussian():
    assert gaussian(0.9) == pytest.approx(1.6449, rel=1e-4)
    errors = torch.full((200,), 3.0, dtype=torch.double)
    assert quantile(errors, 0.9) == pytest.approx((200 * 3.0 + 20 * 1.6449) / 220, rel=1e-4)
    assert quantile(torch.zeros(1).double(), 0.9) == pytest.approx(20 * 1.6449 / 21, rel=1e-4)
