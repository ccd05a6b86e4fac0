"""Strategies compared on a problem: `simulate`, and what came out of it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aicau import ensembles
from aicau.core import checks, streams
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError, shown
from aicau.core.statistics import Interval, mean_interval, paired_ratio
from aicau.ensembles import Ensemble
from aicau.problems import Problem, make
from aicau.round import Round
from aicau.simulation.loop import Lane, Work, compute
from aicau.strategy import Chooser, chooser

Progress = Callable[[int, int], None]  # (rounds done, rounds in all)


@dataclass(frozen=True)
class Result:
    """Errors and queries of a simulation. Round 0 is the model on the initial points.

    Parameters
    ----------
    problem : str
    strategies : tuple of str
    mse : array, shape (strategy, run, round)
        The error of the problem's task: the MSE of the members' mean to the truth for regression, the excess log loss
        D[p‖F̄] for classification.
    queried : array of int, shape (strategy, run, rows)
        Pool indices, the initial points first.
    initial, batch_size : int
    seconds : float
    error : str
        What `mse` is called in tables.

    Examples
    --------
    >>> from aicau import problems, simulate
    >>> result = simulate(problems.make("type1", grid=8), ["random", "lc"], 5, 2, 1, 2, seed=0)
    >>> result.points(1)
    7
    """

    problem: str
    strategies: tuple[str, ...]
    mse: NDArray[np.float64]
    queried: NDArray[np.int64]
    initial: int
    batch_size: int
    seconds: float = field(compare=False, default=0.0)
    error: str = "MSE"

    @property
    def baseline(self) -> str:
        """What others are compared with: `random` where it took part, else the first strategy."""
        return "random" if "random" in self.strategies else self.strategies[0]

    def final(self, strategy: str) -> NDArray[np.float64]:  # (runs,)
        """The error after the last round, per run."""
        if strategy not in self.strategies:
            raise InputError(f"{strategy!r} did not take part; took part: {', '.join(self.strategies)}")
        return self.mse[self.strategies.index(strategy), :, -1]

    def final_mse(self, strategy: str) -> Interval:
        return mean_interval(self.final(strategy))

    def paired(self, strategy: str, against: str | None = None) -> Interval:
        """Ratio of final errors, run by run (geometric mean, 95% interval)."""
        return paired_ratio(self.final(strategy), self.final(against or self.baseline))

    def points(self, round: int) -> int:
        """Measurements behind the model of that round."""
        return self.initial + round * self.batch_size

    def to_frame(self) -> pd.DataFrame:
        """One row per strategy, run and round: mse, and the pool indices queried to get there."""
        labels = [(self.problem, self.initial, name) for name in self.strategies]
        sizes = (self.initial, self.batch_size)
        return tidy(["problem", "initial", "strategy"], labels, self.mse, self.queried, *sizes)

    def to_json(self) -> dict[str, object]:
        """The object `aicau simulate --json` prints."""
        strategies = {
            name: {"final_mse": _interval(self.final_mse(name), "mean"), "mse": self.mse[at].tolist()}
            for at, name in enumerate(self.strategies)
        }
        base = self.baseline
        others = [name for name in self.strategies if name != base]
        paired = {name: {"vs": base, **_interval(self.paired(name), "ratio")} for name in others}
        return {"strategies": strategies, "paired": paired, "seconds": self.seconds}

    def plot(self, path: str | None = None) -> object:
        """Learning curves with 95% bands; written to `path` where one is given, and returned as a figure."""
        from aicau.simulation.curves import learning_curves

        return learning_curves(self, path)


def simulate(
    problem: Problem | str,
    strategies: Sequence[Chooser | str],
    initial: int = 10,
    batch_size: int = 10,
    rounds: int = 10,
    runs: int = 10,
    seed: int = 0,
    device: str = "auto",
    ensemble: Ensemble | None = None,
    progress: Progress | None = None,
    how: Round | None = None,
    engine: Engine = HERE,
) -> Result:
    """Compare strategies on a problem, paired: same initial points, same noise, same initial weights.

    Parameters
    ----------
    problem : Problem or str
        E.g. "type2"; `aicau.problems.make` has the names.
    strategies : sequence of Strategy or str
    initial : int
        Random points measured before the first round.
    batch_size, rounds, runs : int
        Points per round, rounds after the initial points, independent repetitions.
    seed : int
        Same seed, same result.
    device : {"auto", "cpu", "cuda"}
    ensemble : Ensemble, optional
        F_k; the paper's networks where it is not given.
    progress : callable, optional
        Called with (rounds done, rounds in all).
    how : Round, optional
        How a round is run; the default is what a campaign runs, `Round.paper()` what the paper runs.
    engine : Engine
        Where runs are computed; on the CPU the numbers do not depend on it.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        An unknown name, or more measurements than the problem has room for.

    Examples
    --------
    >>> from aicau import problems, simulate
    >>> result = simulate(problems.make("type2", grid=8), ["random", "lc"], 5, 2, 1, 2, seed=0)
    >>> result.mse.shape  # (strategy, run, round)
    (2, 2, 2)
    """
    begin = time.perf_counter()
    problem = make(problem) if isinstance(problem, str) else problem
    if not isinstance(problem, Problem):
        raise InputError(f"a problem is a name such as 'type2', or a Problem of your own; got {shown(problem)}")
    strategies = [strategies] if isinstance(strategies, str) else strategies
    chosen = [chooser(one, problem.task) for one in strategies]
    if not chosen or len({s.name for s in chosen}) != len(chosen):
        raise InputError(f"name at least one strategy, each once; got {[s.name for s in chosen]}")
    work = Work(
        tuple(Lane(problem, strategy) for strategy in chosen),
        checks.positive(initial, "initial"),
        checks.positive(batch_size, "batch_size"),
        checks.positive(rounds, "rounds"),
        streams.runs(seed, checks.positive(runs, "runs")),
        device,
        how or Round(ensemble or ensembles.make(task=problem.task), problem.task),
    )

    tell = progress or (lambda done, total: None)
    (ran,) = compute([work], engine, lambda _, done: done and tell(done, rounds + 1))
    names = tuple(s.name for s in chosen)
    seconds = time.perf_counter() - begin
    return Result(problem.name, names, ran.mse, ran.queried, initial, batch_size, seconds, problem.task.error)


def tidy(
    columns: list[str],
    labels: Sequence[tuple[object, ...]],  # of each lane, one for every column
    mse: NDArray[np.float64],  # (lane, run, round)
    queried: NDArray[np.int64],  # (lane, run, rows)
    initial: int,
    batch_size: int,
) -> pd.DataFrame:
    """One row per lane, run and round: its labels, the error, and the pool indices queried to get there."""
    rows = []
    for lane, run, k in np.ndindex(mse.shape):
        points = initial + k * batch_size
        ids = queried[lane, run, points - batch_size if k else 0 : points]
        rows.append((*labels[lane], run, k, points, mse[lane, run, k], " ".join(map(str, ids))))
    return pd.DataFrame(rows, columns=[*columns, "run", "round", "points", "mse", "queried"])


def _interval(interval: Interval, word: str) -> dict[str, float | None]:
    values = {word: interval.mean, "low": interval.low, "high": interval.high}
    return {name: value if np.isfinite(value) else None for name, value in values.items()}
