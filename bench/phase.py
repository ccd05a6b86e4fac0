"""Which strategy wins where: Type III over the strength of the noise and the length over which it is shared."""

import json
import math
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from aicau.core.engine import HERE, Engine
from aicau.core.statistics import Interval, paired_ratio
from aicau.ensembles import Ensemble
from aicau.paper.plan import Report, silent
from aicau.paper.reproduce import Folder
from aicau.simulation.curves import COLOURS
from bench import suites
from bench.suites import Outcome, Settings
from bench.words import cell, table


def ends(outcome: Outcome) -> pd.DataFrame:
    """Final errors by cell: noise_scale, length, strategy, run, mse."""
    cells = [
        {"panel": p.name, "noise_scale": p.problem.noise_scale, "length": p.problem.correlation_length}
        for p in outcome.panels
    ]
    frame = outcome.frame.merge(pd.DataFrame(cells))
    last = frame[frame["round"] == frame["round"].max()]
    return last[["noise_scale", "length", "strategy", "run", "mse"]].reset_index(drop=True)


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


def draw(cells: pd.DataFrame, words: list[str], runs: int) -> Figure:
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
    settings: Settings,
    out: Path,
    device: str = "auto",
    report: Report = silent,
    begin: float | None = None,  # when the command started, on the clock of time.perf_counter
    ensemble: Ensemble | None = None,
    engine: Engine = HERE,
) -> dict[str, object]:
    """The diagram under `out`: every final error, the winners, the picture, phase.md; summary.json last."""
    folder = Folder(out, begin)
    outcome = suites.run(settings, device, report, ensemble, engine)
    frame, words = ends(outcome), list(outcome.frame["strategy"].unique())
    cells = winners(frame)
    folder.add("phase-runs.csv", frame)
    folder.add("phase.csv", cells)
    folder.add("phase.png", draw(cells, words, settings.runs))
    folder.add("phase.md", to_markdown(cells, words, outcome))
    about = {"suite": "phase", "runs": settings.runs, "seed": settings.seed, "ensemble": settings.ensemble}
    return folder.close(outcome.seconds, **about, cells=json.loads(cells.to_json(orient="records")))


def to_markdown(cells: pd.DataFrame, words: list[str], outcome: Outcome) -> str:
    """The winners as a table."""
    panel, runs = outcome.panels[0], outcome.settings.runs
    lines = [
        "# Which strategy wins where",
        "",
        f"Type III, {panel.initial} initial points, {panel.rounds} rounds of {panel.batch_size}, {runs} paired runs;"
        f" {', '.join(f'`{word}`' for word in words)} took part. The ratio is of the winner's final error to"
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
