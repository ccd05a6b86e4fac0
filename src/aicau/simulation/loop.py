"""Many runs of the round at once: problem → round → measurements, again and again.

All runs of all strategies advance together: their ensembles train in one call, their biases in one call per estimator.
Strategies are paired: run r of every strategy starts from the same points, sees the same noise at the same (round, x),
and trains from the same initial weights and folds.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.acquisition import Score
from aicau.bias import Belief, BiasEstimator
from aicau.core import bregman, checks, streams
from aicau.core.engine import Engine
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.omega import Omega
from aicau.core.runs import by_run, side_by_side
from aicau.core.streams import Purpose
from aicau.prediction import State
from aicau.problems import Problem
from aicau.round import Past, Round, round_keys
from aicau.strategy import Chooser


@dataclass(frozen=True)
class Lane:
    """One strategy on one problem; lanes of one loop share the pool, the seeds and the shapes."""

    problem: Problem
    strategy: Chooser


class Ran(NamedTuple):
    """What came out of some runs."""

    mse: NDArray[np.float64]  # (lane, run, round)
    queried: NDArray[np.int64]  # (lane, run, rows)
    seconds: Mapping[str, float]  # by what took them
    choosing: list[float]  # seconds of each lane


@dataclass(frozen=True)
class Work:
    """All that decides the numbers of a simulation; its runs may be divided and computed anywhere."""

    lanes: Sequence[Lane]
    initial: int
    batch_size: int
    rounds: int
    keys: Tensor  # (runs,)
    device: torch.device | str
    how: Round

    def run(self, watch: Callable[["Loop"], object] = lambda loop: None) -> Ran:
        """All rounds; `watch` sees the loop before the first round and after every round."""
        loop = Loop(self)
        watch(loop)
        while not loop.done:
            loop.advance()
            watch(loop)
        mse, queried = torch.stack(loop.mse, -1).numpy(), loop.observations.index.cpu().numpy()
        return Ran(mse, queried, loop.seconds, loop.lane_seconds)


def compute(
    works: Sequence[Work],  # with as many runs each
    engine: Engine,
    tell: Callable[[int, int], object],  # (number of the work, its rounds that are done)
    watch: Callable[[int, "Loop"], object] = lambda at, loop: None,  # sees every round computed in this process
) -> Iterator[Ran]:
    """Each work in order. Elsewhere than in this process its runs are divided, and `tell` hears of every part."""

    def see(at: int, loop: Loop) -> None:
        watch(at, loop)
        tell(at, loop.round)

    if engine.here:
        for at, work in enumerate(works):
            yield work.run(partial(see, at))
        return
    slices = engine.slices(len(works[0].keys))
    parts = [replace(work, keys=work.keys[slice(*runs)]) for work in works for runs in slices]
    results = engine.over(Work.run, parts, str(works[0].device))
    for at, work in enumerate(works):
        some, seconds = list[Ran](), defaultdict[str, float](float)
        for part in islice(results, len(slices)):
            some.append(part)
            for name, spent in part.seconds.items():
                seconds[name] += spent
            tell(at, len(some) * (work.rounds + 1) // len(slices))
        mse, queried, _, choosing = zip(*some, strict=True)
        yield Ran(np.concatenate(mse, 1), np.concatenate(queried, 1), seconds, np.sum(choosing, 0).tolist())


class Loop:
    """The state of all runs of all lanes between two rounds. Tensors carry (lane, run) in front."""

    def __init__(self, work: Work) -> None:
        self.work, self.how, self.device = work, work.how, checks.pick_device(work.device)
        problems = {id(lane.problem): lane.problem for lane in work.lanes}
        for problem in problems.values():
            wanted = work.initial + work.rounds * work.batch_size
            room = int(problem.capacity.clamp_max(wanted).sum())
            if work.initial > problem.pool.n or wanted > room:
                raise InputError(
                    f"{work.initial} initial points and {work.rounds} rounds of {work.batch_size} need more"
                    f" measurements than {problem.name} has room for ({problem.pool.n} points, {room} measurements)"
                )
            if not torch.equal(problem.pool.x, work.lanes[0].problem.pool.x):
                raise InputError("problems that are simulated together need the same pool")
            if problem.task != work.how.task:
                raise InputError(f"{problem.name} is {problem.task.name}, and the round is {work.how.task.name}")
        moved = {key: problem.to(self.device) for key, problem in problems.items()}
        self.lanes = [replace(lane, problem=moved[id(lane.problem)]) for lane in work.lanes]
        self.pool = self.lanes[0].problem.pool.to(self.device)
        self.truth = torch.stack([lane.problem.truth for lane in self.lanes]).to(self.device)
        self.capacity = torch.stack([lane.problem.capacity for lane in self.lanes]).to(self.device)
        # Lanes of one problem measure together, and start from the same model.
        self.groups = defaultdict[int, list[int]](list)
        for at, lane in enumerate(self.lanes):
            self.groups[id(lane.problem)].append(at)
        self.round = 0
        self.seconds = defaultdict[str, float](float)
        self.lane_seconds = [0.0] * len(self.lanes)  # choosing, with the lane's part of what its bias estimator took
        self.mse: list[Tensor] = []  # (lane, run) per round
        self.past: dict[int, Past] = {}  # the last scores of lanes that look at differences
        self.fitted: State | None = None  # (lane, run): the fitted round
        start = streams.permutation(streams.fold(work.keys, Purpose.INITIAL), self.pool.n)[:, : work.initial]
        empty = torch.zeros(len(self.lanes), len(work.keys), 0, device=self.device)
        self.observations = Observations(empty.long(), empty.double(), empty[0, 0].long())
        self._measure(start.expand(len(self.lanes), *start.shape), 0)

    @property
    def done(self) -> bool:
        return self.round > self.work.rounds

    def advance(self) -> None:
        """Fit the ensembles of this round, record their error, and, before the last round, choose and measure."""
        with self._clock("ensembles"):
            self.fitted = self._fit(round_keys(self.work.keys, self.round).to(self.device))
        self.mse.append(self._error(self.fitted))
        if self.round < self.work.rounds:
            batch = self._choose(self.fitted)
            with self._clock("measuring"):
                self._measure(batch, self.round + 1)
        self.round += 1

    @contextmanager
    def _clock(self, part: str = "", lanes: Sequence[int] = ()) -> Iterator[None]:
        """Time spent on a part, or shared equally by lanes.

        On CUDA a part ends when the device has finished it; for lanes only the launches are timed.
        """
        begin = time.perf_counter()
        yield
        if part and self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        spent = time.perf_counter() - begin
        if part:
            self.seconds[part] += spent
        for at in lanes:
            self.lane_seconds[at] += spent / len(lanes)

    def _fit(self, keys: Tensor) -> State:  # (R,)
        if self.round > 0:
            return self.how.fit(self.pool.x, self.observations, keys.expand(len(self.lanes), -1))
        firsts = [members[0] for members in self.groups.values()]
        state = self.how.fit(self.pool.x, self.observations[firsts], keys.expand(len(firsts), -1))
        group = {at: g for g, members in enumerate(self.groups.values()) for at in members}
        return state[[group[at] for at in range(len(self.lanes))]]

    def _error(self, state: State) -> Tensor:  # (lanes, R)
        """Mean over the pool of D[μ_Y‖F̄] under the task's divergence: for values the MSE of the members' mean."""
        task, d = self.how.task, bregman.make(self.how.task.divergence)

        def error(some: Tensor, truth: Tensor, *unit: Tensor) -> Tensor:
            shift, scale = (part[:, None, None, None] for part in unit)
            centre = bregman.mean_of(d, task.members(some) * scale + shift)
            return bregman.between(d, task.vectors(truth), centre).mean(-1)

        truth = self.truth[:, None].expand(*state.keys.shape, *self.truth.shape[1:])
        parts = (state.predictions, truth, state.shift, state.scale)
        return by_run(error, *parts, points=self.pool.n, lead=2).cpu()

    def _choose(self, state: State) -> Tensor:  # (lanes, R, m)
        estimates = self._assess(state)
        batches = []
        with self._clock("choosing"):
            for at, lane in enumerate(self.lanes):
                with self._clock(lanes=[at]):
                    own = state[at]
                    choice = self.how.choose(
                        lane.strategy,
                        own,
                        estimates.get(at),
                        self.work.batch_size,
                        self.capacity[at] - own.observations.counts(self.pool.n),
                        past=self.past.get(at),
                        round=self.round,
                        frame=self.pool.coordinates,
                    )
                if choice.plain is not None:
                    self.past[at] = Past(choice.plain, own.scale)
                batches.append(choice.selection.index)
        return torch.stack(batches)

    def _assess(self, state: State) -> dict[int, Omega | Belief]:
        """Δ̂ (or a belief) of every lane that needs one: one call per estimator, for all lanes that share it."""
        sharing = defaultdict[BiasEstimator, list[int]](list)
        for at, lane in enumerate(self.lanes):
            if lane.strategy.bias is not None:
                sharing[lane.strategy.bias].append(at)

        def estimate(estimator: BiasEstimator, members: list[int]) -> Omega | Belief:
            with self._clock(lanes=members):
                found = self.how.estimate(estimator, state[members], partial(self._oracle, members))
                assert found is not None
                return found

        order = sorted(sharing, key=lambda estimator: estimator.waits)
        with self._clock("bias"):
            found = side_by_side([partial(estimate, one, sharing[one]) for one in order], self.device)
        return {at: one[i] for key, one in zip(order, found, strict=True) for i, at in enumerate(sharing[key])}

    def _oracle(self, members: list[int], count: int) -> Tensor:  # (len(members), R, n); (…, n, c) for classes
        """Perfect information: the truth without noise, else the mean of whole realisations, shared by its lanes."""
        keys = streams.fold(streams.fold(self.work.keys, Purpose.REALISATIONS), self.round)
        problems = [self.lanes[at].problem for at in members]
        known = {
            key: problem.known(count, keys.to(problem.truth.device)).to(self.device)
            for key, problem in {id(problem): problem for problem in problems}.items()
        }
        return torch.stack([known[id(problem)] for problem in problems])

    def _measure(self, batch: Tensor, round: int) -> None:  # (lanes, R, m)
        batch = batch.to(self.device)
        y = torch.empty(batch.shape, dtype=torch.double, device=self.device)
        together = torch.empty_like(batch)
        for members in self.groups.values():
            problem = self.lanes[members[0]].problem
            home = problem.truth.device
            history = self.observations[members].to(home)
            values, where = problem.draw(batch[members].to(home), history, self.work.keys.to(home), round)
            y[members], together[members] = values.to(self.device), where.to(self.device)
        self.observations = self.observations.append(batch, y, round, together)

    def state(self) -> dict[str, Tensor]:
        """All that the next round needs, as plain tensors."""
        o = self.observations
        tensors = {"index": o.index, "y": o.y, "rounds": o.round, "batch": o.batch}
        tensors["mse"] = torch.stack(self.mse) if self.mse else o.y[:0]
        for lane, past in self.past.items():
            matrix = {name: getattr(past.score.omega, name, None) for name in ("factor", "signs", "extra")}
            parts = {"alpha": past.score.alpha, "scale": past.scale, **matrix}
            tensors |= {f"past/{lane}/{name}": part for name, part in parts.items() if part is not None}
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
            self.past[int(at.split("/")[1])] = Past(Score(state[at + "alpha"], omega), state[at + "scale"])
