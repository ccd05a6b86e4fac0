"""What is handed out for values: the combination, its parts and plain models on the same points of real data sets.

    python benchmarks/prediction.py --data DIR [--sets agnp,bike] [--runs 4] [--jobs 2] [--rows rows.csv]

500 candidates of each set, 40 random points, then ten rounds of five, at random and by `default`. Errors are mean
squared errors to the truth over that of the debiased networks (`today`); `coverage` is the share of candidates never
measured whose next measurement lies in its 90% interval. Geometric means over sets, with 95% intervals over runs.

Models, priors and powers were chosen on the sets in CHOSEN_ON (four runs of seed 0), and checked on the others.
`--rows` keeps one row per set, run, rule and predictor: what stands there is not computed again.
"""

import argparse
import math
import os
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

CHOSEN_ON = ["agnp", "aqsol_sources", "crossed_barrel", "diamonds", "kin40k", "lincs_a549", "airfoil", "autompg"]
CHOSEN_ON += ["bike", "pumadyn32nm", "skillcraft", "yacht"]
RULES = ("random", "default")
INITIAL, BATCH, ROUNDS, LEVEL = 40, 5, 10, 0.9
Points = dict[str, np.ndarray]


def measured(problem: Any, rule: str, keys: Any) -> Points:
    """The measurements of one run by one rule."""
    import torch

    from aicau.ensembles import MLP
    from aicau.round import Round
    from aicau.simulation.loop import Lane, Loop
    from aicau.strategy import Strategy

    initial = max(2, min(INITIAL, problem.pool.n // 3))
    lane = Lane(problem, Strategy.parse(rule))
    loop = Loop([lane], initial, BATCH, ROUNDS, keys, torch.device("cpu"), Round(MLP()))
    while loop.round < loop.rounds:
        loop.advance()
    o = loop.observations[0]
    return {name: getattr(o, name).numpy() for name in ("index", "y", "round", "batch")}


def plain(x: Any, points: Any, y: Any) -> Iterator[tuple[str, Any, float]]:
    """Models as a user of scikit-learn writes them: name, prediction over the pool, seconds."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

    lengths = np.ones(x.shape[1])
    for name, kernel in (("rbf", RBF(lengths)), ("matern", Matern(lengths, nu=2.5)), ("forest", None)):
        begin = time.perf_counter()
        model: Any = RandomForestRegressor(random_state=0)
        if kernel is not None:
            model = GaussianProcessRegressor(ConstantKernel() * kernel + WhiteKernel(0.1), normalize_y=True)
        yield f"sklearn {name}", model.fit(points, y).predict(x), time.perf_counter() - begin


def predictors(problem: Any, points: Points, keys: Any) -> Iterator[dict[str, Any]]:
    """Error, coverage and seconds of each predictor on one run's points."""
    import torch

    from aicau.core.observations import Observations
    from aicau.ensembles import MLP
    from aicau.prediction.regression import Regression, ValuePredictor
    from aicau.round import Round, round_keys

    rows = Observations(*(torch.from_numpy(points[name]) for name in ("index", "y", "round", "batch")))
    x, truth = problem.pool.x, problem.truth
    begin = time.perf_counter()
    state = Round(MLP()).fit(x, rows, round_keys(keys, ROUNDS))
    trained = time.perf_counter() - begin
    every = torch.arange(len(truth))[None]
    new = problem.measure(every, torch.zeros_like(every), keys, ROUNDS + 1)[0]
    fresh = rows.counts(len(truth))[0] == 0

    def row(name: str, mean: Any, seconds: float, said: Any = None) -> dict[str, Any]:
        found = {"predictor": name, "mse": float(((torch.as_tensor(mean) - truth) ** 2).mean()), "seconds": seconds}
        if said is not None:
            ends = replace(said, level=LEVEL)
            found["coverage"] = float(((new >= ends.new_low) & (new <= ends.new_high))[fresh].double().mean())
            found["width"] = float((ends.new_high - ends.new_low)[fresh].mean())
            # 1 where `unknown` is the expected squared error of what is handed out
            found["expected"] = float(said.unknown.mean()) / found["mse"]
        return found

    begin = time.perf_counter()
    whole: ValuePredictor = Regression().fit(state, None, ())
    handed = whole.predict(state)
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    today = replace(whole, combination=None).predict(state)
    yield row("networks", today.ensemble, trained)
    yield row("today", today.mean, trained + time.perf_counter() - begin, today)
    yield row("combination", handed.mean, trained + seconds, handed)
    together = whole.combination
    assert together is not None
    at = together.frame.coordinates(x.double())
    for name, model in together.models.items():
        yield row(f"… {name}", state.in_units(model.mean(at)[None])[0], math.nan)
    seen = rows.collapse()
    kept = seen.valid[0]
    for name, mean, seconds in plain(x.numpy(), x[seen.index[0][kept]].numpy(), seen.mean[0][kept].numpy()):
        yield row(name, mean, seconds)


def task(folder: Path, run: int, seed: int, most: int) -> list[dict[str, Any]]:
    """All rows of one run on one set."""
    import torch

    from aicau.core import streams
    from aicau.problems import replay

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    problem = replay.load(folder, most)
    keys = streams.runs(seed, run + 1)[-1:]
    rows: list[dict[str, Any]] = []
    for rule in RULES:
        own = {"set": folder.name, "run": run, "rule": rule}
        rows += [own | one for one in predictors(problem, measured(problem, rule, keys), keys)]
    return rows


def ratios(table: pd.DataFrame) -> pd.DataFrame:
    """ln of error / today's, one row per set, run and rule, one column per predictor."""
    wide = table.pivot_table(index=["rule", "set", "run"], columns="predictor", values="mse", sort=False)
    return np.log(wide).sub(np.log(wide["today"]), axis=0)


def report(table: pd.DataFrame, title: str) -> None:
    """Tables in Markdown."""
    from aicau.core.statistics import mean_interval

    logs, names = ratios(table), list(dict.fromkeys(table.predictor))
    print(f"\n## {title}: {table.set.nunique()} sets, {table.run.nunique()} runs\n")
    print("| predictor | random points | points of `default` | coverage | expected / real | seconds |")
    print("|---|---|---|---|---|---|")
    for name in names:
        cells = []
        for rule in RULES:
            found = mean_interval(logs.loc[rule][name].groupby("run").mean().to_numpy())
            cells.append("{:.3f} ({:.3f} to {:.3f})".format(*np.exp([found.mean, found.low, found.high])))
        own = table[table.predictor == name]
        cells += [f"{own[part].mean():.2f}" for part in ("coverage", "expected", "seconds")]
        print(f"| {name} | " + " | ".join(cells) + " |")
    plainly = [name for name in names if name.startswith("sklearn")]
    wide = np.log(table.pivot_table(index=["rule", "set", "run"], columns="predictor", values="mse"))
    best = wide.loc["random"][plainly].groupby("set").mean().idxmin(axis=1)  # of each set, in hindsight
    for rule in RULES:
        off = [
            wide.loc[(rule, place)]["combination"] - wide.loc[("random", place)][name] for place, name in best.items()
        ]
        found = mean_interval(np.mean(off, 0))
        print(f"\nCombination on points of {rule} / best plain model on random points, picked per set in hindsight:")
        print("{:.3f} ({:.3f} to {:.3f})".format(*np.exp([found.mean, found.low, found.high])))
    for rule in RULES:
        print(f"\nPoints of {rule}, error / today's; coverage of the combination:\n")
        print("| set | " + " | ".join(names) + " | coverage |\n|" + "---|" * (len(names) + 2))
        doubt = {name: [] for name in names if name.startswith("sklearn")}
        for place, part in logs.loc[rule].groupby("set"):
            held = table[(table.set == place) & (table.rule == rule) & (table.predictor == "combination")]
            cells = [f"{np.exp(part[name].mean()):.2f}" for name in names]
            print(f"| {place} | " + " | ".join(cells) + f" | {held.coverage.mean():.2f} |")
            for name in doubt:
                if mean_interval((part["combination"] - part[name]).to_numpy()).low > 0:
                    doubt[name].append(str(place))
        print(f"\nThe combination is worse beyond doubt than {doubt}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", type=lambda text: text.split(","))
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--rows", type=Path, help="all rows as CSV; a run that stands there is not computed again")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"  # before anything starts threads
    from aicau.problems import replay

    folders = [one for one in replay.folders(options.data) if options.sets is None or one.name in options.sets]
    known = pd.read_csv(options.rows) if options.rows and options.rows.exists() else pd.DataFrame()
    parts = [known]
    done = set() if known.empty else set(zip(known["set"], known["run"], strict=True))
    wanted = [(folder, run) for run in range(options.runs) for folder in folders if (folder.name, run) not in done]
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        waiting = {pool.submit(task, *one, options.seed, options.most): one for one in wanted}
        for number, one in enumerate(as_completed(waiting), 1):
            parts.append(pd.DataFrame(one.result()))
            folder, run = waiting[one]
            print(f"{number} of {len(waiting)}: {folder.name}, run {run}", file=sys.stderr, flush=True)
            if options.rows:
                pd.concat(parts).to_csv(options.rows, index=False)
    table = pd.concat(parts).sort_values(["set", "run"], kind="stable")
    table = table[table["set"].isin([folder.name for folder in folders]) & (table["run"] < options.runs)]
    chosen = table["set"].isin(CHOSEN_ON)
    for title, part in (("all", table), ("chosen on", table[chosen]), ("not chosen on", table[~chosen])):
        if len(part):
            report(part, title)


if __name__ == "__main__":
    main()
