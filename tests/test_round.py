"""The one round: units do not matter, plates are taken out, and everyone who runs it gets the same."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor

from aicau import MLP, Observations, Strategy, problems
from aicau.arrays import predict, query
from aicau.bias import Posterior
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.task import REGRESSION, Task
from aicau.ensembles.base import FittedFunctions
from aicau.ensembles.kernels import MLPSettings
from aicau.gp.plates import without_plates
from aicau.prediction.base import quantile
from aicau.proposal import first_batch
from aicau.round import Past, Round, round_keys
from aicau.simulation.loop import Lane, Loop, Work

QUICK = MLPSettings(max_epochs=60)
POOL = problems.type1(grid=12)
KEYS = streams.runs(0, 1)


def rows_of(shifts=(0.0,), noise=0.05, repeats=0):
    """60 measurements of the toy, the first of them `repeats` times more, dealt out to plates with these shifts."""
    index = streams.permutation(KEYS, POOL.pool.n)[:, :60]
    index = torch.cat([index, index[:, :repeats]], -1)
    own = noise * torch.randn(1, 60 + repeats, generator=torch.Generator().manual_seed(0)).double()
    plate = (torch.arange(60 + repeats) * len(shifts) // (60 + repeats))[None]
    y = POOL.truth[index] + own + torch.tensor(shifts).double()[plate]
    return Observations(index, y, torch.zeros(60 + repeats, dtype=torch.int64), plate)


def run(round, rows, word="default", m=6):
    """Batch, prediction and state of one round."""
    strategy = Strategy.parse(word, task=round.task)
    state = round.fit(POOL.pool.x, rows, KEYS)
    choice = round.choose(strategy, state, round.estimate(strategy.bias, state), m)
    return choice.selection.index[0].tolist(), round.predictor(state, strategy.bias).predict(state), state


@pytest.mark.slow
class TestUnits:
    @staticmethod
    @cache
    def plain(word):
        return run(Round(MLP(settings=QUICK)), rows_of((0.0, 1.0, -1.0), repeats=6), word)[:2]

    @pytest.mark.parametrize("word", ["default", "pemse:direct:eigen", "lc"])
    @pytest.mark.parametrize(("scale", "shift"), [(1e-20, 0.0), (1e20, 0.0), (1.0, 250.0)])
    def test_the_batch_and_the_prediction_are_the_same_in_other_units(self, word, scale, shift):
        batch, said = self.plain(word)
        rows = rows_of((0.0, 1.0, -1.0), repeats=6)
        other, moved, _ = run(Round(MLP(settings=QUICK)), replace(rows, y=rows.y * scale + shift), word)
        assert other == batch
        torch.testing.assert_close((moved.mean - shift) / scale, said.mean, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(moved.unknown / scale**2, said.unknown, rtol=1e-2, atol=1e-4)

    def test_the_paper_leaves_targets_as_they_are(self):
        rows = rows_of((0.0, 3.0))
        state = Round.paper(MLP(settings=QUICK)).fit(POOL.pool.x, rows, KEYS)
        assert torch.equal(state.observations.y, rows.y)
        assert (float(state.shift), float(state.scale), float(state.shared)) == (0.0, 1.0, 0.0)

    def test_units_count_every_point_once(self):
        index, y = torch.tensor([[0, 1, 1, 1]]), torch.tensor([[2.0, 5.0, 6.0, 7.0]]).double()
        state = Round(MLP(settings=QUICK)).fit(
            POOL.pool.x, Observations(index, y, torch.zeros(4, dtype=torch.int64)), KEYS
        )
        assert float(state.shift) == pytest.approx(4.0)  # the mean of 2 and 6
        assert float(state.scale) == pytest.approx(((4 + (1 + 4 + 9) / 3) / 2) ** 0.5)

    def test_a_past_score_is_brought_to_todays_units(self):
        """A difference of rounds whose targets had other scales is taken in the units of the present one."""
        strategy, round = Strategy.parse("lc:difference"), Round(MLP(settings=QUICK))
        state = round.fit(POOL.pool.x, rows_of(), KEYS)
        plain = round.choose(strategy, state, None, 1).plain
        twice = Past(plain, 2 * state.scale)
        choice = round.choose(strategy, state, None, 1, past=twice, round=2)
        torch.testing.assert_close(choice.alpha, 3 * plain.alpha)  # four times what it was, less itself
        assert torch.equal(round.choose(strategy, state, None, 1, past=twice, round=1).alpha, plain.alpha)


class TestPlates:
    SHIFTS = (1.0, -1.5, 0.5, 2.0, -2.0, 0.3)
    MOVED = (1.0, -1.5, 3.5, 2.0, -2.0, 0.3)  # one plate by 3

    def test_what_a_plate_adds_is_found(self):
        y, shared = without_plates(POOL.pool.x, rows_of(self.SHIFTS))
        clean = rows_of().y
        error = y - clean
        assert float(error.std()) < 0.1
        assert float(error.mean()) == pytest.approx(np.mean(self.SHIFTS), abs=0.1)  # common to all: nobody can tell
        assert float(shared) == pytest.approx(np.var(self.SHIFTS, ddof=1), rel=0.5)
        alone = rows_of((4.0,))
        y, shared = without_plates(POOL.pool.x, alone)
        assert torch.equal(y, alone.y)  # one plate only
        assert float(shared) == 0

    def test_a_shift_of_one_plate_changes_next_to_nothing(self):
        round = Round(MLP())
        batch, said, _ = run(round, rows_of(self.SHIFTS))
        other, moved, _ = run(round, rows_of(self.MOVED))
        assert other[0] == batch[0]
        assert len(set(batch) & set(other)) >= 4
        change = moved.mean - said.mean
        assert float(change.mean()) == pytest.approx(3 / 6, abs=0.05)  # in common with all plates: a sixth
        assert float((change - change.mean()).abs().max()) < 0.05
        away = said.mean - said.mean.mean() - (POOL.truth - POOL.truth.mean())
        assert float((away**2).mean().sqrt()) < 0.15
        inside = (said.low <= POOL.truth) & (POOL.truth <= said.high)
        assert float(inside.double().mean()) > 0.9

    def test_without_it_the_truth_is_missed(self):
        _, said, _ = run(Round(MLP(), plates=False), rows_of(self.SHIFTS))
        away = said.mean - said.mean.mean() - (POOL.truth - POOL.truth.mean())
        assert float((away**2).mean().sqrt()) > 0.3

    def test_labels_and_counts_are_never_shifted(self):
        rows = rows_of((0.0, 5.0))
        counts = replace(rows, y=rows.y.abs().round())
        task = Task("count")
        state = Round(MLP(settings=QUICK, task=task), task).fit(POOL.pool.x, counts, KEYS)
        torch.testing.assert_close(state.in_units(state.observations.y), counts.y)
        assert float(state.shared) == 0


def test_a_prediction_equals_a_dense_gaussian_process():
    """Mean, variance of the truth, noise and ends of intervals, from the fitted parameters by plain linear algebra."""
    rows = rows_of((0.0, 1.0, -1.0), noise=0.2, repeats=12)
    round = Round(MLP(settings=QUICK))
    state = round.fit(POOL.pool.x, rows, KEYS)
    predictor = replace(round.predictor(state, Posterior(target="truth")), combination=None)  # before it is combined
    said, fitted = predictor.predict(state), predictor.correction.process
    theta = fitted.posterior.theta[0].numpy()
    size, length, own, shared, fades = np.exp([theta[0], 0, theta[3], theta[4], theta[5]])
    length = np.exp(theta[1:3])
    x = POOL.pool.coordinates.numpy()
    at = rows.index[0].numpy()

    def kernel(a, b):
        return size * np.exp(-0.5 * (((a[:, None] - b) / length) ** 2).sum(-1)) + 10.0  # an unknown mean, variance 10

    apart = np.sqrt(((x[at][:, None] - x[at]) ** 2).sum(-1))
    together = rows.batch[0][:, None].numpy() == rows.batch[0].numpy()
    noise = own * fitted.posterior.rows.relative[0].numpy()
    whole = kernel(x[at], x[at]) + shared * together * np.exp(-apart / fades) + np.diag(noise)
    whole += np.diag(fitted.posterior.rows.fixed[0].numpy())
    shift, scale = float(fitted.posterior.shift), float(fitted.posterior.scale)
    y = (state.observations.y[0].numpy() - shift) / scale
    cross = kernel(x, x[at])
    mean = (cross @ np.linalg.solve(whole, y)) * scale + shift
    variance = (size + 10.0 - (cross * np.linalg.solve(whole, cross.T).T).sum(-1)) * scale**2
    unit, plate = float(state.scale), float(state.shared)
    np.testing.assert_allclose(said.mean.numpy(), mean * unit + float(state.shift), rtol=1e-6, atol=1e-8)
    unknown = variance + plate / 3  # three plates, whose common part nobody can tell from the truth
    np.testing.assert_allclose(said.unknown.numpy(), unknown * unit**2, rtol=1e-5, atol=1e-9)
    members = state.predictions[0].double().numpy()
    np.testing.assert_allclose(said.epistemic.numpy(), members.var(0) * unit**2, rtol=1e-4, atol=1e-9)
    away = (members.mean(0) - mean) ** 2 + unknown
    np.testing.assert_allclose(said.bias.numpy(), away * unit**2, rtol=1e-4, atol=1e-8)
    q = quantile(predictor.correction.left_out[0], 0.9)
    np.testing.assert_allclose(replace(said, level=0.9).low.numpy(), said.mean - q * said.unknown.sqrt(), rtol=1e-9)
    wide = (said.unknown + said.aleatoric).sqrt()
    np.testing.assert_allclose(replace(said, level=0.9).new_high.numpy(), said.mean + q * wide, rtol=1e-9)
    common = (float(fitted.shared) + plate) * unit**2  # what a new plate adds
    factor = fitted.variance_at(torch.from_numpy(x)[None])[0].numpy() / (own * scale**2)
    np.testing.assert_allclose(said.aleatoric.numpy(), own * scale**2 * factor * unit**2 + common, rtol=1e-6)


TASKS = [REGRESSION, Task("classification", 2), Task("count")]


def measured(task, repeats):
    rows = rows_of((0.0, 1.0, -1.0), repeats=repeats)
    if task.squared:
        return rows
    return replace(rows, y=(rows.y > 0).double() if task.probabilities else (3 + 2 * rows.y).round().clamp_min(0))


SLOW = pytest.mark.slow  # `make check` has both at once


@pytest.mark.slow
@pytest.mark.parametrize(
    ("repeats", "plates"), [(8, True), *(pytest.param(*one, marks=SLOW) for one in ((0, False), (0, True), (8, False)))]
)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_query_is_the_round_on_the_same_rows(task, repeats, plates):
    rows = measured(task, repeats)
    if not plates:
        rows = replace(rows, batch=torch.zeros_like(rows.batch))
    x = POOL.pool.x
    assert torch.equal(torch.unique(x, dim=0), x)  # so that points have the same numbers on both sides
    round = Round(MLP(settings=QUICK, task=task), task)
    strategy, keys = Strategy.parse("default", task=task), round_keys(streams.runs(5, 1), 0)
    state = round.fit(x, rows, keys)
    free = rows.counts(len(x)) == 0
    choice = round.choose(strategy, state, round.estimate(strategy.bias, state), 5, free.long())
    # The table of `query`: unmeasured points, then one line per measurement.
    open_ = free[0].nonzero()[:, 0]
    table = torch.cat([x[open_], x[rows.index[0]]]).numpy()
    y = np.concatenate([np.full(len(open_), np.nan), rows.y[0].numpy()])
    batch = np.array(["none"] * len(open_) + [f"P{int(b)}" for b in rows.batch[0]])
    how = {"batch": batch if plates else None, "ensemble": round.ensemble, "task": task, "random_state": 5}
    index, utilities = query("default", table, y, batch_size=5, return_utilities=True, **how)
    assert open_[torch.from_numpy(index)].tolist() == choice.selection.index[0].tolist()
    np.testing.assert_array_equal(utilities[0, : len(open_)], choice.alpha[0, open_].numpy())
    every = torch.cat([open_, rows.index[0]])
    own, said = round.predictor(state).predict(state, every).columns(), predict(table, y, **how).columns()
    for column, values in own.items():
        np.testing.assert_array_equal(said[column], values)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["default", "lc:difference"])
def test_a_simulation_is_the_round_on_the_same_rows(word):
    problem, keys = problems.plates(grid=10), streams.runs(2, 2)
    round, strategy = Round(MLP(settings=QUICK)), Strategy.parse(word)
    loop = Loop(Work([Lane(problem, strategy)], 12, 4, 3, keys, torch.device("cpu"), round))
    past = None
    for k in range(3):
        rows = loop.observations[0]
        state = round.fit(problem.pool.x, rows, round_keys(keys, k))
        room = problem.capacity - rows.counts(100)
        choice = round.choose(strategy, state, round.estimate(strategy.bias, state), 4, room, past=past, round=k)
        past = None if choice.plain is None else Past(choice.plain, state.scale)
        loop.advance()
        assert torch.equal(loop.observations.index[0, :, -4:], choice.selection.index)
        own = loop.fitted[0]
        assert torch.equal(own.predictions, state.predictions)
    a, b = (round.predictor(one[1:]).predict(one[1:]) for one in (own, state))  # of the last round
    assert torch.equal(a.mean, b.mean)
    assert torch.equal(a.unknown, b.unknown)


def test_known_and_pending_points_are_kept_at_a_distance():
    rows, round, strategy = rows_of(), Round(MLP(settings=QUICK)), Strategy.parse("lc:spread")
    state = round.fit(POOL.pool.x, rows, KEYS)
    first = round.choose(strategy, state, None, 1).selection.index
    pending = (rows.counts(144) > 0).scatter(-1, first, True)
    room = (~pending).long()
    second = round.choose(strategy, state, None, 1, room, pending).selection.index
    both = round.choose(strategy, state, None, 2).selection.index
    assert torch.equal(torch.cat([first, second], -1), both)  # asked in two parts or in one


def test_with_nothing_measured_the_first_batch_fills_the_space():
    none = torch.zeros(144, dtype=torch.bool)
    choice, strategy = first_batch(POOL.pool.coordinates, none, ~none, 5, KEYS)
    assert strategy.name == "farthest"
    far = torch.cdist(*[POOL.pool.coordinates[choice.selection.index[0]]] * 2)
    assert float(far[~torch.eye(5, dtype=torch.bool)].min()) > 1.5
    assert "nearest to the centre" in strategy.reason(choice, 0, 0)[0]
    assert "distance" in strategy.reason(choice, 0, 1)[0]
    empty = Observations(torch.zeros(1, 0).long(), torch.zeros(1, 0).double(), torch.zeros(0).long())
    with pytest.raises(InputError, match="nothing was measured yet"):
        Round(MLP()).fit(POOL.pool.x, empty, KEYS)


X, Y = np.linspace(0, 1, 12)[:, None], np.where(np.arange(12) < 4, 1.0, np.nan)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"X": X + 1j}, "X must be numbers: complex numbers have no order"),
        ({"y": ["a"] * 12}, "y must be numbers: could not convert"),
        ({"y": [1.0] * 4 + [pd.NA] * 8}, "y must be numbers: .* not 'NAType'"),
        ({"y": np.ones(12)}, "no candidate to choose from; in y, NaN says that a row may be chosen"),
        ({"y": Y * 1e200}, "y holds 1e[+]200, and its square is no number"),
        ({"batch_size": None}, "batch_size must be a whole number of at least 1; got None"),
        ({"batch_size": float("nan")}, "batch_size must be a whole number of at least 1; got nan"),
        ({"random_state": None}, "seed must be a whole number of 64 bits; got None"),
        ({"random_state": 2**63}, "seed must be a whole number of 64 bits; got 9223372036854775808"),
        ({"weight": -np.ones(12)}, "0 or more: 12; got -1"),
        ({"weight": np.ones(3)}, r"0 or more: 12; got shape \(3,\)"),
        ({"task": "count"}, "task is a Task, such as Task.*; got 'count'"),
        ({"ensemble": ExtraTreesRegressor()}, "an estimator of scikit-learn is no ensemble; wrap it"),
        ({"ensemble": MLP}, "an ensemble is an object such as MLP[(][)]; got <class"),
        ({"ensemble": "mlp"}, "an ensemble is an object such as MLP[(][)]; got 'mlp'"),
        ({"strategy": None}, "a strategy is a string such as 'default', or a Strategy; got None"),
        ({"task": Task("classification", 2), "ensemble": MLP()}, "2 probabilities of each .* another shape; make it"),
    ],
)
def test_arrays_that_cannot_be_meant(wrong, sentence):
    with pytest.raises(InputError, match=sentence):
        query(**({"strategy": "default", "X": X, "y": Y, "batch_size": 2} | wrong))


class Lines:
    """An ensemble whose members predict a + bx."""

    def fit(self, x, y, keys):
        def function(at):
            return torch.stack([self.a + b * at[:, 0] for b in (1.0, 1.1)])

        return FittedFunctions((function,), torch.zeros(1, 2, y.shape[-1], dtype=torch.bool))

    def __init__(self, a):
        self.a = a


def test_an_ensemble_that_predicts_what_cannot_be_is_refused():
    counts = np.where(np.arange(12) < 4, 3.0, np.nan)
    assert np.isfinite(predict(X, counts, ensemble=Lines(0.5), task=Task("count")).mean).all()
    with pytest.raises(InputError, match="predicts counts below 0; use one that cannot"):
        predict(X, counts, ensemble=Lines(-0.5), task=Task("count"))
    with pytest.raises(InputError, match="predicts NaN or infinity"):
        predict(X, Y, ensemble=Lines(np.nan))


def test_tensors_that_are_being_differentiated_are_numbers():
    x, y = torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y)
    assert query("default", x, y).tolist() == query("default", X, pd.Series(Y, dtype="Float64")).tolist()
