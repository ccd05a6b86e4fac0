"""The figures of the paper as six panels: types across, initial points down; one legend for all."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from aicau.paper.plan import BATCHED, FIGURES, Outcome
from aicau.simulation.curves import COLOURS, curve, log_ticks

TITLES = {"type1": "Type I, no noise", "type2": "Type II, uncorrelated", "type3": "Type III, correlated"}


def draw(outcome: Outcome, name: str) -> Picture:
    """Learning curves, or for `batching` the distribution over the last 10 iterations and all runs."""
    frame = outcome.figure(name)
    kinds, initials = outcome.plan.types, outcome.plan.initials
    size = (4.1 * len(kinds), 3.1 * len(initials) + 1.0)
    picture = Picture(figsize=size, layout="constrained")
    grid = np.asarray(picture.subplots(len(initials), len(kinds), squeeze=False, sharey="row"))
    for row, initial in enumerate(initials):
        for column, kind in enumerate(kinds):
            axes: Axes = grid[row, column]
            panel = frame[(frame["type"] == kind) & (frame["initial"] == initial)]
            (_boxes if name == "batching" else _curves)(axes, panel, name)
            axes.set_title(f"{TITLES[kind]}, {initial} initial points", fontsize=10)
            if column == 0:
                axes.set_ylabel("MSE to the truth")
    _legend(picture, grid[0, 0], name)
    return picture


def _curves(axes: Axes, panel: pd.DataFrame, name: str) -> None:
    for number, word in enumerate(FIGURES[name].strategies):
        table = panel[panel["strategy"] == word].pivot_table(index="run", columns="points", values="mse")
        if not table.empty:
            curve(axes, table.columns.to_numpy(), table.to_numpy(), word, number)
    axes.set_yscale("log")
    log_ticks(axes)
    axes.set_xlabel("measurements")


def _boxes(axes: Axes, panel: pd.DataFrame, name: str) -> None:
    tail = panel[panel["round"] > panel["round"].max() - 10]
    tail = tail[tail["round"] > 0]
    last = panel[panel["round"] == panel["round"].max()]
    for at, word in enumerate(BATCHED):
        values = tail[tail["strategy"] == word]["mse"].to_numpy()
        if not len(values):
            continue
        colour = COLOURS[("perfect", "direct", "quadratic").index(word.split(":")[1])]
        box = axes.boxplot(
            values, positions=[at + at // 4], widths=0.7, whis=(5, 95), showfliers=False, patch_artist=True
        )
        box["boxes"][0].set(facecolor=colour, alpha=0.75 if "eigen" in word else 0.3, edgecolor=colour)
        box["boxes"][0].set_hatch("///" if word.endswith("difference") else "")
        box["medians"][0].set(color="black")
        final = last[last["strategy"] == word]["mse"].mean()
        axes.plot([at + at // 4], [final], marker="D", ms=4.5, color="white", markeredgecolor="black", zorder=5)
    for rows, dash in ((tail, (0, (1, 1))), (last, (0, (5, 2)))):
        axes.axhline(rows[rows["strategy"] == "random"]["mse"].mean(), color="black", linestyle=dash, linewidth=1.1)
    axes.set_yscale("log")
    log_ticks(axes)
    axes.set_xticks([1.5, 6.5, 11.5], ["perfect", "direct", "quadratic"])


def _legend(picture: Picture, axes: Axes, name: str) -> None:
    if name == "batching":
        handles = [
            Patch(facecolor="#777777", alpha=0.3, label="top"),
            Patch(facecolor="#777777", alpha=0.75, label="eigen"),
            Patch(facecolor="white", edgecolor="#777777", hatch="///", label="difference"),
            Line2D(
                [], [], marker="D", color="none", markerfacecolor="white", markeredgecolor="black", label="final MSE"
            ),
            Line2D([], [], color="black", linestyle=(0, (1, 1)), label="random, all iterations"),
            Line2D([], [], color="black", linestyle=(0, (5, 2)), label="random, final"),
        ]
        labels = [str(handle.get_label()) for handle in handles]
    else:
        drawn, labels = axes.get_legend_handles_labels()
        handles = list(drawn)
    columns = 6 if name == "batching" else 4
    picture.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
