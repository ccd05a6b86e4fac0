"""Many runs of the loop at once: problem → ensemble → bias → acquisition → batch → measurements, again and again.

All runs of all strategies advance together: their ensembles train in one call, their biases in one call per estimator.
Strategies are paired: run r of every strategy starts from the same points, sees the same noise at the same (round, x),
and trains from the same initial weights and folds.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau import checks, decomposition, streams
from aicau.acquisition import Score, View
from aicau.bias import BiasEstimator, Evidence
from aicau.ensembles import MLP, Ensemble
from aicau.errors import InputError
from aicau.observations import Observations
from aicau.omega import Omega
from aicau.problems import Problem, make
from aicau.runs import by_run
from aicau.statistics import Interval, mean_interval, paired_difference, paired_ratio
from aicau.strategy import Strategy
from aicau.streams import Purpose

Progress = Callable[[int, int], None]  # (rounds done, rounds in all)


@dataclass(frozen=True)
class Result:
    """Errors and queries of a simulation. Round 0 is the model on the initial points."""

    problem: str
    strategies: tuple[str, ...]
    mse: NDArray[np.float64]  # (strategy, run, round)
    queried: NDArray[np.int64]  # (strategy, run, rows): pool indices, the initial points first
    initial: int
    batch_size: int
    seconds: float = field(compare=False, default=0.0)

    @property
    def baseline(self) -> str:
        """What others are compared with: `random` where it took part, else the first strategy."""
        return "random" if "random" in self.strategies else self.strategies[0]

    def final(self, strategy: str) -> NDArray[np.float64]:  # (runs,)
        """MSE after the last round, per run."""
        if strategy not in self.strategies:
            raise InputError(f"{strategy!r} did not take part; took part: {', '.join(self.strategies)}")
        return self.mse[self.strategies.index(strategy), :, -1]

    def final_mse(self, strategy: str) -> Interval:
        return mean_interval(self.final(strategy))

    def paired(self, strategy: str, against: str | None = None) -> Interval:
        """Ratio of final errors, run by run (geometric mean, 95% interval)."""
        return paired_ratio(self.final(strategy), self.final(against or self.baseline))

    def paired_difference(self, strategy: str, against: str | None = None) -> Interval:
        """Difference of final errors, run by run (mean, 95% interval)."""
        return paired_difference(self.final(strategy), self.final(against or self.baseline))

    def points(self, round: int) -> int:
        """Measurements behind the model of that round."""
        return self.initial + round * self.batch_size

    def to_frame(self) -> pd.DataFrame:
        """One row per strategy, run and round: mse, and the pool indices queried to get there."""
        rows = []
        for s, name in enumerate(self.strategies):
            for run in range(self.mse.shape[1]):
                for k in range(self.mse.shape[2]):
                    start = 0 if k == 0 else self.points(k - 1)
                    ids = " ".join(str(i) for i in self.queried[s, run, start : self.points(k)])
                    rows.append((self.problem, self.initial, name, run, k, self.points(k), self.mse[s, run, k], ids))
        columns = ["problem", "initial", "strategy", "run", "round", "points", "mse", "queried"]
        return pd.DataFrame(rows, columns=columns)

    def to_json(self) -> dict[str, object]:
        """The object `aicau simulate --json` prints."""
        strategies = {}
        for name in self.strategies:
            final = self.final_mse(name)
            curves = self.mse[self.strategies.index(name)].tolist()
            strategies[name] = {"final_mse": _interval(final, "mean"), "mse": curves}
        paired = {
            name: {"vs": self.baseline, **_interval(self.paired(name), "ratio")}
            for name in self.strategies
            if name != self.baseline
        }
        return {"strategies": strategies, "paired": paired, "seconds": self.seconds}

    def plot(self, path: str | None = None) -> object:
        """Learning curves with 95% bands; written to `path` where one is given, and returned as a figure."""
        from aicau.report import learning_curves

        return learning_curves(self, path)


def simulate(
    problem: Problem | str,
    strategies: Sequence[Strategy | str],
    initial: int = 10,
    batch_size: int = 10,
    rounds: int = 10,
    runs: int = 10,
    seed: int = 0,
    device: str = "auto",
    ensemble: Ensemble | None = None,
    progress: Progress | None = None,
) -> Result:
    """Compare strategies on a problem; see the module's first lines for what is shared between them."""
    begin = time.perf_counter()
    problem = make(problem) if isinstance(problem, str) else problem
    chosen = [s if isinstance(s, Strategy) else Strategy.parse(s) for s in strategies]
    if not chosen or len({s.name for s in chosen}) != len(chosen):
        raise InputError(f"name at least one strategy, each once; got {[s.name for s in chosen]}")
    loop = Loop(
        problem,
        chosen,
        checks.positive(initial, "initial"),
        checks.positive(batch_size, "batch_size"),
        checks.positive(rounds, "rounds"),
        streams.runs(seed, checks.positive(runs, "runs")),
        checks.pick_device(device),
        MLP() if ensemble is None else ensemble,
    )
    while not loop.done:
        loop.advance()
        if progress is not None:
            progress(loop.round, rounds + 1)
    return Result(
        problem.name,
        tuple(s.name for s in chosen),
        torch.stack(loop.mse, -1).numpy(),
        loop.observations.index.cpu().numpy(),
        initial,
        batch_size,
        time.perf_counter() - begin,
    )


