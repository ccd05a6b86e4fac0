"""Plates: shifts against simulated truths and dense formulas, as far as there is evidence for them."""

import doctest

import pytest
import torch

from aicau import gp
from aicau.core.observations import Observations
from aicau.core.pool import coordinates
from aicau.gp import noise, plates
from aicau.gp.plates import compared, plate_effects, process, without_plates


def test_the_example_runs():
    assert doctest.testmod(plates).failed == 0


def on_plates(seed, shift, own, rows=96, plates=8, repeats=2):
    """A smooth truth over a plane; every plate adds its own shift, every measurement its own error."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(200, 2, generator=generator, dtype=torch.double) * 4
    index = torch.randint(0, 200, (rows // repeats,), generator=generator).repeat(repeats)
    batch = torch.arange(rows) % plates
    effects = shift * torch.randn(plates, generator=generator, dtype=torch.double)
    error = own * torch.randn(rows, generator=generator, dtype=torch.double)
    truth = torch.sin(x[:, 0]) * torch.cos(x[:, 1])
    y = truth[index] + effects[batch] + error
    return x, truth, effects, Observations(index, y, torch.zeros(rows, dtype=torch.int64), batch)


def rows_of(x, observations):
    return coordinates(x)[observations.index]


def test_a_plate_effect_is_recognised_and_taken_out():
    x, truth, effects, o = on_plates(0, shift=0.6, own=0.2)
    found = plate_effects(rows_of(x, o), o.y, o.batch)
    low, high = found.interval
    assert low < float(effects.var()) < high
    assert found.batches.tolist() == list(range(8))
    wrong = found.shift - effects - (found.shift - effects).mean()
    assert float((wrong.abs() / found.error).max()) < 3
    raw = (o.y - truth[o.index]).var()
    left = (o.y - found.shift[o.batch] - truth[o.index]).var()
    assert float(left) < 0.3 * float(raw)
    torch.testing.assert_close(without_plates(x, o)[0], o.y - found.shift[o.batch], rtol=1e-9, atol=1e-12)


def test_without_a_plate_effect_nothing_is_taken_out():
    x, _, _, o = on_plates(1, shift=0.0, own=0.2)
    found = plate_effects(rows_of(x, o), o.y, o.batch)
    assert found.variance < 0.001
    assert found.interval[0] == 0  # that nothing is shared lies inside
    assert float(found.shift.abs().max()) < 0.02
    assert float(noise.fit(rows_of(x, o)[None], o.y[None]).posterior.noise()) == pytest.approx(0.04, rel=0.5)


def test_blup_equals_the_dense_formula():
    x, _, _, o = on_plates(4, 0.5, 0.2, rows=24, plates=3)
    fitted = noise.fit(((x - x.mean(0)) / x.std(0))[o.index][None], o.y[None], o.batch[None], settings=process(2))
    rows, theta = fitted.posterior.rows, fitted.posterior.theta
    whole = gp.covariance(theta, rows)[0][0]
    same = (o.batch[:, None] == o.batch[None, :]).double()
    shared = float(fitted.shared[0]) / float(fitted.posterior.scale[0]) ** 2
    expected = shared * same @ torch.linalg.solve(whole, rows.y[0]) * fitted.posterior.scale[0]
    torch.testing.assert_close(fitted.posterior.batch_shift()[0][0], expected, rtol=1e-6, atol=1e-9)


def test_shifts_and_their_errors_solve_the_mixed_model_equations():
    """Henderson's equations of y = c + Z b + rest, with the covariance of the rest (truth and noise) written out."""
    x, _, _, o = on_plates(4, 0.5, 0.2, rows=24, plates=3)
    rows = ((x - x.mean(0)) / x.std(0))[o.index]
    found = plate_effects(rows, o.y, o.batch)
    fitted = noise.fit(rows[None], o.y[None], o.batch[None], settings=process(2)).posterior
    theta, scale = fitted.theta[0].exp(), float(fitted.scale[0])
    gap = (5 * (((rows[:, None] - rows[None, :]) / theta[1:3]) ** 2).sum(-1)).sqrt()
    matern = (1 + gap + gap**2 / 3) * torch.exp(-gap)
    rest = theta[0] * matern + (theta[3] + 1e-6) * torch.eye(24).double()
    design = torch.cat([torch.ones(24, 1), torch.nn.functional.one_hot(o.batch, 3)], 1).double()  # mean, batches
    prior = torch.diag(torch.tensor([1 / noise.CONSTANT, *[1 / theta[4]] * 3]).double())
    weighted = torch.linalg.solve(rest, design)
    left = torch.linalg.inv(design.T @ weighted + prior)
    y = (o.y - o.y.mean()) / o.y.std(correction=0)
    sure = float(compared(rows[None], o.y[None], o.batch[None])[1])
    torch.testing.assert_close(found.shift, sure * (left @ weighted.T @ y)[1:] * scale, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(found.error, left.diagonal()[1:].sqrt() * scale, rtol=1e-5, atol=1e-8)
    assert found.variance == pytest.approx(sure * float(theta[4]) * scale**2)


def test_the_variance_between_batches_is_that_of_a_balanced_analysis_of_variance():
    """Without an effect of x, REML of a balanced layout is (mean square between − within)/rows of a batch."""
    generator = torch.Generator().manual_seed(7)
    batch = torch.arange(60).repeat_interleave(6)
    effects = 2 * torch.randn(60, generator=generator).double()
    y = effects[batch] + torch.randn(360, generator=generator).double()
    x = torch.randn(360, 1, generator=generator).double()
    table = y.reshape(60, 6)
    within = table.var(1).mean()
    truth = float(table.mean(1).var() - within / 6)
    found = plate_effects(x, y, batch)
    assert found.variance == pytest.approx(truth, rel=0.1)
    low, high = found.interval
    assert low < truth < high
    assert high / low < 3  # 59 degrees of freedom
    shrunk = truth / (truth + float(within) / 6)
    torch.testing.assert_close(found.shift, shrunk * (table.mean(1) - y.mean()), rtol=0, atol=0.25)


def test_rows_without_a_batch_have_no_effect_and_one_batch_has_none():
    x, _, _, o = on_plates(5, 0.5, 0.2, rows=24, plates=3)
    rows = ((x - x.mean(0)) / x.std(0))[o.index]
    batch = torch.where(torch.arange(24) < 6, -1, 10 * o.batch)
    found = plate_effects(rows, o.y, batch)
    assert found.batches.tolist() == [0, 10, 20]
    some = plate_effects(rows[6:], o.y[6:], batch[6:])
    assert torch.equal(found.shift, some.shift)
    one = plate_effects(rows, o.y, torch.zeros(24).long())
    assert (one.variance, one.shift.tolist(), one.error.tolist()) == (0.0, [0.0], [0.0])


def test_plates_that_share_nothing_are_believed_to_share_nothing():
    """Without evidence almost nothing is taken out, in any of ten draws; a real shift is certain."""
    for seed in range(10):
        x, _, _, o = on_plates(seed, shift=0.0, own=0.3, rows=60, plates=6)
        corrected, shared = without_plates(x, o)
        assert float((corrected - o.y).abs().max()) < 0.1  # a third of the noise
        assert float(shared) < 0.02
    x, _, _, o = on_plates(0, shift=0.6, own=0.2)
    assert float(compared(rows_of(x, o)[None], o.y[None], o.batch[None])[1]) > 0.999
