"""The paper's grid on this machine: ours against plain PyTorch and PyRelationAL, per round and extrapolated.

    python benchmarks/paper_speed.py [--points 20,100,200] [--pyrelational PYTHON]

A round is: train F_k (5 networks), predict the pool, and, where a strategy needs it, estimate the bias (Q or a Gaussian
process). Ours is measured for 10 runs at once and divided by 10. Plain PyTorch trains network after network, Q on the
same mini-batches of pairs from a DataLoader, and the process by scikit-learn. An epoch of Q is measured (ours over ten,
plain over two) and multiplied by the EPOCHS that a Q which learns takes.
PyRelationAL (a Python of its own, see pyrelational_round.py) trains its Lightning ensemble; it has no bias estimate, so
the plain one is added. The grid is 45,000 rounds with 8,400 fits of Q and of the process, at the sizes they have there.
"""

import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from aicau import MLP, Direct, Evidence, Observations, problems
from aicau.bias.quadratic import Quadratic, split_pairs
from aicau.core import streams
from aicau.paper.plan import BATCH, FIGURES, INITIALS, SINGLE, TYPES, Plan
from common import command, header, numbers, row

RUNS = 10
EPOCHS = 2000


def stack(sizes: tuple[int, ...], *between: Callable[[int], nn.Module]) -> nn.Sequential:
    """Linear layers with these modules behind each but the last."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), *(make(outputs) for make in between)]
    return nn.Sequential(*layers[: len(layers) - len(between)])


def pair_epoch(train: DataLoader[tuple[torch.Tensor, ...]], held: list[torch.Tensor]) -> Callable[[], None]:
    """One epoch of Q the obvious way, on rows (x_i, x_j, δ_i δ_j): mini-batches of pairs, then the validation loss."""
    psi = stack((4, 64, 64, 32, 16), nn.BatchNorm1d, lambda size: nn.ReLU(), lambda size: nn.Dropout(0.1))
    optimiser = torch.optim.Adam(psi.parameters(), 3e-4, weight_decay=1e-5)

    def loss(a: torch.Tensor, b: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss((psi(a) * psi(b)).sum(-1), target)

    def epoch() -> None:
        psi.train()
        for batch in train:
            optimiser.zero_grad()
            loss(*batch).backward()
            optimiser.step()
        psi.eval()
        with torch.no_grad():
            loss(*held)

    return epoch


def timed(function: Callable[[], object]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def measure(rows: int) -> dict[str, dict[str, float]]:
    """Seconds per round and part at a number of measured points."""
    problem = problems.type2()
    keys = streams.runs(0, RUNS)
    index = streams.permutation(keys, problem.pool.n)[:, :rows]
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    x = problem.pool.x[index]
    observations = Observations(index, y, torch.zeros(rows, dtype=torch.int64))
    fitted = MLP().fit(x, y, keys)  # compiles, too
    predictions = fitted.predict(problem.pool.x)
    evidence = Evidence(problem.pool.x, observations, predictions, keys)
    few = replace(Quadratic.paper().settings, max_epochs=10, patience=EPOCHS)
    paper = Quadratic(few)
    Quadratic(replace(few, max_epochs=1)).estimate(evidence)
    ours = {
        "ensemble": timed(lambda: MLP().fit(x, y, keys).predict(problem.pool.x)) / RUNS,
        "quadratic": timed(lambda: paper.fit(evidence)) / RUNS * EPOCHS / few.max_epochs,
        "direct": timed(lambda: Direct().estimate(evidence)) / RUNS,
    }
    side = evidence.side_information().float()
    rows_side = side.gather(1, index[..., None].expand(-1, -1, 4))
    residual = (predictions.mean(1).gather(1, index) - y).float()
    valid = torch.ones(RUNS, rows, dtype=torch.bool)
    split = split_pairs(keys, valid, 0.15)

    def plain_ensemble() -> None:
        for member in range(5):
            seen = ~fitted.unseen[0, member]
            a, b = x[0, seen].float(), y[0, seen].float()
            net = stack((2, 32, 32, 16, 1), lambda size: nn.ReLU())
            optimiser = torch.optim.Adam(net.parameters(), 1e-3)
            best, waited = np.inf, 0
            for _ in range(500):
                optimiser.zero_grad()
                loss = nn.functional.mse_loss(net(a)[:, 0], b)
                loss.backward()
                optimiser.step()
                value = float(loss.detach())
                best, waited = (value, 0) if value < best - 1e-4 else (best, waited + 1)
                if waited > 10:
                    break
            with torch.no_grad():
                net(problem.pool.x.float())

    def plain_quadratic() -> float:
        i, j = torch.tril_indices(rows, rows)
        kind = split[0, i, j]
        columns = rows_side[0, i], rows_side[0, j], residual[0, i] * residual[0, j]
        train = DataLoader(TensorDataset(*(c[kind == 1] for c in columns)), batch_size=few.batch_size, shuffle=True)
        held = [c[kind == 2] for c in columns]
        epoch = pair_epoch(train, held)
        return min(timed(epoch) for _ in range(2)) * EPOCHS

    def plain_direct() -> None:
        kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RBF([1.0] * 4, (1e-2, 1e2))
        model = GaussianProcessRegressor(kernel, alpha=1e-6, normalize_y=True)
        model.fit(rows_side[0].double().numpy(), residual[0].double().numpy()).predict(side[0].double().numpy())

    plain = {"ensemble": timed(plain_ensemble), "quadratic": plain_quadratic(), "direct": timed(plain_direct)}
    return {"ours": ours, "plain PyTorch": plain, "epochs": {"network": float(fitted.epochs.double().mean())}}


def grid(seconds: dict[int, dict[str, float]]) -> float:
    """Seconds of all 45,000 rounds, by linear interpolation in the number of points."""
    sizes = np.array(sorted(seconds))
    total = 0.0
    for setting in (SINGLE, BATCH):
        lanes = Plan(tuple(FIGURES), presets=("learns",)).jobs()[0 if setting == SINGLE else len(INITIALS)][2]
        words = [word for word, _ in lanes]
        for initial in INITIALS:
            for k in range(setting.rounds):
                points = initial + k * setting.batch_size
                parts = seconds[sizes[0]]
                at = {part: float(np.interp(points, sizes, [seconds[s][part] for s in sizes])) for part in parts}
                fits = {
                    "ensemble": len(words),
                    **{b: sum(f":{b}" in w for w in words) for b in ("direct", "quadratic")},
                }
                total += len(TYPES) * RUNS * sum(at[part] * count for part, count in fits.items())
    return total


def main(
    points: str = "20,100,200",
    pyrelational: Annotated[str | None, typer.Option(help="Python of an environment with PyRelationAL 1.0.2")] = None,
) -> None:
    warnings.filterwarnings("ignore")
    sizes = numbers(points)
    measured = {rows: measure(rows) for rows in sizes}
    table = {way: {rows: measured[rows][way] for rows in sizes} for way in ("ours", "plain PyTorch")}
    if pyrelational:
        script = Path(__file__).resolve().with_name("pyrelational_round.py")
        command = [pyrelational, str(script), "30", *map(str, sizes)]
        with tempfile.TemporaryDirectory() as folder:  # Lightning leaves logs where it runs
            done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
        rounds = json.loads(done.stdout.strip().splitlines()[-1])
        table["PyRelationAL"] = {
            rows: {
                **measured[rows]["plain PyTorch"],
                "ensemble": rounds[str(rows)][0] * measured[rows]["epochs"]["network"] + rounds[str(rows)][1],
            }
            for rows in sizes
        }
    hours = {way: grid(parts) / 3600 for way, parts in table.items()}
    header("seconds per round", "points", "ensemble", "Q", "Gaussian process")
    for way, parts in table.items():
        for rows, part in parts.items():
            row(way, rows, *(f"{part[name]:.3f}" for name in ("ensemble", "quadratic", "direct")))
    print()
    header("whole grid, extrapolated", "hours", "times ours")
    for way, value in hours.items():
        row(way, f"{value:.2f}", f"{value / hours['ours']:.0f}")


if __name__ == "__main__":
    command(main)
