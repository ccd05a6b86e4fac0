"""The combination: weights by hand, folds by point, models against scikit-learn, round trips, intervals."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from scipy import stats
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from aicau import gp
from aicau.core import streams
from aicau.core.observations import Observations
from aicau.ensembles import MLP
from aicau.ensembles.kernels import MLPSettings, reference, trees_mean
from aicau.prediction import calibration, combination
from aicau.prediction.models import MODELS, Points, ProcessModel, TreesModel, knots_of, process
from aicau.prediction.models.ranks import ranked
from aicau.prediction.models.warped import WarpedModel, bend, best_power, unbend
from aicau.prediction.regression import ValuePredictor
from aicau.round import Round

NETWORKS = MLP(settings=MLPSettings(max_epochs=60))


def points(rows=40, features=3, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    at = rng.standard_normal((rows, features))
    y = np.sin(2 * at[:, 0]) + noise * rng.standard_normal(rows)
    count = rng.integers(1, 4, rows).astype(float)
    parts = [torch.from_numpy(part) for part in (at, y, count, np.arange(rows) % 5)]
    return Points(*parts, seed=seed, knots=knots_of(parts[0]))


def fitted(x, index, y, seed=0, ensemble=NETWORKS, batch=None):
    index, y = torch.as_tensor(index)[None], torch.as_tensor(y, dtype=torch.double)[None]
    rows = Observations(index, y, torch.zeros_like(index[0]), batch)
    state = Round(ensemble).fit(torch.as_tensor(x), rows, streams.runs(seed, 1))
    return state, ValuePredictor.fit(state)


# Weights and calibration by hand


def test_weights_by_hand():
    # 1/1, 1/4 and 1/16 of squared inverse errors; they sum to 21/16.
    found = combination.weigh({"a": 1.0, "b": 2.0, "c": 4.0}, 2.0)
    assert found == {"a": pytest.approx(16 / 21), "b": pytest.approx(4 / 21), "c": pytest.approx(1 / 21)}
    assert combination.weigh({"a": 3e-40, "b": 3e-40}) == {"a": 0.5, "b": 0.5}
    assert combination.weigh({"a": 0.0, "b": 1.0, "c": 0.0}) == {"a": 0.5, "b": 0.0, "c": 0.5}


def test_mean_and_disagreement_by_hand():
    found = {"a": torch.tensor([1.0, 2.0]).double(), "b": torch.tensor([5.0, 2.0]).double()}
    mean, apart = combination.combined(found, {"b": 0.25, "a": 0.75})
    assert mean.tolist() == [2.0, 2.0]
    assert apart.tolist() == [3.0, 0.0]  # 0.75 · 1 + 0.25 · 9


def test_a_sum_does_not_depend_on_the_order_of_names():
    """A kept model has its weights sorted by name; a fresh one as they were fitted."""
    generator = torch.Generator().manual_seed(0)
    found = {name: torch.rand(200, generator=generator, dtype=torch.double) for name in "cadbe"}
    weights = {"c": 0.1, "a": 0.3, "d": 0.15, "b": 0.25, "e": 0.2}
    fresh, kept = (combination.combined(found, w) for w in (weights, dict(sorted(weights.items()))))
    assert all(torch.equal(one, other) for one, other in zip(fresh, kept, strict=True))


def test_scales_find_the_variances_errors_were_drawn_with():
    rng = np.random.default_rng(0)
    local, own, count = rng.uniform(0.5, 5, 600), np.full(600, 2.0), rng.integers(2, 5, 600).astype(float)
    y = np.linspace(-1, 1, 600)
    wide = np.exp(0.8 * y)
    noise = wide * 0.7 * own
    error = rng.standard_normal(600) * np.sqrt(wide * (2 * local + 0.3 * own) + noise / count)
    squares = noise * rng.chisquare(count - 1)
    parts = (error, y, y, count, local, own, squares, np.ones(600))
    scales = calibration.fit(calibration.Errors(*map(torch.from_numpy, parts)), torch.tensor(1.0).double())
    a, _, c, _ = scales.parameters.tolist()
    assert np.exp(a) == pytest.approx(2, rel=0.3)
    assert c == pytest.approx(0.8, abs=0.2)
    unknown, said = scales.parts(*(torch.tensor([v]).double() for v in (0.0, 3.0, 2.0)))
    assert float(said) == pytest.approx(1.4, rel=0.2)
    assert float(unknown) == pytest.approx(6.6, rel=0.2)


def test_heights_and_shares_by_hand():
    values = torch.tensor([0.0, 1.0, 3.0]).double()
    assert calibration.height(torch.tensor([-9.0, 0.0, 0.5, 2.0, 9.0]).double(), values).tolist() == [
        -1,
        -1,
        -0.5,
        0.5,
        1,
    ]
    fresh, seen = torch.tensor([[0.1], [0.2], [0.9]]).double(), torch.tensor([[0.0], [1.0]]).double()
    # 2 and 1 candidates, and half of the mean number each: 2.75 and 1.75 over 2.25.
    assert calibration.shares(fresh, seen).tolist() == pytest.approx([11 / 9, 7 / 9])
    assert calibration.shares(fresh[:0], seen).tolist() == [1.0, 1.0]


def test_an_error_is_standardised_by_scales_of_other_folds():
    rng = np.random.default_rng(0)
    fold = torch.arange(100) % 5
    error = rng.standard_normal(100) * np.where(fold == 2, 3.0, 1.0)
    y, one = np.linspace(-1, 1, 100), np.ones(100)
    rows = calibration.Errors(*map(torch.from_numpy, (error, 0 * y, y, one, one, 0.01 * one, 0 * y, one)))
    unknown, noise = calibration.without_folds(fold, rows, torch.tensor(0.01).double())
    variance = unknown + noise
    others = float((rows.error[fold != 2] ** 2).mean())
    torch.testing.assert_close(variance[fold == 2], torch.full((20,), others).double(), rtol=0.1, atol=0)
    assert float(variance[fold == 0][0]) > 2 * others  # knows of the fold with large errors
    changed = rows._replace(error=torch.where(fold == 2, 9 * rows.error, rows.error))
    again = calibration.without_folds(fold, changed, torch.tensor(0.01).double())[0]
    assert torch.equal(again[fold == 2], unknown[fold == 2])
    assert not torch.equal(again[fold == 0], unknown[fold == 0])


def test_measured_points_are_pulled_as_far_as_their_noise_allows():
    y, outside = torch.tensor([1.0, -1.0]).double(), torch.zeros(2).double()
    halfway = 0.5 * y
    unknown, noise = torch.tensor([3.0, 1.0]).double(), torch.ones(2).double()
    # The models went half of the way; three quarters and a half are right.
    assert combination.pulls(y, outside, halfway, unknown, noise).tolist() == [0.5, 0.0]
    assert combination.pulls(y, y, y, unknown, noise).tolist() == pytest.approx([0.75, 0.5])


# Models


@pytest.fixture
def to_the_end(monkeypatch):
    """Optimisers that do not stop early: where they start no longer matters."""
    usual = process.settings
    monkeypatch.setattr(process, "settings", lambda *given: replace(usual(*given), tolerance=1e-15))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("to_the_end")
def test_a_model_round_trips_and_does_not_see_the_fold_it_leaves_out(name):
    own = points()
    model, out = MODELS[name].fit(own)
    at = torch.randn(50, 3, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    again = MODELS[name].load(load(save({key: part.contiguous() for key, part in model.tensors().items()})))
    assert torch.equal(again.mean(at), model.mean(at))
    changed = replace(own, y=torch.where(own.fold == 2, own.y + 1e-3, own.y))
    if name != "warped":  # its power is chosen with all rows
        found = MODELS[name].fit(changed)[1].mean
        torch.testing.assert_close(found[own.fold == 2], out.mean[own.fold == 2], rtol=1e-4, atol=1e-5)
        assert not torch.equal(found[own.fold == 1], out.mean[own.fold == 1])
    assert float(((out.mean - own.y) ** 2).mean()) < (1.2 if name == "mean" else 0.9) * float(own.y.var())
    assert torch.equal(MODELS[name].fit(own)[1].mean, out.mean)  # same seed, same bits


@pytest.mark.parametrize(("name", "kernel"), [("rbf", RBF), ("matern", Matern)])
def test_a_process_is_scikit_learns_with_the_same_parameters(name, kernel):
    own = points()
    posterior = gp.Process(shape=name, noise=True).fit(
        own.at[None], own.y[None], torch.ones(1, 40).bool(), 1 / own.count[None], most=None
    )
    size, *lengths, noise = posterior.theta[0].exp().tolist()
    words = {} if kernel is RBF else {"nu": 2.5}
    parts = ConstantKernel(size, "fixed") * kernel(lengths, "fixed", **words)
    alpha = noise / own.count.numpy() + 1e-6
    truth = GaussianProcessRegressor(parts, alpha=alpha, normalize_y=True).fit(own.at.numpy(), own.y.numpy())
    at = torch.randn(30, 3, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    mean, spread = truth.predict(at.numpy(), return_std=True)
    model = ProcessModel(posterior)
    np.testing.assert_allclose(model.mean(at), mean, atol=1e-8)
    np.testing.assert_allclose(model.both(at)[1], spread**2, atol=1e-8)


def test_a_trend_is_a_linear_kernel_and_folds_are_left_out_exactly(monkeypatch):
    monkeypatch.setattr(process, "HONEST", 0)
    own = points(30)
    model, out = MODELS["process"].fit(own)
    post = model.posterior
    size, *lengths, noise = post.theta[0].exp().tolist()
    x, y = own.at.numpy(), ((own.y - post.shift) / post.scale).numpy()
    between = size * Matern(lengths, nu=2.5)(x) + 10 + x @ x.T / 3
    whole = between + np.diag(noise / own.count.numpy() + 1e-6)
    for fold in (0, 3):
        kept = own.fold.numpy() != fold
        weights = np.linalg.solve(whole[np.ix_(kept, kept)], np.c_[y[kept], between[np.ix_(kept, ~kept)]])
        mean = between[np.ix_(~kept, kept)] @ weights[:, 0] * float(post.scale) + float(post.shift)
        left = between[np.ix_(~kept, ~kept)] - between[np.ix_(~kept, kept)] @ weights[:, 1:]
        np.testing.assert_allclose(out.mean[~kept], mean, atol=1e-7)
        np.testing.assert_allclose(out.variance[~kept], np.diag(left) * float(post.scale) ** 2, atol=1e-4)


@pytest.mark.usefixtures("to_the_end")
def test_a_fold_is_predicted_by_a_process_that_was_fitted_without_it():
    own = points(40)
    _, out = MODELS["process"].fit(own)
    kept = own.fold != 3
    some = Points(own.at[kept], own.y[kept], own.count[kept], own.fold[kept], 0, own.knots)
    without, _ = MODELS["process"].fit(some)
    torch.testing.assert_close(out.mean[~kept], without.mean(own.at[~kept]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out.variance[~kept], without.both(own.at[~kept])[1], rtol=1e-3, atol=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of lengths at their bound
def test_the_process_finds_what_scikit_learns_finds():
    own = replace(points(60, 4), count=torch.ones(60).double())
    kernel = ConstantKernel() * Matern(np.ones(4), (1e-2, 1e3), nu=2.5) + WhiteKernel(0.1)
    truth = GaussianProcessRegressor(kernel, normalize_y=True).fit(own.at.numpy(), own.y.numpy())
    at = torch.randn(300, 4, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    right = np.sin(2 * at[:, 0].numpy())
    model, _ = MODELS["process"].fit(own)
    theirs = np.mean((truth.predict(at.numpy()) - right) ** 2)
    assert np.mean((model.mean(at).numpy() - right) ** 2) < 1.8 * theirs  # the trend costs a little here


@pytest.mark.parametrize("grow", [RandomForestRegressor, ExtraTreesRegressor])
def test_trees_as_arrays_are_scikit_learns(grow):
    own = points(60)
    forest = grow(20, random_state=0).fit(own.at.float().numpy(), own.y.numpy(), sample_weight=own.count.numpy())
    model = TreesModel.of(forest)
    at = torch.randn(700, 3, generator=torch.Generator().manual_seed(1))
    np.testing.assert_allclose(model.mean(at), forest.predict(at.numpy()), rtol=1e-12, atol=1e-12)
    assert torch.equal(reference.trees_mean(at, **model.tensors()), trees_mean(at, **model.tensors()))


def test_ranks_by_hand():
    pool = torch.tensor([[0.0, 7.0], [0.0, 7.0], [1.0, 7.0], [100.0, 7.0]]).double()
    found = ranked(
        torch.tensor([[0.0, 7.0], [1.0, 7.0], [50.5, 8.0], [1e9, 0.0], [-5.0, 7.0]]).double(), knots_of(pool)
    )
    # Mean ranks 1/4, 5/8 and 7/8; halfway between the last two 3/4; a constant feature says nothing.
    assert (found[:, 0] / 12**0.5 + 0.5).tolist() == pytest.approx([0.25, 0.625, 0.75, 0.875, 0.25])
    assert found[:, 1].tolist() == pytest.approx([0.0] * 5)


def test_a_process_of_ranks_does_not_mind_how_a_feature_is_spaced():
    own = points(40, 2)
    other = own.at.exp()
    one, left = MODELS["ranks"].fit(own)
    two, right = MODELS["ranks"].fit(replace(own, at=other, knots=knots_of(other)))
    torch.testing.assert_close(left.mean, right.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(one.mean(own.at), two.mean(other), rtol=1e-4, atol=1e-4)


def test_bending_is_yeo_and_johnsons():
    y = np.linspace(-3, 4, 50)
    for power in (0.0, 0.5, 1.0, 1.7, 2.0):
        bent = bend(torch.from_numpy(y), torch.tensor(power).double())
        np.testing.assert_allclose(bent, stats.yeojohnson(y, power), atol=1e-12)
        np.testing.assert_allclose(unbend(bent, torch.tensor(power).double()), y, atol=1e-10)
    skewed = np.exp(np.random.default_rng(0).standard_normal(300))
    skewed = (skewed - skewed.mean()) / skewed.std()
    assert float(best_power(torch.from_numpy(skewed))) == pytest.approx(
        np.clip(stats.yeojohnson_normmax(skewed), 0, 2), abs=0.05
    )


def test_a_bent_process_is_better_on_a_long_tail():
    own = points(60, 2)
    tail = replace(own, y=torch.exp(3 * own.at[:, 0]))
    error = {name: float(((MODELS[name].fit(tail)[1].mean - tail.y) ** 2).mean()) for name in ("process", "warped")}
    assert error["warped"] < error["process"]
    constant, _ = WarpedModel.fit(replace(own, y=torch.full_like(own.y, 3.0)))
    assert constant.mean(own.at).tolist() == pytest.approx([3.0] * 60)


# Together


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 4))
    truth = 100 + 10 * (np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2])
    index = np.r_[np.arange(70), np.arange(20), np.arange(10)]
    y = truth[index] + rng.standard_normal(len(index))
    return x, truth, index, y, *fitted(x, index, y)


def test_the_combination_is_near_its_best_part(case):
    x, truth, _, _, state, predictor = case
    together = predictor.combination
    said = predictor.predict(state)
    at = together.frame.coordinates(torch.from_numpy(x))
    parts = [state.in_units(model.mean(at)[None])[0].numpy() for model in together.models.values()]
    today = replace(predictor, combination=None).predict(state).mean.numpy()
    errors = [np.mean((part - truth) ** 2) for part in (said.mean.numpy(), *parts)]
    assert errors[0] < 1.2 * min(errors)
    assert errors[0] < 1.35 * np.mean((today - truth) ** 2)  # not a part; on this smooth truth it is the best
    assert sum(together.weights.values()) == pytest.approx(1)
    assert predictor.figures.error**2 == pytest.approx(errors[0] + 1, rel=1)


def test_replicates_and_points_alike_are_never_split_over_folds(monkeypatch):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 2))
    x[10:20] = x[:10]  # candidates with the same features
    index = np.r_[np.arange(30), np.arange(30), np.arange(5)]
    seen = {}
    spy = SimpleNamespace(fit=lambda given: seen.setdefault("points", given) and ProcessModel.fit(given))
    monkeypatch.setitem(combination.MODELS, "process", spy)
    fitted(x, index, rng.standard_normal(len(index)))
    found = seen["points"]
    assert len(found.y) == 30  # one row per candidate, so all its replicates stay together
    assert found.count.tolist() == [3.0] * 5 + [2.0] * 25
    assert torch.equal(found.fold[:10], found.fold[10:20])
    assert found.fold.unique().tolist() == [0, 1, 2, 3, 4]


def test_state_gives_the_same_bits(case):
    state, predictor = case[-2:]
    tensors = load(save({name: part.clone().contiguous() for name, part in predictor.tensors().items()}))
    words = json.loads(json.dumps(predictor.words(), allow_nan=False))
    again = ValuePredictor.load(tensors, words, predictor.figures)
    whole = predictor.predict(state).columns()
    for name, column in again.predict(state).columns().items():
        assert np.array_equal(column, whole[name]), name
    for name, column in again.predict(state, torch.tensor([3, 399, 3])).columns().items():
        np.testing.assert_allclose(column, whole[name][[3, 399, 3]], rtol=1e-6, err_msg=name)


def test_same_seed_same_bits(case):
    x, _, index, y, state, predictor = case
    other, again = fitted(x, index, y)
    assert torch.equal(again.predict(other).mean, predictor.predict(state).mean)


@pytest.mark.slow
def test_intervals_hold_as_often_as_they_say():
    held = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((500, 4))
        truth = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
        index = np.tile(rng.choice(500, 60, replace=False), 1 + seed % 2)
        state, predictor = fitted(x, index, truth[index] + 0.3 * rng.standard_normal(len(index)), seed)
        said = replace(predictor.predict(state), level=0.9)
        new = truth + 0.3 * rng.standard_normal(500)
        held.append([(said.new_low.numpy() <= new) & (new <= said.new_high.numpy())])
        ratio = float(said.unknown.mean()) / np.mean((said.mean.numpy() - truth) ** 2)
        assert 0.3 < ratio < 3  # `unknown` is the expected squared error
    assert 0.85 < np.mean(held) < 0.95


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 8])
def test_few_points(count):
    x = np.random.default_rng(0).standard_normal((30, 2))
    state, predictor = fitted(x, np.arange(count), np.arange(count) ** 2.0)
    assert (predictor.combination is None) == (count < 5)
    for name, column in predictor.predict(state).columns().items():
        assert np.isfinite(column).all(), name


@pytest.mark.parametrize("y", [np.full(12, 4.0), np.full(12, 0.0), np.r_[np.zeros(11), 1.0], np.arange(12) % 2])
def test_constant_and_odd_targets(y):
    x = np.random.default_rng(0).standard_normal((40, 3))
    state, predictor = fitted(x, np.arange(12), y)
    said = predictor.predict(state).columns()
    assert all(np.isfinite(column).all() for column in said.values())
    if np.ptp(y) == 0:
        np.testing.assert_allclose(said["mean"], y[0], atol=0.5)


def test_many_features():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100, 128))
    state, predictor = fitted(x, np.arange(40), 3 * x[:40, 0])
    said = predictor.predict(state)
    assert bool(torch.isfinite(said.mean).all())
    assert float(said.unknown.min()) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e-20, 1e20, -1.0])
def test_the_scale_of_the_target_does_not_matter(factor):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((80, 2))
    y = np.sin(x[:30, 0]) + 0.1 * rng.standard_normal(30)
    state, predictor = fitted(x, np.arange(30), y)
    other, scaled = fitted(x, np.arange(30), factor * y)
    one, two = predictor.predict(state), scaled.predict(other)
    if factor > 0:
        np.testing.assert_allclose(two.mean / factor, one.mean, atol=0.03)  # rounding decides between equal splits
        np.testing.assert_allclose(two.unknown / factor**2, one.unknown, rtol=0.5)
    assert float(((two.mean / factor - one.mean) ** 2).mean()) < 0.1 * float(one.mean.var())
