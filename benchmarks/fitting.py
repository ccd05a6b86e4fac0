"""What a fit costs and how good what it hands out is, on held-out candidates of real data; two versions side by side.

    python benchmarks/fitting.py --data DIR --rows new.csv [--sets kin40k,protein] [--sizes 100,300,960] [--runs 2]
    python benchmarks/fitting.py --rows new.csv --against old.csv

Candidates at random, on plates of 48 that are shifted by a fifth of the standard deviation of y. `mse` is the squared
error of the prediction on candidates that were not measured, `nll` the negative log likelihood of their next
measurement, `debiased` the squared error of the debiased networks, `seconds` processor time of the fit on one thread.
The second form compares two files line by line: geometric means of ratios (differences of `nll`) with 95% intervals.
"""

import math
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer

from aicau import MLP, Observations, Round, Strategy, streams
from aicau.core.statistics import Interval, mean_interval
from aicau.problems import replay
from common import command, ends, header, numbers, row

SETS = "kin40k,protein,sgemm,diamonds,sarcoma_viability,lincs_a549,aqsol_sources,bike"
WELLS, SHIFT = 48, 0.2
KEY = ["set", "measured", "run"]


def measure(folder: Path, size: int, run: int) -> dict[str, float]:
    """One fit, and its errors."""
    problem = replay.load(folder, size + 2000)
    rng, n = np.random.default_rng([run, size]), problem.pool.n
    index = torch.from_numpy(rng.permutation(n)[: min(size, n // 2)])[None]
    keys = streams.runs(run, 1)
    plate = torch.arange(index.shape[1])[None] // WELLS
    shift = torch.from_numpy(SHIFT * rng.standard_normal(int(plate.max()) + 1))
    y = problem.measure(index, torch.zeros_like(index), keys, 0).double() + shift[plate]
    rows = Observations(index, y, torch.zeros_like(index[0]), plate)
    how, bias = Round(MLP()), Strategy.parse("default").bias
    begin = time.process_time()
    state = how.fit(problem.pool.x.double(), rows, keys)
    predictor = how.predictor(state, bias)
    seconds = time.process_time() - begin
    said, plain = predictor.predict(state), replace(predictor, combination=None).predict(state)
    every = torch.arange(n)[None]
    new = problem.measure(every, torch.zeros_like(every), keys, 1)[0]
    fresh = rows.counts(n)[0] == 0
    variance = (said.unknown + said.aleatoric)[fresh]
    off, truth = ((new - said.mean) ** 2)[fresh], problem.truth[fresh]
    return {
        "mse": float(((said.mean[fresh] - truth) ** 2).mean()),
        "nll": float(0.5 * (variance.log() + off / variance).mean()),
        "debiased": float(((plain.mean[fresh] - truth) ** 2).mean()),
        "seconds": seconds,
    }


def compare(new: pd.DataFrame, old: pd.DataFrame) -> None:
    """Ratios by number of measurements."""
    both = new.merge(old, on=KEY, suffixes=("", "_old"))
    header("measured", "fits", "mse", "debiased", "nll, difference", "seconds", "seconds now")
    for size, part in both.groupby("measured"):
        cells = []
        for name in ("mse", "debiased", "nll", "seconds"):
            one, other = part[name], part[f"{name}_old"]
            off = one - other if name == "nll" else np.log(one / other)
            found = mean_interval(off.groupby(part.set).mean().to_numpy())
            if name != "nll":
                found = Interval(*(math.exp(value) for value in (found.mean, found.low, found.high)))
            cells.append(ends(found, 3))
        row(size, len(part), *cells, f"{part.seconds.mean():.2f}")


def main(
    rows: Annotated[Path, typer.Option()],
    data: Path | None = None,
    sets: str = SETS,
    sizes: str = "100,300,960",
    runs: int = 2,
    against: Path | None = None,
) -> None:
    torch.set_num_threads(1)
    if data is not None:
        found = []
        for size, name, run in product(numbers(sizes), sets.split(","), range(runs)):
            found.append({"set": name, "measured": size, "run": run} | measure(data / name, size, run))
            print(found[-1], flush=True)
        pd.DataFrame(found).to_csv(rows, index=False)
    if against is not None:
        compare(pd.read_csv(rows), pd.read_csv(against))


if __name__ == "__main__":
    command(main)