class Loop:
    """The state of all runs between two rounds. Tensors carry (strategy, run) in front."""

    def __init__(
        self,
        problem: Problem,
        strategies: list[Strategy],
        initial: int,
        batch_size: int,
        rounds: int,
        keys: Tensor,  # (runs,)
        device: torch.device,
        ensemble: Ensemble,
    ) -> None:
        room = int(problem.capacity.clamp_max(initial + rounds * batch_size).sum())
        if initial > problem.pool.n or initial + rounds * batch_size > room:
            raise InputError(
                f"{initial} initial points and {rounds} rounds of {batch_size} need more measurements"
                f" than {problem.name} has room for ({problem.pool.n} points, {room} measurements)"
            )
        self.problem, self.strategies, self.rounds, self.batch_size = problem, strategies, rounds, batch_size
        self.device, self.ensemble, self.keys = device, ensemble, keys
        self.pool = problem.pool.to(device)
        self.truth = problem.truth.to(device)
        self.capacity = problem.capacity.to(device)
        self.round = 0
        self.mse: list[Tensor] = []  # (strategy, run) per round
        self.previous: dict[int, Score] = {}
        start = streams.permutation(streams.fold(keys, Purpose.INITIAL), problem.pool.n)[:, :initial]
        y = problem.measure(start, torch.zeros_like(start), keys, 0)
        index = start.expand(len(strategies), *start.shape).to(device)
        self.observations = Observations(
            index, y.to(device).expand(index.shape), torch.zeros(initial, dtype=torch.int64, device=device)
        )

    @property
    def done(self) -> bool:
        return self.round > self.rounds

    def advance(self) -> None:
        """Fit the ensembles of this round, record their error, and, before the last round, choose and measure."""
        keys = streams.fold(self.keys, self.round).to(self.device)
        predictions = self._fit(keys)
        self.mse.append(self._error(predictions))
        if self.round < self.rounds:
            self._measure(self._choose(predictions, keys))
        self.round += 1

    def _fit(self, keys: Tensor) -> Tensor:  # (S, R, K, n)
        observations, count = self.observations, len(self.strategies)
        if self.round == 0:  # all strategies stand at the same place
            observations = observations[:1]
        x = self.pool.x[observations.index]
        fitted = self.ensemble.fit(x, observations.y, keys.expand(observations.index.shape[:-1]))
        predictions = fitted.predict(self.pool.x)
        return predictions.expand(count, *predictions.shape[1:])

    def _error(self, predictions: Tensor) -> Tensor:  # (S, R)
        def error(some: Tensor) -> tuple[Tensor]:
            return (((decomposition.mean(some).double() - self.truth) ** 2).mean(-1),)

        (mse,) = by_run(error, predictions.flatten(0, 1))
        return mse.reshape(predictions.shape[:2]).cpu()

    def _choose(self, predictions: Tensor, keys: Tensor) -> Tensor:  # (S, R, m)
        counts = self.observations.counts(self.pool.n)
        cobias = self._cobias(predictions, keys)
        batches = []
        for s, strategy in enumerate(self.strategies):
            view = View(
                self.pool.standardised, counts[s] < self.capacity, counts[s] > 0, keys, predictions[s], cobias.get(s)
            )
            batch, _, plain = strategy.choose(view, self.batch_size, self.previous.get(s), self.round)
            if plain is not None:
                self.previous[s] = plain
            batches.append(batch)
        return torch.stack(batches)

    def _cobias(self, predictions: Tensor, keys: Tensor) -> dict[int, Omega]:
        """Δ̂ of every strategy that needs one: one call per estimator, for all strategies that share it."""
        groups: dict[BiasEstimator, list[int]] = {}
        for s, strategy in enumerate(self.strategies):
            if strategy.bias is not None:
                groups.setdefault(strategy.bias, []).append(s)
        found = {}
        for estimator, members in groups.items():
            some = torch.tensor(members, device=self.device)
            o = self.observations
            evidence = Evidence(
                self.pool.x,
                Observations(o.index[some], o.y[some], o.round),
                predictions[some],
                keys.expand(len(members), -1),
                self._oracle,
            )
            estimate = estimator.estimate(evidence)
            found.update({s: estimate[i] for i, s in enumerate(members)})
        return found

    def _oracle(self, count: int) -> Tensor:  # (R, n)
        """Perfect information: the truth without noise, else the mean of whole realisations."""
        if not bool((self.problem.aleatoric > 0).any()):
            return self.truth
        keys = streams.fold(streams.fold(self.keys, Purpose.REALISATIONS), self.round)

        def average(some: Tensor) -> tuple[Tensor]:
            return (self.problem.realisations(count, some).mean(-2),)

        return by_run(average, keys)[0].to(self.device)

    def _measure(self, batch: Tensor) -> None:  # (S, R, m)
        batch = batch.cpu()
        earlier = self.observations.counts(self.pool.n).cpu().gather(-1, batch)
        y = self.problem.measure(batch, earlier, self.keys, self.round + 1)
        self.observations = self.observations.append(batch.to(self.device), y.to(self.device), self.round + 1)


def _interval(interval: Interval, word: str) -> dict[str, float | None]:
    values = (interval.mean, interval.low, interval.high)
    mean, low, high = (v if np.isfinite(v) else None for v in values)
    return {word: mean, "low": low, "high": high}
