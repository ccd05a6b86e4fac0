"""Does Q learn? Its validation loss beside predicting zero and the mean, by betas, mini-batches and number of points.

    python benchmarks/q_learning.py [--runs 4] [--points 10,20,35,65,100,150,200] [--types type2] [--only 128,usual]
                                    [--device auto] [--streams] [--epochs 2000] [--out FILE]

Random points of the paper's problems, its ensemble, and Q on the residuals. One row per setting and number of points:
the share of fits whose validation loss is below that of Δ = 0 and of the mean of the training pairs, the median ratios,
the epochs, and the error of the off-diagonal entries of Δ̂ over unmeasured points (relative to Δ = 0) beside that
of direct estimation.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer

from aicau import MLP, Direct, Evidence, Observations, Quadratic, problems
from aicau.core import checks, streams
from aicau.core.omega import Omega
from aicau.ensembles.kernels import EmbeddingSettings
from common import command, numbers

USUAL, PRINTED = (0.9, 0.999), (0.999, 0.9)
SETTINGS = {
    f"{size or 'full'},{name}": EmbeddingSettings(batch_size=size, betas=betas)
    for name, betas in (("usual", USUAL), ("printed", PRINTED))
    for size in (32, 128, 256, 512, None)
}
SOME = 300  # unmeasured points whose entries of Δ are compared


def evidence(kind: str, rows: int, runs: int, device: torch.device) -> tuple[Evidence, torch.Tensor]:
    """What an estimator sees after `rows` random points, and the true bias over the pool."""
    problem = problems.make(kind).to(device)
    keys = streams.runs(0, runs, device)
    index = streams.permutation(keys, problem.pool.n)[:, :rows]
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    predictions = MLP().fit(problem.pool.x[index], y, keys).predict(problem.pool.x)
    seen = Observations(index, y, torch.zeros(rows, dtype=torch.int64, device=device))
    return Evidence(problem.pool.x, seen, predictions, keys), predictions.double().mean(-2) - problem.truth


def off_diagonal(found: Omega, truth: torch.Tensor, seen: Observations) -> torch.Tensor:  # (runs,)
    """Σ (Δ̂ − Δ)² / Σ Δ² over pairs of different points that were not measured."""
    out = []
    for run, bias in enumerate(truth):
        rest = torch.ones_like(bias, dtype=torch.bool)
        rest[seen.index[run]] = False
        some = rest.nonzero()[:, 0]
        some = some[torch.linspace(0, len(some) - 1, SOME, device=some.device).long()]
        factor = found.factor[run, some].double()
        guess, true = (factor * found.signs[run].double()) @ factor.mT, bias[some, None] * bias[None, some]
        apart = ~torch.eye(SOME, dtype=torch.bool, device=bias.device)
        out.append((((guess - true) ** 2)[apart].sum() / (true**2)[apart].sum()).cpu())
    return torch.stack(out)


def row(kind: str, rows: int, name: str, known: Evidence, truth: torch.Tensor, direct: float, epochs: int) -> str:
    """One line of the table."""
    quadratic = Quadratic(replace(SETTINGS[name], max_epochs=epochs))
    begin = time.perf_counter()
    fitted = quadratic.fit(known)
    zero, mean = (fitted.losses.double() / base for base in fitted.baselines())
    best = fitted.epochs.double().median()
    below = [f"{float((part < 1).double().mean()):.2f}" for part in (zero, mean)]
    losses = [f"{float(part.median()):.3f}" for part in (zero, mean)]
    seconds = time.perf_counter() - begin
    entries = float(off_diagonal(quadratic.estimate(known, fitted), truth, known.observations).median())
    cells = [kind, str(rows), name, *below, *losses, f"{float(best):.0f}", f"{entries:.2f}", f"{direct:.2f}"]
    return f"| {' | '.join(cells)} | {seconds:.1f} |"


def main(
    runs: int = 4,
    points: str = "10,20,35,65,100,150,200",
    types: str = "type2",
    only: list[str] = list(SETTINGS),  # noqa: B006
    most: Annotated[int, typer.Option(help="Points up to which mini-batches of 32 are tried")] = 100,
    epochs: int = 2000,
    device: str = "auto",
    at_once: Annotated[
        bool, typer.Option("--streams", help="All settings at once, each on a CUDA stream of its own")
    ] = False,
    out: Path | None = None,
) -> None:
    place = checks.pick_device(device)
    lines = [
        "| Type | points | batch, betas | below zero | below mean | loss / zero | loss / mean | epochs |"
        " off-diagonal: Q | direct | seconds |",
        "|---" * 11 + "|",
    ]
    print("\n".join(lines), flush=True)
    known = {(kind, n): evidence(kind, n, runs, place) for kind in types.split(",") for n in numbers(points)}
    direct = {
        key: float(off_diagonal(Direct().estimate(e), t, e.observations).median()) for key, (e, t) in known.items()
    }

    def setting(name: str) -> None:
        with torch.cuda.stream(torch.cuda.Stream(place)) if at_once else nullcontext():
            for (kind, n), (seen, truth) in known.items():
                if n <= most or not name.startswith("32,"):
                    lines.append(row(kind, n, name, seen, truth, direct[kind, n], epochs))
                    print(lines[-1], flush=True)
                    if out:
                        out.write_text("\n".join(lines[:2] + sorted(lines[2:])) + "\n")

    if at_once:
        first = next(iter(known.values()))[0]
        for name in ("128,usual", "full,usual"):  # compiled once, by one thread
            Quadratic(replace(SETTINGS[name], max_epochs=1)).fit(first)
    with ThreadPoolExecutor(len(only) if at_once else 1) as pool:
        list(pool.map(setting, only))


if __name__ == "__main__":
    command(main)
