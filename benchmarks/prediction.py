"""What is handed out for values: the combination, its parts and plain models on the same points of real data sets.

    python benchmarks/prediction.py run --data DIR --rows rows.csv [--sets agnp,bike] [--runs 20] [--jobs 16]
    python benchmarks/prediction.py summary --rows rows.csv

500 candidates of each set, 40 random points, then ten rounds of five, at random and by `default`. Errors are mean
squared errors to the truth; `today` is the debiased mean of the networks. `coverage` is the share of candidates never
measured whose next measurement lies in its 90% interval, `held` of those with replicates whose truth (their mean) does.

`run` computes run 0 of all sets first, then run 1, and so on, and begins nothing new after `--seconds`. `--rows` keeps
one row per set, run, design and predictor: what stands there is not computed again. `summary` needs that file only.
Intervals are 95% intervals over runs, of those runs that have all sets.

Models, priors and powers were chosen on the sets in CHOSEN_ON, and checked on the others.
"""

import math
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel
from torch import Tensor

from aicau.core import streams
from aicau.core.engine import Engine
from aicau.core.files import write_whole
from aicau.core.observations import Observations
from aicau.core.statistics import mean_interval, ratio
from aicau.ensembles import MLP
from aicau.prediction.regression import ValuePredictor
from aicau.problems import Problem, replay
from aicau.round import Round, round_keys
from aicau.simulation.loop import Lane, Loop, Work
from aicau.strategy import Strategy
from common import ends, folders, header, one_thread, row

CHOSEN_ON = ["agnp", "aqsol_sources", "crossed_barrel", "diamonds", "kin40k", "lincs_a549", "airfoil", "autompg"]
CHOSEN_ON += ["bike", "pumadyn32nm", "skillcraft", "yacht"]
DESIGNS = ("random", "default")
INITIAL, BATCH, ROUNDS, LEVEL = 40, 5, 10, 0.9
ASKED = (0.87, 0.93)  # coverage of intervals at LEVEL
HANDED, TODAY, PLAIN, PART = "combination", "today", "sklearn ", "… "  # predictors, or how their names begin


