"""The model of a campaign: rows by hand, state through safetensors, intervals that mean what they say."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from aicau import gp
from aicau.campaign.model import FORMAT, MOST_REPEATS, fit, read, replicates, unpack, values_behind
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.gp.plates import without_plates
from aicau.prediction.base import quantile
from aicau.strategy import Strategy


def told(index, y, sem=None, count=None, batch=None):
    """As a store hands rows out."""
    columns = [index, y, *([None] * len(y) if part is None else part for part in (sem, batch))]
    counts = [1] * len(y) if count is None else count
    return read(
        [
            SimpleNamespace(candidate=int(i), value=float(v), sem=s, repeats=c, batch=b, label=None)
            for (i, v, s, b), c in zip(zip(*columns, strict=True), counts, strict=True)
        ]
    )


def fitted_to(x, rows, strategy="lc", seed=0, ensemble="combined"):
    return fit(x, rows, streams.runs(seed, 1), {"target": "y", "strategy": strategy, "ensemble": ensemble}, 1)


def again_of(model, x, strategy="lc", change=lambda tensors, words: (tensors, words)):
    """Through safetensors and JSON, as through a store."""
    tensors, words = change(*model.pack())
    return unpack(load(save(tensors)), words, x, {"target": "y", "strategy": strategy})


@pytest.mark.parametrize("count", [2, 3, 4, 7, MOST_REPEATS])
def test_values_behind_a_mean_have_its_mean_and_standard_error(count):
    values = np.array(values_behind(7.0, 0.5, count))
    assert len(values) == count
    assert values.mean() == pytest.approx(7.0)
    assert values.std(ddof=1) / count**0.5 == pytest.approx(0.5)


def test_rows_by_hand():
    assert values_behind(7.0, None, 1) == values_behind(7.0, 0.5, 1) == [7.0]
    assert values_behind(7.0, 0.0, 3) == [7.0] * 3
    many = np.array(values_behind(7.0, 0.5, 1_000_000))  # the same standard error in fewer rows
    assert len(many) == MOST_REPEATS
    assert many.std(ddof=1) / MOST_REPEATS**0.5 == pytest.approx(0.5)
    # A mean of 4 values with standard error 0.5 has standard deviation 1: two rows above and two below, at ±√(3/4).
    rows = told([5, 2, 5], [1, 7, 3], [None, 0.5, None], [1, 4, 1])
    assert rows.observations.index.tolist() == [[5, 2, 2, 2, 2, 5]]
    up, down = 7 + 0.75**0.5, 7 - 0.75**0.5
    assert rows.observations.y[0].tolist() == pytest.approx([1, up, up, down, down, 3])
    assert rows.observations.batch.tolist() == [[0] * 6]
    assert replicates(rows.observations) == [(7.0, pytest.approx(1.0), 4), (2.0, pytest.approx(2**0.5), 2)]
    # Who has no plate stands alone.
    plates = told([0, 1, 2, 3], [1, 2, 3, 4], batch=["p2", None, "p1", "p2"])
    assert (plates.batches, plates.observations.batch.tolist()) == (("p2", "p1"), [[0, 3, 1, 0]])
    labels = [
        SimpleNamespace(candidate=i, value=None, sem=None, repeats=n, batch=None, label=label)
        for i, n, label in [(4, 2, "no"), (1, 1, "maybe")]
    ]
    assert read(labels).labels == ("maybe", "no")
    assert read(labels).observations.y.tolist() == [[1, 1, 0]]


@pytest.fixture(scope="module")
def fitted():
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)).double()
    rng = np.random.default_rng(0)
    index = np.repeat(np.arange(40), 2)
    truth = 100 + 10 * np.sin(x[:, 0].numpy())
    rows = told(index, truth[index] + rng.normal(size=80))
    return x, rows, truth, fitted_to(x, rows, "pemse:direct:spread")


def test_predictions_are_in_the_targets_units(fitted):
    _, rows, truth, model = fitted
    said = model.predict().columns()
    assert np.corrcoef(said["mean"], truth)[0, 1] > 0.9
    assert abs(said["mean"].mean() - 100) < 3
    variance = np.mean([sd**2 for _, sd, _ in replicates(rows.observations)])
    assert said["aleatoric"].mean() == pytest.approx(variance, rel=0.4)
    assert 0.8 < np.mean((truth >= said["low"]) & (truth <= said["high"])) <= 1
    assert (model.figures.points, model.figures.measurements, model.figures.freedom) == (40, 80, 40)


def test_some_candidates_at_a_time_are_the_same_as_all_at_once(fitted, monkeypatch):
    model = fitted[-1]
    whole = model.predict().columns()
    some = [model.predict(np.arange(start, start + 100)).columns() for start in range(0, 400, 100)]
    single = model.predict(np.array([3, 399, 3])).columns()
    monkeypatch.setattr("aicau.gp.posterior.CELLS", 500)  # and a process that holds six candidates at a time
    small = model.predict().columns()
    for name, column in whole.items():
        np.testing.assert_allclose(np.concatenate([part[name] for part in some]), column, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(single[name], column[[3, 399, 3]], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(small[name], column, rtol=1e-6, atol=1e-9)


def test_a_mean_of_several_values_counts_as_several():
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(2))
    rng = np.random.default_rng(2)
    truth = np.sin(2 * x[:, 0].numpy().astype(float))
    values = truth[:60, None] + 0.5 * rng.normal(size=(60, 8))
    sem = values.std(1, ddof=1) / 8**0.5
    means = fitted_to(x, told(range(60), values.mean(1), sem, [8] * 60)).predict().columns()
    raw = fitted_to(x, told(np.repeat(np.arange(60), 8), values.ravel())).predict().columns()
    for said in (means, raw):  # of one value, not of a mean of eight
        assert said["aleatoric"].mean() == pytest.approx(0.25, rel=0.4)
    assert np.sqrt(np.mean((means["mean"] - raw["mean"]) ** 2)) < 0.05


def test_left_out_errors_are_of_whole_candidates(fitted):
    """Against processes that are fitted anew without a candidate, with the same parameters."""
    x, told_rows, *_ = fitted
    model = fitted_to(x, told_rows, ensemble="paper")
    process = model.predictor.correction.process.posterior
    group = torch.arange(40).repeat_interleave(2)
    error = process.left_out_groups(group)[0]
    rows = process.rows
    for out in (0, 17):
        kept = group != out
        some = replace(rows, **{k: getattr(rows, k)[:, kept] for k in ("x", "y", "valid", "fixed", "relative")})
        without = gp.Posterior.of(process.theta, some, process.shift, process.scale)
        value = rows.y * process.scale + process.shift
        by_hand = value[0, ~kept] - without.mean(rows.x[:, ~kept])[0]
        torch.testing.assert_close(error[~kept], by_hand)
    assert model.figures.error == pytest.approx(float((error**2).mean().sqrt()) * float(model.state.scale[0]))


@pytest.mark.parametrize("earlier", range(FORMAT))
def test_a_model_kept_by_an_earlier_version_is_no_model(fitted, earlier):
    def older(tensors, words):
        return tensors, json.dumps(json.loads(words) | {"format": earlier})

    assert again_of(fitted[-1], fitted[0], change=older) is None


def test_state_through_safetensors_gives_the_same_bits(fitted):
    x, _, _, model = fitted
    strategy = Strategy.parse("pemse:direct:spread")
    again = again_of(model, x, strategy.name)
    assert again.figures == model.figures
    assert (again.labels, again.basis, again.how) == (model.labels, model.basis, model.how)
    whole = model.predict().columns()
    for name, value in again.predict().columns().items():
        assert np.array_equal(value, whole[name]), name
    assert torch.equal(again.state.predictions, model.state.predictions)
    estimates = (one.how.estimate(strategy.bias, one.state).factor for one in (again, model))
    assert torch.equal(*estimates)


def test_scale_and_shift_of_the_target_do_not_matter():
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(1))
    y = x[:20].sum(-1).double().numpy()
    small = fitted_to(x, told(range(20), y), seed=3).predict()
    large = fitted_to(x, told(range(20), 1e6 * y + 5e7), seed=3).predict()
    assert (large.mean - 5e7).numpy() / 1e6 == pytest.approx(small.mean.numpy(), abs=1e-3)
    assert large.epistemic.numpy() / 1e12 == pytest.approx(small.epistemic.numpy(), rel=1e-2, abs=1e-5)


@pytest.mark.parametrize("y", [[4.0], [4.0, 4.0, 4.0], [1e100, -1e100], [0.0, 5e-324]])
def test_few_and_strange_targets_give_finite_numbers(y):
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(1))
    said = fitted_to(x, told(range(len(y)), y), "farthest").predict()
    assert np.isfinite(said.mean).all()


def test_no_measurement_no_model():
    with pytest.raises(InputError, match="nothing was measured yet"):
        fitted_to(torch.zeros(3, 1), told([], []))


def test_the_shift_of_a_plate_is_taken_out_before_training():
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((60, 2))).float()
    index, batch = np.tile(np.arange(40), 3), np.repeat(np.arange(3), 40)
    truth = np.sin(x[:, 0].numpy().astype(float))
    y = truth[index] + np.array([0.0, 1.5, -1.5])[batch] + 0.05 * rng.standard_normal(120)
    rows = told(index, y, batch=[f"p{b}" for b in batch]).observations
    (corrected,), (shared,) = without_plates(x, rows)
    assert shared > 0.5
    off = corrected.numpy() - truth[index]
    for plate in range(3):
        assert abs(off[batch == plate].mean() - off.mean()) < 0.05
    (same,), (nothing,) = without_plates(x, told(index, y).observations)
    np.testing.assert_array_equal(same, y)
    assert nothing == 0
    model = fitted_to(x, told(index, y, batch=[f"p{b}" for b in batch]))
    np.testing.assert_allclose(model.state.in_units(model.state.observations.y)[0], corrected, rtol=1e-12, atol=1e-12)


def test_what_the_shifts_of_plates_have_in_common_is_unknown():
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.standard_normal((200, 2))).float()
    truth = np.sin(x[:, 0].numpy().astype(float))
    index, batch = np.tile(np.arange(60), 2), np.tile(np.repeat(np.arange(4), 15), 2)
    y = truth[index] + 0.3 + np.array([0.2, 0.5, -0.4, -0.3])[batch] + 0.1 * rng.standard_normal(120)
    model = fitted_to(x, told(index, y, batch=[f"p{b}" for b in batch]), "default", ensemble="paper")
    predictor, scale, shift = model.predictor, float(model.state.scale[0]), float(model.state.shift[0])
    assert predictor.batches == 4
    shared = predictor.shared * scale**2
    said = model.predict().columns()
    wide = (said["high"] - said["low"]) / 2 / quantile(predictor.correction.left_out[0], 0.95)
    left = wide**2 - shared / 4  # what the process does not know
    assert (left > 0).all()
    ensemble = torch.from_numpy(said["ensemble"] - shift)[None] / scale
    _, unknown, own = predictor.correction.at(x, ensemble)
    np.testing.assert_allclose(left, unknown[0] * scale**2, rtol=1e-6)
    np.testing.assert_allclose(said["aleatoric"], own[0] * scale**2 + shared, rtol=1e-6)
    # The plates lie 0.3 higher than the truth, and nobody can know; the interval allows for it.
    assert np.mean((truth >= said["low"]) & (truth <= said["high"])) > 0.8


def test_a_kept_model_can_be_fitted_once_more_as_it_was(fitted):
    x, rows, _, model = fitted
    kept = again_of(model, x)
    again = kept.how.fit(x, rows.observations, kept.state.keys)
    assert torch.equal(again.fitted.parameters, model.state.fitted.parameters)
    assert torch.equal(again.observations.y, kept.state.observations.y)
