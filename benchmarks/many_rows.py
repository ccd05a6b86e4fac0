"""Processes of many measurements, where every row counts (`aicau.gp.many`), against the exact one and fewer rows.

    python benchmarks/many_rows.py --data DIR [--sets kin40k,protein] [--sizes 1600,3000,10000] [--exact 3000]
    python benchmarks/many_rows.py --costs 2000,10000,50000

Rows at random, a Matérn process with a length scale per feature whose parameters are fitted on some of them; 2,000
other points are predicted. `mse` is the squared error of their measurements, `nll` the negative log likelihood. Above
`--exact` rows the exact process is left out. The second form prints processor seconds on made-up data, on one thread.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aicau import gp, streams
from aicau.prediction.models.process import MOST, settings
from aicau.problems import replay
from common import command, header, numbers, row

SETS = "kin40k,protein,sgemm,diamonds,sarcoma_viability,lincs_a549"
HELD = 2000


def found(x: torch.Tensor, y: torch.Tensor) -> tuple[Any, ...]:
    """Parameters and normalised rows."""
    every = torch.ones_like(y, dtype=torch.bool)
    return settings(x.shape[-1], 1.0).found(x, y, every, torch.ones_like(y), most=MOST)


def compare(folder: Path, sizes: list[int], exact: int) -> None:
    problem = replay.load(folder, max(sizes) + HELD, 1)
    x, every = problem.pool.coordinates.double(), torch.arange(problem.pool.n)[None]
    y = problem.measure(every, torch.zeros_like(every), streams.runs(3, 1), 0)[0].double()
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(x)))
    held, rest = order[:HELD], order[HELD:]
    for size in sizes:
        if size > len(rest):
            continue
        theta, rows, *units = found(x[rest[:size]][None], y[rest[:size]][None])
        ways = {"all, exactly": gp.Posterior} if size <= exact else {}
        ways |= {f"{gp.EXACT} of them": gp.Posterior, "many": gp.Many}
        for name, way in ways.items():
            begin = time.process_time()
            some = rows.thin(gp.EXACT) if name.endswith("them") else rows
            fitted = way.of(theta, some, *units)
            middle = time.process_time()
            mean, variance = fitted.both(x[held][None])
            wide, off = variance[0] + fitted.noise()[0], (y[held] - mean[0]) ** 2
            nll = float(0.5 * (wide.log() + off / wide).mean())
            seconds = (f"{middle - begin:.2f}", f"{time.process_time() - middle:.2f}")
            row(folder.name, size, name, f"{float(off.mean()):.4f}", f"{nll:.3f}", *seconds)


def cost(size: int, candidates: int = 20_000, features: int = 16) -> None:
    draw = torch.Generator().manual_seed(0)
    x, at = (torch.randn(1, n, features, generator=draw).double() for n in (size, candidates))
    y = torch.sin(x[..., 0]) + x[..., 1] * x[..., 2] + 0.1 * torch.randn(1, size, generator=draw)
    theta, rows, *units = found(x, y)
    times = [time.process_time()]
    fitted = gp.fitted(theta, rows, *units)
    for part in (at[:, : candidates // 4], at):
        times.append(time.process_time())
        fitted.both(part)
    times.append(time.process_time())
    row(size, *(f"{one:.2f}" for one in np.diff(times)))


def main(
    data: Path | None = None,
    sets: str = SETS,
    sizes: str = "1600,3000,10000",
    exact: int = 3000,
    costs: str = "",
) -> None:
    torch.set_num_threads(1)
    if data is not None:
        header("set", "rows", "way", "mse", "nll", "fit, s", "predict, s")
        for name in sets.split(","):
            compare(data / name, numbers(sizes), exact)
    if costs:
        header("rows", "fit, s", "5,000 candidates, s", "20,000, s")
        for size in numbers(costs):
            cost(size)


if __name__ == "__main__":
    command(main)
