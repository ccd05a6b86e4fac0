"""Which strategy wins where: Type III over the strength of the noise and the length over which it is shared."""

import json
import math
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from aicau import problems
from aicau.core import checks
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError, unknown
from aicau.core.statistics import Interval, paired_ratio
from aicau.ensembles import ENSEMBLES, Ensemble
from aicau.paper.plan import Report, silent
from aicau.paper.reproduce import Folder
from aicau.simulation.curves import COLOURS
from aicau.simulation.simulate import simulate
from bench.methods import DEFAULT, method
from bench.words import cell, table

HANDFUL = ("random", "farthest", "pemse:quadratic:eigen", "pemse:direct:spread", DEFAULT)
SCALES = (0.5, 1.0, 2.0, 5.0)
LENGTHS = (0.2, 0.8, math.pi / 2, 5.0)


@dataclass(frozen=True)
class Grid:
    """The cells of the diagram and what runs in each."""

    strategies: tuple[str, ...] = HANDFUL
    runs: int = 10
    seed: int = 0
    ensemble: str = "paper"
    scales: tuple[float, ...] = SCALES
    lengths: tuple[float, ...] = LENGTHS
    initial: int = 10
    batch_size: int = 10
    rounds: int = 10
    side: int = 50  # points along each side of the pool

    def __post_init__(self) -> None:
        if len(set(self.strategies)) < 2:
            raise InputError("a phase diagram needs at least two strategies")
        if self.ensemble not in ENSEMBLES:
            raise unknown("ensemble", self.ensemble, list(ENSEMBLES))
        checks.positive(self.runs, "runs")


def run(
    grid: Grid,
    device: str = "auto",
    report: Report = silent,
    ensemble: Ensemble | None = None,
    engine: Engine = HERE,
) -> pd.DataFrame:
    """Final errors: noise_scale, length, strategy, run, mse."""
    model = ENSEMBLES[grid.ensemble]() if ensemble is None else ensemble
    for word in grid.strategies:
        method(word)  # a name that means nothing is said before anything runs
    cells = list(product(grid.scales, grid.lengths))
    rows: list[tuple[float, float, str, int, float]] = []
    report("cells", 0, len(cells))
    for done, found in enumerate(engine.over(partial(compute, grid, device, model), cells, device), 1):
        rows += found
        report("cells", done, len(cells))
    return pd.DataFrame(rows, columns=["noise_scale", "length", "strategy", "run", "mse"])


def compute(
    grid: Grid, device: str, ensemble: Ensemble, cell: tuple[float, float]
) -> list[tuple[float, float, str, int, float]]:
    """Final errors of one cell, a noise scale and a length."""
    words = tuple(dict.fromkeys(grid.strategies))
    problem = problems.make("type3", grid=grid.side, noise_scale=cell[0], correlation_length=cell[1])
    sizes = grid.initial, grid.batch_size, grid.rounds, grid.runs, grid.seed
    final = simulate(problem, [method(word) for word in words], *sizes, device, ensemble).mse[..., -1]
    return [(*cell, word, run, float(final[at, run])) for at, word in enumerate(words) for run in range(grid.runs)]


