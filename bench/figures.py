"""Pictures of the comparison: learning curves of the panels, and average ranks with their critical difference."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from aicau.simulation.curves import COLOURS, DASHES, log_ticks, quiet
from bench.methods import OURS, REFERENCE
from bench.scores import Ranks
from bench.suites import Outcome

SHOWN = 12  # methods drawn beside the references
ALWAYS = ("random", "farthest", "lc", REFERENCE, *OURS)
Pair = tuple[float, float]
KIND = {"simple": "#222222", "paper": "#E69F00", "ours": "#0072B2", "peer": "#009E73", "other": "#CC79A7"}


def curves(outcome: Outcome, ranks: Ranks | None) -> Figure:
    """One panel each: geometric mean over runs; the best dozen methods and the references."""
    frame = outcome.frame
    panels, words = list(frame["panel"].unique()), shown(outcome, ranks)
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    figure, grid = _grid(len(panels), columns, (4.3, 3.4), (2.9, 0.6))
    for axes, panel in zip(grid, panels, strict=False):
        part = frame[frame["panel"] == panel]
        for number, word in enumerate(words):
            table = part[part["strategy"] == word].pivot(index="run", columns="points", values="mse")
            _curve(axes, table.columns.to_numpy(), table.to_numpy(), word, number, word == outcome.settings.default)
        axes.set_yscale("log")
        log_ticks(axes)
        axes.set_title(panel, fontsize=11)
        axes.set_xlabel("measurements")
    for axes in grid[::columns]:
        axes.set_ylabel(f"{outcome.settings.error} to the truth")
    handles, labels = grid[0].get_legend_handles_labels()
    labels = [f"{label} (knows the truth)" if label == REFERENCE else label for label in labels]
    title = "best average rank first" if ranks is not None else None
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=9, title=title)
    return figure


def campaigns(frame: pd.DataFrame) -> Figure:
    """Geometric means over runs of what a laboratory gets, over all sets and for each."""
    panels, words = ["all sets", *frame["panel"].unique()], list(frame["strategy"].unique())
    figure, grid = _grid(len(panels), min(5, len(panels)), (2.7, 2.4), (1.6, 0.0))
    for axes, panel in zip(grid, panels, strict=False):
        part = frame if panel == "all sets" else frame[frame["panel"] == panel]
        at = part.groupby("round")["points"].mean().to_numpy()  # sets begin with different numbers
        for number, word in enumerate(words):
            own = part[part["strategy"] == word]
            table = own.pivot_table(index=["panel", "run"], columns="round", values="mse")
            _curve(axes, at, table.to_numpy(), word, number, word == "aicau")
        axes.set_yscale("log")
        log_ticks(axes)
        axes.set_title(panel, fontsize=10, fontweight="bold" if panel == "all sets" else "normal")
    figure.supxlabel("measurements")
    figure.supylabel("squared error to the truth")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    return figure


def _grid(count: int, columns: int, size: Pair, more: Pair) -> tuple[Figure, list[Axes]]:
    """Panels of a size in rows of so many, with more space for the legend and the titles."""
    rows = -(-count // columns)
    figure = Figure(figsize=(size[0] * columns + more[0], size[1] * rows + more[1]), layout="constrained")
    grid = list(np.asarray(figure.subplots(rows, columns, squeeze=False)).flat)
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, grid


def shown(outcome: Outcome, ranks: Ranks | None) -> list[str]:
    """References, ours, the best of the peers, and the best of the rest up to a dozen; in the order of their ranks."""
    there = [str(word) for word in outcome.frame["strategy"].unique()]
    order = [str(word) for word in ranks.mean.index] if ranks is not None else there
    order += [word for word in there if word not in order]
    peer = next((word for word in order if word in outcome.settings.strong), None)
    must = {word for word in there if word in (*ALWAYS, outcome.settings.default, peer)}
    rest = [word for word in order if word not in must][: max(0, SHOWN - len(must))]
    return [word for word in order if word in must or word in rest]


def _curve(axes: Axes, x: object, mse: object, word: str, number: int, bold: bool) -> None:
    values, at = np.log(np.asarray(mse)), np.asarray(x)
    style: dict[str, object] = {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[1 + number % (len(DASHES) - 1)],
        "lw": 1.2,
    }
    if bold:
        style = {"color": "#D00000", "linestyle": "-", "lw": 2.6, "zorder": 5}
    elif word == REFERENCE:
        style = {"color": "#999999", "linestyle": "-", "lw": 2.6, "zorder": 1}
    elif word == "random":
        style = {"color": "#000000", "linestyle": (0, (1, 1)), "lw": 2.0, "zorder": 4}
    elif word == "farthest":
        style = {"color": "#000000", "linestyle": (0, (5, 2)), "lw": 1.6, "zorder": 4}
    axes.plot(at, np.exp(values.mean(0)), label=word, **style)  # type: ignore[arg-type]


def critical_difference(ranks: Ranks, families: dict[str, str], default: str) -> Figure:
    """Average ranks, best on top; bars half a critical difference long to each side: apart means different."""
    words = [str(word) for word in ranks.mean.index]
    figure = Figure(figsize=(8.0, 1.6 + 0.26 * len(words)), layout="constrained")
    axes = figure.add_subplot()
    half = ranks.difference / 2
    axes.axvspan(ranks.mean.iloc[0] - half, ranks.mean.iloc[0] + half, color="#DDE8F2", zorder=0)
    for at, word in enumerate(words):
        value, colour = float(ranks.mean[word]), KIND.get(families[word], "#777777")
        axes.plot([value - half, value + half], [at, at], color=colour, lw=2, alpha=0.55, solid_capstyle="butt")
        axes.plot([value], [at], marker="o", ms=6, color=colour)
        axes.annotate(
            f"{value:.1f}", (value + half, at), xytext=(4, 0), textcoords="offset points", va="center", size=8
        )
    axes.set_yticks(range(len(words)), words, fontsize=9)
    for label, word in zip(axes.get_yticklabels(), words, strict=True):
        label.set_fontweight("bold" if word == default else "normal")
    axes.set_ylim(len(words) - 0.4, -0.6)
    axes.set_xlabel("average rank over panels and runs (1 is best)")
    axes.set_title(
        f"Two methods differ where their bars do not overlap\n(critical difference {ranks.difference:.2f},"
        f" Nemenyi 5%, {ranks.blocks} blocks; shaded: the bar of the best)",
        fontsize=10,
    )
    quiet(axes, "x")
    kinds = dict.fromkeys(families[word] for word in words)
    handles = [Line2D([], [], marker="o", color=KIND.get(kind, "#777777"), lw=2, label=kind) for kind in kinds]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    return figure
