"""Debiased prediction: closer to the truth than the ensemble, with intervals that hold what they say."""

import pytest
import torch

from aicau import Evidence
from aicau.bias import Posterior
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.ensembles import MLP
from aicau.prediction.values import predict, quantile
from aicau.problems import type2


@pytest.fixture(scope="module")
def many():
    problem, keys = type2(grid=20), streams.runs(0, 3)
    index = streams.permutation(keys, problem.pool.n)[:, :110]
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    fitted = MLP().fit(problem.pool.x[index], y, keys)
    observations = Observations(index, y, torch.zeros(110, dtype=torch.int64))
    return problem, Evidence(problem.pool.x, observations, fitted.predict(problem.pool.x), keys, fitted.unseen)


def test_debiased_is_far_closer_and_intervals_cover(many):
    problem, evidence = many
    found = predict(evidence, 0.9)
    error = ((found.mean - problem.truth) ** 2).mean()
    assert float(error) < 0.2 * float(((found.ensemble - problem.truth) ** 2).mean())
    new = problem.truth + problem.noise(streams.runs(9, 3)[:, None])[:, 0]
    inside = ((found.new_low <= new) & (new <= found.new_high)).double().mean()
    assert 0.82 < float(inside) < 0.97
    assert bool((found.low >= found.new_low).all())
    wide = predict(evidence, 0.99)
    assert bool((wide.high > found.high).all())


def test_parts_are_the_papers(many):
    _, evidence = many
    found, moments = predict(evidence), Posterior().moments(evidence)
    torch.testing.assert_close(found.bias, moments.mean**2 + moments.variance())
    torch.testing.assert_close(found.ensemble - found.mean, moments.mean)
    torch.testing.assert_close(Posterior().estimate(evidence).diagonal().double(), found.bias, rtol=1e-3, atol=1e-5)


def test_a_level_is_a_probability(many):
    with pytest.raises(InputError, match="between 0 and 1"):
        predict(many[1], 90)


def test_the_quantile_is_between_the_errors_and_the_gaussian():
    errors = torch.full((200,), 3.0, dtype=torch.double)
    assert float(quantile(errors, 0.9)) == pytest.approx((200 * 3.0 + 20 * 1.6449) / 220, rel=1e-4)
    assert float(quantile(torch.zeros(1).double(), 0.9)) == pytest.approx(20 * 1.6449 / 21, rel=1e-4)