def measured(problem: Problem, design: str, keys: Tensor) -> Observations:
    """The measurements of one run by one design."""
    initial = max(2, min(INITIAL, problem.pool.n // 3))
    lane = Lane(problem, Strategy.parse(design))
    loop = Loop(Work([lane], initial, BATCH, ROUNDS, keys, torch.device("cpu"), Round(MLP())))
    while loop.round < loop.work.rounds:
        loop.advance()
    return loop.observations[0]


def plain(x: Any, points: Any, y: Any) -> Iterator[tuple[str, Any, float]]:
    """Models as a user of scikit-learn writes them: name, prediction over the pool, seconds."""
    lengths = np.ones(x.shape[1])
    for name, kernel in (("rbf", RBF(lengths)), ("matern", Matern(lengths, nu=2.5)), ("forest", None)):
        begin = time.perf_counter()
        model: Any = RandomForestRegressor(random_state=0)
        if kernel is not None:
            model = GaussianProcessRegressor(ConstantKernel() * kernel + WhiteKernel(0.1), normalize_y=True)
        yield f"{PLAIN}{name}", model.fit(points, y).predict(x), time.perf_counter() - begin


def predictors(problem: Problem, rows: Observations, keys: Tensor) -> Iterator[dict[str, Any]]:
    """Error, coverage and seconds of each predictor on one run's points."""
    x, truth = problem.pool.x, problem.truth
    begin = time.perf_counter()
    state = Round(MLP()).fit(x, rows, round_keys(keys, ROUNDS))
    trained = time.perf_counter() - begin
    every = torch.arange(len(truth))[None]
    new = problem.measure(every, torch.zeros_like(every), keys, ROUNDS + 1)[0]
    fresh = rows.counts(len(truth))[0] == 0
    known = fresh & (problem.capacity > 1)

    def judged(name: str, mean: Any, seconds: float, said: Any = None) -> dict[str, Any]:
        found = {"predictor": name, "mse": float(((torch.as_tensor(mean) - truth) ** 2).mean()), "seconds": seconds}
        if said is not None:
            own = replace(said, level=LEVEL)
            found["coverage"] = float(((new >= own.new_low) & (new <= own.new_high))[fresh].double().mean())
            found["held"] = float(((truth >= own.low) & (truth <= own.high))[known].double().mean())
            found["width"] = float((own.new_high - own.new_low)[fresh].mean())
            # 1 where `unknown` is the expected squared error of what is handed out
            found["expected"] = float(said.unknown.mean()) / found["mse"]
        return found

    begin = time.perf_counter()
    whole = ValuePredictor.fit(state)
    handed = whole.predict(state)
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    today = replace(whole, combination=None).predict(state)
    yield judged("networks", today.ensemble, trained)
    yield judged(TODAY, today.mean, trained + time.perf_counter() - begin, today)
    yield judged(HANDED, handed.mean, trained + seconds, handed)
    together = whole.combination
    assert together is not None
    at = together.frame.coordinates(x.double())
    for name, model in together.models.items():
        yield judged(f"{PART}{name}", state.in_units(model.mean(at)[None])[0], math.nan)
    seen = rows.collapse()
    kept = seen.valid[0]
    for name, mean, seconds in plain(x.numpy(), x[seen.index[0][kept]].numpy(), seen.mean[0][kept].numpy()):
        yield judged(name, mean, seconds)


@dataclass(frozen=True)
class Task:
    """One run on one set."""

    folder: Path
    run: int
    seed: int
    most: int


def play(task: Task) -> list[dict[str, Any]]:
    """All rows of both designs."""
    one_thread()
    warnings.simplefilter("ignore")
    problem = replay.load(task.folder, task.most)
    keys = streams.runs(task.seed, task.run + 1)[-1:]
    rows: list[dict[str, Any]] = []
    for design in DESIGNS:
        own = {"set": task.folder.name, "run": task.run, "design": design}
        rows += [own | one for one in predictors(problem, measured(problem, design, keys), keys)]
    return rows


app = typer.Typer(help=__doc__.splitlines()[0], add_completion=False, pretty_exceptions_enable=False)
Rows = Annotated[Path, typer.Option(help="All rows, as CSV")]
Sets = Annotated[str, typer.Option(help="These only, with commas between")]


@app.command()
def run(
    data: Annotated[Path, typer.Option(help="The folder of the data sets")],
    rows: Rows,
    sets: Sets = "",
    runs: int = 20,
    seed: int = 0,
    most: int = 500,
    jobs: Annotated[int, typer.Option(help="Processes, of one thread each")] = 1,
    seconds: Annotated[float, typer.Option(help="Begin nothing new after so long")] = math.inf,
) -> None:
    """Compute what is missing in `--rows`."""
    table = pd.read_csv(rows) if rows.exists() else pd.DataFrame()
    done = set() if table.empty else set(zip(table["set"], table["run"], strict=True))
    tasks = [Task(one, run, seed, most) for run in range(runs) for one in folders(data, sets)]
    tasks = [task for task in tasks if (task.folder.name, task.run) not in done]
    begin = time.monotonic()
    in_time = (task for task in tasks if time.monotonic() - begin < seconds)
    for number, (task, found) in enumerate(zip(tasks, Engine(jobs=jobs).over(play, in_time), strict=False), 1):
        table = pd.concat([table, pd.DataFrame(found)])
        write_whole(rows, lambda path, found=table: found.to_csv(path, index=False, float_format="%.6g"))
        where = f"{task.folder.name}, run {task.run} ({time.monotonic() - begin:.0f} s)"
        print(f"{number} of {len(tasks)}: {where}", file=sys.stderr, flush=True)


class Summary:
    """The tables of some sets."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.table = table
        self.names = [str(name) for name in dict.fromkeys(table["predictor"])]
        self.plain = [name for name in self.names if name.startswith(PLAIN)]
        self.logs = np.log(table.pivot_table(index=["design", "set", "run"], columns="predictor", values="mse"))
        counts = table.groupby("run")["set"].nunique()
        self.runs = counts.index[counts == table["set"].nunique()]  # that have all sets

    def errors(self, name: str, design: str) -> pd.DataFrame:  # runs × sets
        """ln of squared errors; `name` may be "best plain": of each set the best one on these points, in hindsight."""
        logs = self.logs.loc[design]
        if name != "best plain":
            return logs[name].unstack("set")
        best = logs[self.plain].groupby("set").mean().idxmin(axis=1)
        return pd.DataFrame({place: logs[best[place]].loc[place] for place in best.index})

    def ratio(self, one: pd.DataFrame, other: pd.DataFrame) -> str:
        """Geometric mean over sets, with its interval over runs."""
        return ends(ratio((one - other).loc[self.runs].mean(axis=1).to_numpy()), 3)

    def worse(self, design: str, names: list[str]) -> list[str]:
        """Sets on which the combination is worse than one of these beyond doubt, on the same points."""
        handed, found = self.errors(HANDED, design), []
        for name in names:
            for place, log in (handed - self.errors(name, design)).items():
                own = mean_interval(log.dropna().to_numpy())
                if own.low > 0:
                    found.append(f"{place} ({name.removeprefix(PART)}: {math.exp(own.mean):.2f})")
        return found

    def asked(self) -> Iterator[tuple[str, ...]]:
        """Rows of the table of what is asked: what, on points of `default`, at random."""
        handed = {design: self.errors(HANDED, design) for design in DESIGNS}
        today, best = self.errors(TODAY, "default"), self.errors("best plain", "random")
        yield "error / today's on points of `default`", *(self.ratio(handed[d], today) for d in DESIGNS[::-1])
        yield (
            "error / best plain model on random points, picked per set in hindsight",
            *(self.ratio(handed[d], best) for d in DESIGNS[::-1]),
        )
        parts = [name for name in self.names if name.startswith(PART)] + ["networks", TODAY]
        for what, names in (("a plain model", self.plain), ("a part, or today's", parts)):
            found = [self.worse(design, names) for design in DESIGNS[::-1]]
            cells = [f"{len({one.split(' ')[0] for one in each})}: {', '.join(each) or 'none'}" for each in found]
            yield f"sets beyond doubt worse than {what} on the same points", *cells
        own = self.table[self.table["predictor"] == HANDED]
        by_set = own.pivot_table(index="set", columns="design", values="coverage")
        inside = [by_set[design].round(3).between(*ASKED) for design in DESIGNS[::-1]]
        outside = [
            [f"{p} {by_set[d][p]:.3f}" for p in by_set.index[~i]] for d, i in zip(DESIGNS[::-1], inside, strict=True)
        ]
        cells = [
            f"{int(i.sum())} of {len(i)}; not {', '.join(o) or 'none'}" for i, o in zip(inside, outside, strict=True)
        ]
        yield f"sets whose coverage of a new measurement is {ASKED[0]} to {ASKED[1]}", *cells
        for name, what in (("coverage", "of a new measurement"), ("held", "of the truth")):
            yield (
                f"coverage {what}, mean of sets",
                *(f"{own[own['design'] == d][name].mean():.3f}" for d in DESIGNS[::-1]),
            )

    def print(self, title: str) -> None:
        """All tables, in Markdown."""
        print(f"\n## {title}: {self.table['set'].nunique()} sets, {len(self.runs)} runs of all of them\n")
        header("", "points of `default`", "random points")
        for cells in self.asked():
            row(*cells)
        print("\nSquared error over today's on the same points; the rest is a mean over both designs.\n")
        header("predictor", "points of `default`", "random points", "expected / real error", "seconds")
        for name in self.names:
            cells = [self.ratio(self.errors(name, d), self.errors(TODAY, d)) for d in DESIGNS[::-1]]
            own = self.table[self.table["predictor"] == name]
            row(name, *cells, f"{own['expected'].mean():.2f}", f"{own['seconds'].mean():.2f}")

    def by_set(self) -> None:
        """Every set: error over today's on the same points, and coverage."""
        for design in DESIGNS[::-1]:
            print(f"\nPoints of {design}, error / today's; coverage of a new measurement and of the truth:\n")
            header("set", *self.names, "new", "truth")
            off = self.logs.loc[design].sub(self.logs.loc[design][TODAY], axis=0).groupby("set").mean()
            own = self.table[(self.table["predictor"] == HANDED) & (self.table["design"] == design)].groupby("set")
            for place in off.index:
                cells = [f"{math.exp(off.loc[place, name]):.2f}" for name in self.names]
                cells += [f"{own[name].mean()[place]:.3f}" for name in ("coverage", "held")]
                row(place, *cells)


@app.command()
def summary(rows: Rows, sets: Sets = "", runs: int = 20) -> None:
    """Tables of `--rows`."""
    table = pd.read_csv(rows)
    if sets:
        table = table[table["set"].isin(sets.split(","))]
    table = table[table["run"] < runs].sort_values(["set", "run"], kind="stable")
    chosen = table["set"].isin(CHOSEN_ON)
    for title, part in (("All", table), ("Chosen on", table[chosen]), ("Not chosen on", table[~chosen])):
        if len(part):
            Summary(part).print(title)
    Summary(table).by_set()


if __name__ == "__main__":
    app()
