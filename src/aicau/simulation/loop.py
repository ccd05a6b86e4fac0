"""Many runs of the loop at once: problem → ensemble → bias → acquisition → batch → measurements, again and again.

All runs of all strategies advance together: their ensembles train in one call, their biases in one call per estimator.
Strategies are paired: run r of every strategy starts from the same points, sees the same noise at the same (round, x),
and trains from the same initial weights and folds.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from aicau.acquisition import CHANGES, Lesson, Score, View
from aicau.bias import Belief, BiasEstimator, Evidence, assess, check_finite, skill
from aicau.core import bregman, decomposition, streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.omega import Omega
from aicau.core.runs import by_run, side_by_side
from aicau.core.streams import Purpose
from aicau.core.task import VALUES
from aicau.ensembles import Ensemble, Fitted
from aicau.gp import noise
from aicau.problems import Problem
from aicau.strategy import Chooser


@dataclass(frozen=True)
class Lane:
    """One strategy on one problem; lanes of one loop share the pool, the seeds and the shapes."""

    problem: Problem
    strategy: Chooser


class Loop:
    """The state of all runs of all lanes between two rounds. Tensors carry (lane, run) in front."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        initial: int,
        batch_size: int,
        rounds: int,
        keys: Tensor,  # (runs,)
        device: torch.device,
        ensemble: Ensemble,
        correct: bool = False,
    ) -> None:
        for problem in {id(lane.problem): lane.problem for lane in lanes}.values():
            room = int(problem.capacity.clamp_max(initial + rounds * batch_size).sum())
            if initial > problem.pool.n or initial + rounds * batch_size > room:
                raise InputError(
                    f"{initial} initial points and {rounds} rounds of {batch_size} need more measurements"
                    f" than {problem.name} has room for ({problem.pool.n} points, {room} measurements)"
                )
            if not torch.equal(problem.pool.x, lanes[0].problem.pool.x):
                raise InputError("problems that are simulated together need the same pool")
            if problem.task != lanes[0].problem.task:
                raise InputError("problems that are simulated together need the same task")
        self.task = lanes[0].problem.task
        if correct and self.task != VALUES:
            raise InputError("batch effects are taken out of values only: leave out correct")
        moved = {id(lane.problem): lane.problem.to(device) for lane in lanes}
        self.lanes = [replace(lane, problem=moved[id(lane.problem)]) for lane in lanes]
        self.rounds, self.batch_size = rounds, batch_size
        self.device, self.ensemble, self.keys, self.correct = device, ensemble, keys, correct
        self.pool = self.lanes[0].problem.pool.to(device)
        self.truth = torch.stack([lane.problem.truth for lane in self.lanes]).to(device)
        self.capacity = torch.stack([lane.problem.capacity for lane in self.lanes]).to(device)
        # Lanes of one problem measure together, and start from the same model.
        self.groups: dict[int, list[int]] = {}
        for at, lane in enumerate(self.lanes):
            self.groups.setdefault(id(lane.problem), []).append(at)
        self.round = 0
        self.seconds: dict[str, float] = {}
        self.lane_seconds = [0.0] * len(lanes)  # choosing, with the lane's part of what its bias estimator took
        self.mse: list[Tensor] = []  # (lane, run) per round
        self.history: dict[int, list[Score]] = {}  # the last plain scores of lanes that look at changes
        self.fitted: Fitted | None = None  # (lane, run): the ensembles of the last round
        self.learned = torch.zeros(0)  # (lane, run, l): the values they were trained on
        start = streams.permutation(streams.fold(keys, Purpose.INITIAL), self.pool.n)[:, :initial]
        empty = torch.zeros(len(lanes), len(keys), 0, device=device)
        self.observations = Observations(empty.long(), empty.double(), torch.zeros(0, dtype=torch.int64, device=device))
        self._measure(start.expand(len(lanes), *start.shape), 0)

    @property
    def done(self) -> bool:
        return self.round > self.rounds

    def advance(self) -> None:
        """Fit the ensembles of this round, record their error, and, before the last round, choose and measure."""
        keys = streams.fold(self.keys, self.round).to(self.device)
        with self._clock("ensembles"):
            predictions = self._fit(keys)
        self.mse.append(self._error(predictions))
        if self.round < self.rounds:
            batch = self._choose(predictions, keys)
            with self._clock("measuring"):
                self._measure(batch, self.round + 1)
        self.round += 1

    @contextmanager
    def _clock(self, part: str) -> Iterator[None]:
        """Where the time goes; on CUDA a part ends when the device has finished it."""
        begin = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - begin

    @contextmanager
    def _clock_lanes(self, members: Sequence[int]) -> Iterator[None]:
        """Time shared equally between lanes; estimators that run side by side on CUDA are timed by their launches."""
        begin = time.perf_counter()
        yield
        for at in members:
            self.lane_seconds[at] += (time.perf_counter() - begin) / len(members)

    def _fit(self, keys: Tensor) -> Tensor:  # (lanes, R, K, n)
        index = self.observations.index
        y = noise.correct(self.pool.x, self.observations) if self.correct else self.observations.y
        self.learned = y
        firsts = [members[0] for members in self.groups.values()]
        if self.round == 0:
            index, y = index[firsts], y[firsts]
        self.fitted = self.ensemble.fit(self.pool.x[index], y, keys.expand(index.shape[:-1]))
        predictions = self.fitted.predict(self.pool.x)
        if self.round > 0:
            return predictions
        group = {at: g for g, members in enumerate(self.groups.values()) for at in members}
        place = [group[at] for at in range(len(self.lanes))]
        self.fitted = self.fitted[place]
        return predictions[place]

    def _error(self, predictions: Tensor) -> Tensor:  # (lanes, R)
        def error(some: Tensor, truth: Tensor) -> tuple[Tensor]:
            if self.task == VALUES:
                return (((decomposition.mean(some).double() - truth) ** 2).mean(-1),)
            d = bregman.make(self.task.divergence)
            return (bregman.between(d, truth, bregman.mean_of(d, self.task.members(some))).mean(-1),)

        truth = self.truth[:, None].expand(*predictions.shape[:2], *self.truth.shape[1:])
        (mse,) = by_run(error, predictions.flatten(0, 1), truth.flatten(0, 1), points=self.pool.n)
        return mse.reshape(predictions.shape[:2]).cpu()

    def _choose(self, predictions: Tensor, keys: Tensor) -> Tensor:  # (lanes, R, m)
        counts = self.observations.counts(self.pool.n)
        told = self._assess(predictions, keys)
        skills = skill(self._evidence(predictions, keys, list(range(len(self.lanes)))))  # (lanes, R)
        batches = []
        with self._clock("choosing"):
            for at, lane in enumerate(self.lanes):
                allowed = counts[at] < self.capacity[at]
                view = View(
                    self.pool.coordinates,
                    allowed,
                    counts[at] > 0,
                    keys,
                    predictions[at],
                    None,
                    None if self.fitted is None else self.fitted[at],
                    self.observations[at],
                    self.pool.x,
                    self.capacity[at] - counts[at],
                    self.task,
                    lesson=Lesson(self.ensemble, self.observations.index[at], self.learned[at]),
                    skill=skills[at],
                    times=counts[at],
                ).told(told.get(at))
                history = self.history.get(at, [])
                with self._clock_lanes([at]):
                    batch, _, plain = lane.strategy.choose(view, self.batch_size, history, self.round)
                if plain is not None:
                    self.history[at] = [*history, plain][1 - max(CHANGES.values()) :]
                batches.append(batch)
        return torch.stack(batches)

    def _assess(self, predictions: Tensor, keys: Tensor) -> dict[int, Omega | Belief]:
        """Δ̂ (or a belief) of every lane that needs one: one call per estimator, for all lanes that share it."""
        sharing: dict[BiasEstimator, list[int]] = {}
        for at, lane in enumerate(self.lanes):
            if lane.strategy.bias is not None:
                sharing.setdefault(lane.strategy.bias, []).append(at)

        def estimate(estimator: BiasEstimator, members: list[int]) -> Omega | Belief:
            with self._clock_lanes(members):
                return assess(estimator, self._evidence(predictions, keys, members))

        order = sorted(sharing, key=lambda estimator: estimator.waits)
        with self._clock("bias"):
            estimates = side_by_side([partial(estimate, one, sharing[one]) for one in order], self.device)
        found: dict[int, Omega | Belief] = {}
        for estimator, one in zip(order, estimates, strict=True):
            check_finite(estimator, one)
            found.update({at: one[i] for i, at in enumerate(sharing[estimator])})
        return found

    def _evidence(self, predictions: Tensor, keys: Tensor, members: list[int]) -> Evidence:
        assert self.fitted is not None
        return Evidence(
            self.pool.x,
            self.observations[members],
            predictions[members],
            keys.expand(len(members), -1),
            self.fitted.unseen[members],
            partial(self._oracle, members),
            self.task,
        )

    def _oracle(self, members: list[int], count: int) -> Tensor:  # (len(members), R, n); (…, n, c) for classes
        """Perfect information: the truth without noise, else the mean of whole realisations, shared by its lanes."""
        keys = streams.fold(streams.fold(self.keys, Purpose.REALISATIONS), self.round)
        known: dict[int, Tensor] = {}
        for at in members:
            problem = self.lanes[at].problem
            if id(problem) not in known:
                known[id(problem)] = problem.known(count, keys.to(problem.truth.device)).to(self.device)
        return torch.stack([known[id(self.lanes[at].problem)] for at in members])

    def _measure(self, batch: Tensor, round: int) -> None:  # (lanes, R, m)
        batch = batch.to(self.device)
        y = torch.empty(batch.shape, dtype=torch.double, device=self.device)
        together = torch.empty_like(batch)
        for members in self.groups.values():
            problem = self.lanes[members[0]].problem
            home = problem.truth.device
            history = self.observations[members].to(home)
            values, where = problem.draw(batch[members].to(home), history, self.keys.to(home), round)
            y[members], together[members] = values.to(self.device), where.to(self.device)
        self.observations = self.observations.append(batch, y, round, together)

    def state(self) -> dict[str, Tensor]:
        """All that the next round needs, as plain tensors."""
        o = self.observations
        tensors = {
            "index": o.index,
            "y": o.y,
            "rounds": o.round,
            "batch": o.batch,
            "mse": torch.stack(self.mse) if self.mse else o.y[:0],
        }
        for lane, scores in self.history.items():
            for k, score in enumerate(scores):
                at = f"history/{lane}/{k}/"
                tensors[at + "alpha"] = score.alpha
                if score.omega is not None:
                    tensors |= {at + "factor": score.omega.factor, at + "signs": score.omega.weights}
                    if score.omega.extra is not None:
                        tensors[at + "extra"] = score.omega.extra
        return {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue where `state` was taken."""
        state = {name: tensor.to(self.device) for name, tensor in state.items()}
        self.observations = Observations(state["index"], state["y"], state["rounds"], state["batch"])
        self.mse = list(state["mse"].cpu().unbind(0))
        self.round = len(self.mse)
        for at in sorted(name.removesuffix("alpha") for name in state if name.endswith("/alpha")):
            omega = None
            if at + "factor" in state:
                omega = Omega(state[at + "factor"], state[at + "signs"], state.get(at + "extra"))
            self.history.setdefault(int(at.split("/")[1]), []).append(Score(state[at + "alpha"], omega))
