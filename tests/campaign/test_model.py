"""The model of a round: noise by hand, state through safetensors, intervals that mean what they say."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from aicau.prediction.values import PARTS, predict, quantile
from safetensors.torch import load, save

from aicau import Evidence, Observations, gp
from aicau.campaign.model import Measured, Model, fit
from aicau.core import streams
from aicau.core.errors import InputError, StoreError
from aicau.ensembles import ENSEMBLES
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
    said = model.predict().columns()
    assert np.corrcoef(said["mean"], truth)[0, 1] > 0.9
    assert abs(said["mean"].mean() - 100) < 3
    variance, _ = rows.replicate_variance()
    assert said["aleatoric"].mean() == pytest.approx(variance, rel=0.4)
    assert 0.8 < np.mean((truth >= said["low"]) & (truth <= said["high"])) <= 1


def test_some_candidates_at_a_time_are_the_same_as_all_at_once(fitted, monkeypatch):
    model = fitted[-1]
    whole = model.predict().columns()
    some = [model.predict(np.arange(start, start + 100)).columns() for start in range(0, 400, 100)]
    single = model.predict(np.array([3, 399, 3])).columns()
    for cells in ("aicau.gp.CELLS", "aicau.gp.posterior.CELLS"):  # and a process that holds six candidates at a time
        monkeypatch.setattr(cells, 500)
    small = model.predict().columns()
    for name, column in whole.items():
        np.testing.assert_allclose(np.concatenate([part[name] for part in some]), column, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(single[name], column[[3, 399, 3]], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(small[name], column, rtol=1e-6, atol=1e-9)


def test_the_model_predicts_what_the_library_predicts(fitted):
    """The same process by the whole-pool way: mean, parts and intervals."""
    x, rows, _, model = fitted
    shift, scale = model.info["shift"], model.info["scale"]
    index = torch.from_numpy(rows.index)[None]
    y = torch.from_numpy((rows.y - shift) / scale)[None]
    unseen = model.ensemble.unseen[..., torch.from_numpy(rows.index)]  # candidates 0 to 39, so a row's fold is theirs
    observations = Observations(index, y, torch.zeros(80).long())
    found = predict(Evidence(x, observations, model.predictions, streams.runs(0, 1), unseen), 0.95)
    for name, column in model.predict().columns().items():
        own = getattr(found, name)[0].numpy()
        own = own * scale**2 if name in PARTS else own * scale + shift
        np.testing.assert_allclose(column, own, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_mean_of_several_values_counts_as_several():
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(2))
    rng = np.random.default_rng(2)
    truth = np.sin(2 * x[:, 0].numpy().astype(float))
    values = truth[:60, None] + 0.5 * rng.normal(size=(60, 8))
    strategy, key = Strategy.parse("lc"), streams.runs(0, 1)
    sem = values.std(1, ddof=1) / 8**0.5
    means = fit(x, measured(range(60), values.mean(1), sem, [8] * 60), key, strategy).predict().columns()
    raw = fit(x, measured(np.repeat(np.arange(60), 8), values.ravel()), key, strategy).predict().columns()
    for said in (means, raw):  # of one value, not of a mean of eight
        assert said["aleatoric"].mean() == pytest.approx(0.25, rel=0.4)
    assert np.sqrt(np.mean((means["mean"] - raw["mean"]) ** 2)) < 0.05


def test_many_measurements_are_seen_as_means(fitted, monkeypatch):
    x, rows, truth, model = fitted
    monkeypatch.setattr("aicau.campaign.model.MOST_EVIDENCE", 79)
    means = fit(x, rows, streams.runs(0, 1), Strategy.parse("pemse:direct:spread"))
    assert means.correction.left_out.shape == (1, 40)
    said, one = means.predict().columns(), model.predict().columns()
    assert np.sqrt(np.mean((said["mean"] - truth) ** 2)) < 1.3 * np.sqrt(np.mean((one["mean"] - truth) ** 2))
    assert said["aleatoric"].mean() == pytest.approx(one["aleatoric"].mean(), rel=0.5)


def test_left_out_errors_are_of_whole_candidates(fitted):
    """Against processes that are fitted anew without a candidate, with the same parameters."""
    model = fitted[-1]
    process = model.correction.process.posterior
    group = torch.arange(40).repeat_interleave(2)
    error = process.left_out_together(group)
    rows = process.rows
    for out in (0, 17):
        kept = group != out
        some = replace(rows, **{k: getattr(rows, k)[:, kept] for k in ("x", "y", "valid", "fixed", "relative")})
        without = gp.Posterior.of(process.theta, some, process.shift, process.scale)
        value = rows.y * process.scale + process.shift
        by_hand = value[0, ~kept] - without.mean(rows.x[:, ~kept])[0]
        torch.testing.assert_close(error[~kept], by_hand)
    assert model.info["out_of_fold_rmse"] == pytest.approx(float((error**2).mean().sqrt()) * model.info["scale"])


def test_after_few_measurements_the_mean_is_the_ensembles_and_a_note_says_so():
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    for points, strategy in ((4, "default"), (4, "lc"), (5, "lc")):
        rows = measured(np.repeat(np.arange(points), 2), np.arange(2.0 * points) ** 2)
        model = fit(x, rows, streams.runs(0, 1), Strategy.parse(strategy))
        said = model.predict().columns()
        if points == 4:
            assert model.note.endswith("that needs 5 measured candidates, and there are 4")
            assert np.array_equal(said["mean"], said["ensemble"])
            tau = said["epistemic"] + said["bias"] + said["aleatoric"]
            half = 1.959964 * model.info["width"] * np.sqrt(tau)
            assert said["new_high"] - said["mean"] == pytest.approx(half)
        else:
            assert model.note == ""
            assert not np.array_equal(said["mean"], said["ensemble"])


def test_a_model_kept_before_there_were_corrections_still_predicts(fitted):
    x, _, _, model = fitted
    tensors, words = model.state()
    info = json.loads(words) | {"format": 1, "width": 1.0}
    del info["correction"]
    old = {name: part for name, part in tensors.items() if not name.startswith("correction.")}
    again = Model.load(old, json.dumps(info), x)
    assert "kept by an earlier version" in again.note
    said = again.predict().columns()
    assert np.array_equal(said["mean"], said["ensemble"])
    assert np.isfinite(said["new_low"]).all()


def test_state_through_safetensors_gives_the_same_bits(fitted):
    x, _, _, model = fitted
    tensors, words = model.state()
    again = Model.load(load(save(tensors)), words, x)
    assert again.info == model.info
    whole = model.predict().columns()
    for name, value in again.predict().columns().items():
        assert np.array_equal(value, whole[name]), name
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


def test_what_the_shifts_of_plates_have_in_common_is_unknown():
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.standard_normal((200, 2))).float()
    truth = np.sin(x[:, 0].numpy().astype(float))
    index, batch = np.tile(np.arange(60), 2), np.tile(np.repeat(np.arange(4), 15), 2)
    y = truth[index] + 0.3 + np.array([0.2, 0.5, -0.4, -0.3])[batch] + 0.1 * rng.standard_normal(120)
    rows = Measured(index, y, np.full(120, np.nan), np.ones(120, dtype=np.int64), batch)
    model = fit(x, rows, streams.runs(0, 1), Strategy.parse("default"))
    assert model.info["batches"] == 4
    said = model.predict().columns()
    wide = (said["high"] - said["low"]) / 2 / float(quantile(model.correction.left_out[0], 0.95))
    left = wide**2 - model.info["batch_variance"] / 4  # what the process does not know
    assert (left > 0).all()
    ensemble = torch.from_numpy(said["ensemble"] - model.info["shift"])[None] / model.info["scale"]
    _, unknown, own = model.correction.at(x, ensemble)
    np.testing.assert_allclose(left, unknown[0] * model.info["scale"] ** 2, rtol=1e-6)
    np.testing.assert_allclose(
        said["aleatoric"], own[0] * model.info["scale"] ** 2 + model.info["batch_variance"], rtol=1e-6
    )
    # The plates lie 0.3 higher than the truth, and nobody can know; the interval allows for it.
    assert np.mean((truth >= said["low"]) & (truth <= said["high"])) > 0.8


@pytest.mark.parametrize("ensemble", ["process", "auto"])
def test_models_that_are_no_networks_keep_what_they_say_of_the_pool(fitted, ensemble):
    x, rows, truth, _ = fitted
    model = fit(x, rows, streams.runs(0, 1), Strategy.parse("pemse:direct:spread"), ensemble=ensemble)
    said = model.predict().columns()
    assert np.mean((said["mean"] - truth) ** 2) < 0.1 * truth.var()
    assert model.ensemble.unseen.sum(1).tolist() == [[1] * 40]
    tensors, words = model.state()
    again = Model.load(load(save(tensors)), words, x)
    assert again.info == model.info
    for name, value in again.predict(np.array([3, 399])).columns().items():
        np.testing.assert_allclose(value, said[name][[3, 399]], rtol=1e-6, err_msg=name)
    assert type(again.lesson.ensemble) is type(model.lesson.ensemble) is type(ENSEMBLES[ensemble]())


def test_a_kept_model_can_be_trained_once_more_as_it_was(fitted):
    x, _, _, model = fitted
    tensors, words = model.state()
    lesson = Model.load(load(save(tensors)), words, x).lesson
    assert lesson.index.shape == lesson.y.shape == (1, 40)
    again = lesson.ensemble.fit(x[lesson.index], lesson.y, streams.runs(0, 1))
    assert torch.equal(again.parameters, model.ensemble.parameters)
    older = {name: tensor for name, tensor in tensors.items() if not name.startswith("learned")}
    assert Model.load(older, words, x).lesson is None  # kept before rehearsals: the batch is spread
