"""The figures of the paper as six panels: types across, initial points down; one legend for all."""

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from aicau.paper.plan import ANY, BATCHED, CANONICAL, FIGURES, Outcome
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
    number = 0
    for word in FIGURES[name].strategies:
        for preset, rows in panel[panel["strategy"] == word].groupby("preset", sort=False):
            table = rows.pivot_table(index="run", columns="points", values="mse")
            label = word if preset == ANY else f"{word} ({preset})"
            curve(axes, table.columns.to_numpy(), table.to_numpy(), label, number)
            number += 1
    axes.set_yscale("log")
    log_ticks(axes)
    axes.set_xlabel("measurements")


def _boxes(axes: Axes, panel: pd.DataFrame, name: str) -> None:
    tail = panel[panel["round"] > panel["round"].max() - 10]
    tail = tail[tail["round"] > 0]
    last = panel[panel["round"] == panel["round"].max()]
    at, ticks = 0.0, []
    for group, colour, preset in _groups(panel):
        begin = at
        for word in group:
            here = [rows[(rows["strategy"] == word) & (rows["preset"] == preset)]["mse"] for rows in (tail, last)]
            if not here[0].empty:
                _box(axes, at, word, here[0].to_numpy(), float(here[1].mean()), colour)
            at += 1
        name = "LC, BALD" if group == CANONICAL else group[0].split(":")[1]
        ticks.append(((begin + at - 1) / 2, name if preset == ANY else f"{name}\n{preset}"))
        at += 1
    for rows, dash in ((tail, (0, (1, 1))), (last, (0, (5, 2)))):
        axes.axhline(rows[rows["strategy"] == "random"]["mse"].mean(), color="black", linestyle=dash, linewidth=1.1)
    axes.set_yscale("log")
    log_ticks(axes)
    axes.set_xticks([place for place, _ in ticks], [label for _, label in ticks], fontsize=8)


def _groups(panel: pd.DataFrame) -> list[tuple[tuple[str, ...], str, str]]:
    """Strategies that stand together, their colour, and the preset of their Q."""
    presets = [preset for preset in panel["preset"].unique() if preset != ANY]
    kinds = [(bias, ANY) for bias in ("perfect", "direct")] + [("quadratic", preset) for preset in presets]
    estimates = [(tuple(w for w in BATCHED if f":{bias}:" in w), bias, preset) for bias, preset in kinds]
    colours = {"perfect": COLOURS[0], "direct": COLOURS[1], "quadratic": COLOURS[2]}
    return [(CANONICAL, "#777777", ANY), *((group, colours[bias], preset) for group, bias, preset in estimates)]


def _box(axes: Axes, at: float, word: str, values: NDArray[np.float64], final: float, colour: str) -> None:
    box = axes.boxplot(values, positions=[at], widths=0.7, whis=(5, 95), showfliers=False, patch_artist=True)
    box["boxes"][0].set(facecolor=colour, alpha=0.75 if "eigen" in word else 0.3, edgecolor=colour)
    box["boxes"][0].set_hatch("///" if word.endswith("difference") else "")
    box["medians"][0].set(color="black")
    axes.plot([at], [final], marker="D", ms=4.5, color="white", markeredgecolor="black", zorder=5)


def _legend(picture: Picture, axes: Axes, name: str) -> None:
    if name == "batching":
        handles: list[Artist] = [
            Patch(facecolor="#777777", alpha=0.3, label="top"),
            Patch(facecolor="#777777", alpha=0.75, label="eigen"),
            Patch(facecolor="white", edgecolor="#777777", hatch="///", label="difference"),
            Line2D(
                [], [], marker="D", color="none", markerfacecolor="white", markeredgecolor="black", label="final MSE"
            ),
            Line2D([], [], color="black", linestyle=(0, (1, 1)), label="random, all iterations"),
            Line2D([], [], color="black", linestyle=(0, (5, 2)), label="random, final"),
        ]
    else:
        handles = axes.get_legend_handles_labels()[0]
    columns = 6 if name == "batching" else 4
    picture.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