def winners(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: the lowest mean error, the second, and their paired ratio; decided where it excludes 1."""
    out = []
    for (scale, length), part in frame.groupby(["noise_scale", "length"], sort=True):
        table = part.pivot(index="run", columns="strategy", values="mse")
        first, second = (str(word) for word in table.mean().sort_values(kind="stable").index[:2])
        against = paired_ratio(table[first].to_numpy(), table[second].to_numpy())
        row = {"noise_scale": scale, "length": length, "winner": first, "mse": float(table[first].to_numpy().mean())}
        row |= {"second": second, "ratio": against.mean, "low": against.low, "high": against.high}
        out.append({**row, "decided": bool(against.high < 1)})
    return pd.DataFrame(out)


def draw(cells: pd.DataFrame, words: tuple[str, ...], runs: int) -> Figure:
    """A cell is coloured by its winner; pale and hatched where the second may be as good."""
    scales, lengths = sorted(cells["noise_scale"].unique()), sorted(cells["length"].unique())
    figure = Figure(figsize=(2.0 * len(lengths) + 3.4, 1.25 * len(scales) + 1.9), layout="constrained")
    axes = figure.add_subplot()
    colours = {word: COLOURS[number % len(COLOURS)] for number, word in enumerate(words)}
    for row in cells.itertuples():
        x, y = lengths.index(row.length), scales.index(row.noise_scale)
        colour = colours[str(row.winner)]
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour, alpha=0.75 if row.decided else 0.3, lw=0))
        if not row.decided:
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, hatch="//", edgecolor="white", lw=0))
        text = f"{row.winner}\nMSE {row.mse:.3f}\n{row.ratio:.2f} of\n{row.second}"
        axes.text(x, y, text, ha="center", va="center", fontsize=9, linespacing=1.25)
    axes.set_xlim(-0.5, len(lengths) - 0.5)
    axes.set_ylim(-0.5, len(scales) - 0.5)
    axes.set_xticks(range(len(lengths)), [_length(value) for value in lengths])
    axes.set_yticks(range(len(scales)), [f"× {value:g}" for value in scales])
    axes.set_xlabel("length over which noise is shared (the pool is 2π wide)")
    axes.set_ylabel("noise, times the paper's")
    axes.set_title(f"Lowest mean final error, Type III, {runs} paired runs", fontsize=11)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    present = [word for word in words if word in set(cells["winner"])]
    handles = [Patch(color=colours[word], alpha=0.75, label=word) for word in present]
    handles.append(Patch(facecolor="#BBBBBB", hatch="//", edgecolor="white", label="the second may be as good"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def diagram(
    grid: Grid,
    out: Path,
    device: str = "auto",
    report: Report = silent,
    begin: float | None = None,  # when the command started, on the clock of time.perf_counter
    ensemble: Ensemble | None = None,
    engine: Engine = HERE,
) -> dict[str, object]:
    """The diagram under `out`: every final error, the winners, the picture, phase.md; summary.json last."""
    folder = Folder(out, begin)
    frame = run(grid, device, report, ensemble, engine)
    cells = winners(frame)
    folder.add("phase-runs.csv", frame)
    folder.add("phase.csv", cells)
    folder.add("phase.png", draw(cells, tuple(dict.fromkeys(grid.strategies)), grid.runs))
    folder.add("phase.md", to_markdown(cells, grid))
    about = {"suite": "phase", "runs": grid.runs, "seed": grid.seed, "ensemble": grid.ensemble}
    return folder.close({}, **about, cells=json.loads(cells.to_json(orient="records")))


def to_markdown(cells: pd.DataFrame, grid: Grid) -> str:
    """The winners as a table."""
    lines = [
        "# Which strategy wins where",
        "",
        f"Type III, {grid.initial} initial points, {grid.rounds} rounds of {grid.batch_size}, {grid.runs} paired runs;"
        f" {', '.join(f'`{word}`' for word in grid.strategies)} took part. The ratio is of the winner's final error to"
        " the second's, with its 95% interval: decided where it lies below 1. The winner was picked on the same runs,"
        " so a close call is closer than it looks.",
        "",
        "![phase diagram](phase.png)",
        "",
    ]
    rows = []
    for one in cells.itertuples():
        place = [f"× {one.noise_scale:g}", _length(one.length), f"`{one.winner}`", f"{one.mse:.4f}"]
        ratio = cell(Interval(one.ratio, one.low, one.high))
        rows.append([*place, f"`{one.second}`", ratio, "yes" if one.decided else "no"])
    return "\n".join(lines + table(["noise", "length", "winner", "MSE", "second", "ratio", "decided"], rows))


def _length(value: float) -> str:
    return "π/2" if math.isclose(value, math.pi / 2) else f"{value:g}"
