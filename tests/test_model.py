"""The model of a round: noise by hand, state through safetensors, intervals that mean what they say."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from aicau import streams
from aicau.errors import InputError, StoreError
from aicau.model import Measured, Model, fit
from aicau.strategy import Strategy


def measured(index, y, sem=None, count=None):
    sem = [np.nan] * len(y) if sem is None else sem
    count = [1] * len(y) if count is None else count
    return Measured(np.array(index), np.array(y, dtype=float), np.array(sem, dtype=float), np.array(count))


def test_replicate_variance_by_hand():
    # (1, 3): 2 around their mean 2, one degree of freedom; (5): none; (2, 4, 6): 8, two degrees. (2 + 8) / 3.
    variance, freedom = measured([0, 0, 1, 2, 2, 2], [1, 3, 5, 2, 4, 6]).replicate_variance()
    assert (variance, freedom) == (pytest.approx(10 / 3), 3)
    # A mean of 4 values with standard error 0.5 has variance 4 · 0.25 = 1, with 3 degrees of freedom.
    assert measured([0], [7], [0.5], [4]).replicate_variance() == (pytest.approx(1.0), 3)
    # Raw or summarised, the same values give the same: 1, 3 and 5, 7 of one candidate.
    raw = measured([0] * 4, [1, 3, 5, 7]).replicate_variance()
    means = measured([0, 0], [2, 6], [1, 1], [2, 2]).replicate_variance()
    assert raw == (pytest.approx(means[0]), means[1])
    assert measured([0, 1], [1, 2]).replicate_variance() == (0.0, 0)


@pytest.fixture(scope="module")
def fitted():
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    rng = np.random.default_rng(0)
    index = np.repeat(np.arange(40), 2)
    truth = 100 + 10 * np.sin(x[:, 0].numpy())
    rows = measured(index, truth[index] + rng.normal(size=80))
    return x, rows, truth, fit(x, rows, streams.runs(0, 1), Strategy.parse("pemse:direct:spread"))


def test_predictions_are_in_the_targets_units(fitted):
    _, rows, truth, model = fitted
    said = model.predict()
    assert np.corrcoef(said.mean, truth)[0, 1] > 0.8
    assert abs(said.mean.mean() - 100) < 3
    variance, _ = rows.replicate_variance()
    assert said.aleatoric == pytest.approx(np.full(400, variance))
    half = 1.959964 * model.info["width"] * np.sqrt(said.epistemic + said.bias**2 + said.aleatoric)
    assert said.high - said.mean == pytest.approx(half)
    assert np.mean((truth >= said.low) & (truth <= said.high)) > 0.8
    some = model.predict(np.array([3, 399, 3]))
    assert some.mean == pytest.approx(said.mean[[3, 399, 3]], rel=1e-5)
    assert some.bias.tolist() == said.bias[[3, 399, 3]].tolist()


def test_the_bias_at_measured_points_is_the_residual(fitted):
    _, rows, _, model = fitted
    said = model.predict()
    means = rows.y.reshape(40, 2).mean(1)
    assert said.bias[:40] == pytest.approx(said.mean[:40] - means, abs=1e-4)


def test_state_through_safetensors_gives_the_same_bits(fitted):
    x, _, _, model = fitted
    tensors, words = model.state()
    again = Model.load(load(save(tensors)), words, x)
    assert again.info == model.info
    for name, value in vars(again.predict()).items():
        assert np.array_equal(value, getattr(model.predict(), name)), name
    assert torch.equal(again.estimate.factor, model.estimate.factor)
    later = json.dumps(json.loads(words) | {"format": 99})
    with pytest.raises(StoreError, match="another version"):
        Model.load(tensors, later, x)


def test_scale_and_shift_of_the_target_do_not_matter():
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(1))
    y = x[:20].sum(-1).double().numpy()
    strategy, key = Strategy.parse("lc"), streams.runs(3, 1)
    small = fit(x, measured(range(20), y), key, strategy).predict()
    large = fit(x, measured(range(20), 1e6 * y + 5e7), key, strategy).predict()
    assert (large.mean - 5e7) / 1e6 == pytest.approx(small.mean, abs=1e-3)
    assert large.epistemic / 1e12 == pytest.approx(small.epistemic, rel=1e-2, abs=1e-5)


@pytest.mark.parametrize("y", [[4.0], [4.0, 4.0, 4.0], [1e100, -1e100], [0.0, 5e-324]])
def test_few_and_strange_targets_give_finite_numbers(y):
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(1))
    said = fit(x, measured(range(len(y)), y), streams.runs(0, 1), Strategy.parse("farthest")).predict()
    assert np.isfinite(said.mean).all()


def test_no_measurement_no_model():
    with pytest.raises(InputError, match="nothing was measured yet"):
        fit(torch.zeros(3, 1), measured([], []), streams.runs(0, 1), Strategy.parse("lc"))


def test_the_shift_of_a_plate_is_taken_out_before_training():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((60, 2))).float()
    index, batch = np.tile(np.arange(40), 3), np.repeat(np.arange(3), 40)
    truth = np.sin(x[:, 0].numpy().astype(float))
    y = truth[index] + np.array([0.0, 1.5, -1.5])[batch] + 0.05 * rng.standard_normal(120)
    plain = Measured(index, y, np.full(120, np.nan), np.ones(120, dtype=np.int64))
    corrected, shared = replace(plain, batch=batch).corrected(x)
    assert shared > 0.5
    for plate in range(3):
        assert abs((corrected.y - truth[index])[batch == plate].mean() - (corrected.y - truth[index]).mean()) < 0.05
    assert plain.corrected(x)[0] is plain
    unknown = replace(plain, batch=np.where(batch == 2, -1, batch))
    same = unknown.corrected(x)[0].y[batch == 2]
    np.testing.assert_array_equal(same, y[batch == 2])
