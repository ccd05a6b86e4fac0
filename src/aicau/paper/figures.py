"""The figures of the paper as six panels: types across, initial points down; one legend for all."""

from itertools import product
from typing import Any

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

GREY = "#777777"
TITLES = {"type1": "Type I, no noise", "type2": "Type II, uncorrelated", "type3": "Type III, correlated"}


def draw(outcome: Outcome, name: str) -> Picture:
    """Learning curves, or for `batching` the distribution over the last 10 iterations and all runs."""
    frame, kinds, initials = outcome.figure(name), outcome.plan.types, outcome.plan.initials
    picture = Picture(figsize=(4.1 * len(kinds), 3.1 * len(initials) + 1.0), layout="constrained")
    grid = np.asarray(picture.subplots(len(initials), len(kinds), squeeze=False, sharey="row"))
    for axes, (initial, kind) in zip(grid.flat, product(initials, kinds), strict=True):
        panel = frame[(frame["type"] == kind) & (frame["initial"] == initial)]
        (_boxes if name == "batching" else _curves)(axes, panel, name)
        axes.set_yscale("log")
        log_ticks(axes)
        axes.set_title(f"{TITLES[kind]}, {initial} initial points", fontsize=10)
    for axes in grid[:, 0]:
        axes.set_ylabel("MSE to the truth")
    handles = _key() if name == "batching" else grid[0, 0].get_legend_handles_labels()[0]
    columns = 6 if name == "batching" else 4
    picture.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    return picture


def _curves(axes: Axes, panel: pd.DataFrame, name: str) -> None:
    words = [panel[panel["strategy"] == word] for word in FIGURES[name].strategies]
    lines = [(preset, rows) for own in words for preset, rows in own.groupby("preset", sort=False)]
    for number, (preset, rows) in enumerate(lines):
        table, word = rows.pivot_table(index="run", columns="points", values="mse"), rows["strategy"].iloc[0]
        label = word if preset == ANY else f"{word} ({preset})"
        curve(axes, table.columns.to_numpy(), table.to_numpy(), label, number)
    axes.set_xlabel("measurements")


def _boxes(axes: Axes, panel: pd.DataFrame, name: str) -> None:
    tail = panel[panel["round"] > panel["round"].max() - 10]
    tail = tail[tail["round"] > 0]
    last = panel[panel["round"] == panel["round"].max()]
    presets = {"perfect": [ANY], "direct": [ANY], "quadratic": [p for p in panel["preset"].unique() if p != ANY]}
    # What stands together, its name, the preset of its Q, and its colour.
    groups: list[tuple[tuple[str, ...], str, str, str]] = [(CANONICAL, "LC, BALD", ANY, GREY)]
    for colour, (bias, own) in zip(COLOURS, presets.items(), strict=False):
        groups += [(tuple(w for w in BATCHED if f":{bias}:" in w), bias, preset, colour) for preset in own]
    at, ticks = 0.0, []
    for group, kind, preset, colour in groups:
        begin = at
        for word in group:
            here = [rows[(rows["strategy"] == word) & (rows["preset"] == preset)]["mse"] for rows in (tail, last)]
            if not here[0].empty:
                _box(axes, at, word, here[0].to_numpy(), float(here[1].mean()), colour)
            at += 1
        ticks.append(((begin + at - 1) / 2, kind if preset == ANY else f"{kind}\n{preset}"))
        at += 1
    for rows, dash in ((tail, (0, (1, 1))), (last, (0, (5, 2)))):
        axes.axhline(rows[rows["strategy"] == "random"]["mse"].mean(), color="black", linestyle=dash, linewidth=1.1)
    axes.set_xticks([place for place, _ in ticks], [label for _, label in ticks], fontsize=8)


def _box(axes: Axes, at: float, word: str, values: NDArray[np.float64], final: float, colour: str) -> None:
    box = axes.boxplot(values, positions=[at], widths=0.7, whis=(5, 95), showfliers=False, patch_artist=True)
    box["boxes"][0].set(facecolor=colour, alpha=0.75 if "eigen" in word else 0.3, edgecolor=colour)
    box["boxes"][0].set_hatch("///" if word.endswith("difference") else "")
    box["medians"][0].set(color="black")
    axes.plot([at], [final], marker="D", ms=4.5, color="white", markeredgecolor="black", zorder=5)


def _key() -> list[Artist]:
    """What the looks of boxes and lines mean."""
    diamond: dict[str, Any] = {"color": "none", "markerfacecolor": "white", "markeredgecolor": "black"}
    return [
        Patch(facecolor=GREY, alpha=0.3, label="top"),
        Patch(facecolor=GREY, alpha=0.75, label="eigen"),
        Patch(facecolor="white", edgecolor=GREY, hatch="///", label="difference"),
        Line2D([], [], marker="D", label="final MSE", **diamond),
        Line2D([], [], color="black", linestyle=(0, (1, 1)), label="random, all iterations"),
        Line2D([], [], color="black", linestyle=(0, (5, 2)), label="random, final"),
    ]
