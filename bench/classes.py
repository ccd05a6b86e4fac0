"""The suite `classes`: three classes with label noise that depends on place, and where its queries go.

| panel | labels |
|---|---|
| class1 | always right |
| class2, class2x4 | wrong independently, in some places more; four times as often |
| class3, class3x4 | the same, and those of one round are wrong together |

Each from 20 and from 100 labels, 10 rounds of 10. The error is the excess log loss. Methods that look at uncertainty
alone are also drawn by how many of their queries fall where labels are pure noise.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from aicau import problems
from aicau.core.task import Task
from aicau.problems import Problem
from aicau.simulation.curves import COLOURS, DASHES, quiet
from aicau.strategy import DEFAULTS
from bench.words import table

TASK = Task("classification", 3)
DEFAULT = DEFAULTS[TASK.name]
KINDS = {"class1": ("class1", 1.0), "class2": ("class2", 1.0), "class3": ("class3", 1.0)}
KINDS |= {"class2x4": ("class2", 4.0), "class3x4": ("class3", 4.0)}
INITIALS, ROUNDS = (20, 100), 10
SIMPLE = ("random", "farthest", "entropy", "margin", "lc", "bald")
STRONG = ("entropy", "margin", "lc", "bald", "batchbald")
DIFFERENCES = ("entropy:difference", "lc:difference")
OURS = (DEFAULT, "br:posterior:spread")
REFERENCE = "br:perfect:spread"
DRAWN = ("entropy", "lc", "margin", *DIFFERENCES, DEFAULT, REFERENCE)  # where their queries go


@dataclass(frozen=True)
class Panel:
    """One problem from one number of initial points."""

    name: str
    problem: Problem
    initial: int
    batch_size: int
    rounds: int = ROUNDS


def panels() -> list[Panel]:
    made = {name: problems.make(kind, noise_scale=scale) for name, (kind, scale) in KINDS.items()}
    return [Panel(f"{name}-{initial}", one, initial, 10) for initial in INITIALS for name, one in made.items()]


def lineup(batchbald: bool) -> tuple[tuple[str, ...], list[str]]:
    """Every method that can take part, and a sentence about the one that may be missing."""
    words = (*SIMPLE, *DIFFERENCES, REFERENCE, *OURS)
    if batchbald:
        return (*words, "batchbald"), []
    return words, ["Not installed, so not compared: batchbald (see bench.peers.batchbald)."]


def noise_shares(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """For panels with independent noise: what share of a round's queries falls where labels are pure noise.

    Round × method, mean over runs.
    """
    pure = problems.class2().pure_noise.numpy()
    out = {}
    for panel in frame["panel"].unique():
        if panel.split("-")[0] not in ("class2", "class2x4"):
            continue
        rows = frame[(frame["panel"] == panel) & (frame["round"] > 0)]
        share = [float(pure[np.array(text.split(), dtype=np.int64)].mean()) for text in rows["queried"]]
        out[str(panel)] = rows.assign(share=share).pivot_table(index="round", columns="strategy", values="share")
    return out


def noise_lines(frame: pd.DataFrame) -> list[str]:
    """The same as a table: percent of the labels of the last five rounds."""
    shares = noise_shares(frame)
    if not shares:
        return []
    words = list(next(iter(shares.values())).columns)
    lines = [
        "## Labels asked for where there is nothing to learn",
        "",
        "Percent of the labels of the last five rounds that fall into the disc of pure noise, which is"
        f" {100 * area():.0f}% of the pool.",
        "",
        "![labels asked for in pure noise](label-noise.png)",
        "",
    ]
    rows = ([f"`{word}`", *(f"{100 * float(s[word].tail(5).mean()):.0f}" for s in shares.values())] for word in words)
    return lines + table(["method", *shares], rows)


def area() -> float:
    """Share of the pool where labels are pure noise."""
    return float(problems.class2().pure_noise.double().mean())


def noise_figure(shares: dict[str, pd.DataFrame]) -> Figure:
    """One panel each: what share of a round's labels is asked for where there is nothing to learn."""
    figure = Figure(figsize=(4.6 * len(shares) + 2.4, 3.9), layout="constrained")
    grid = np.asarray(figure.subplots(1, len(shares), squeeze=False, sharey=True)).reshape(-1)
    for axes, (title, share) in zip(grid, shares.items(), strict=True):
        for number, word in enumerate(word for word in DRAWN if word in share):
            colour, (dash, width) = COLOURS[number % len(COLOURS)], (DASHES[1], 1.6) if word in SIMPLE else ("-", 2.4)
            axes.plot(share.index, 100 * share[word], color=colour, linestyle=dash, lw=width, label=word)
        axes.axhline(100 * area(), color="#777777", lw=1.4, ls=(0, (1, 2)), label="share of the pool")
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("round")
        axes.set_xticks(range(2, int(share.index[-1]) + 1, 2))
        axes.set_ylim(0, None)
        quiet(axes, "y")
    grid[0].set_ylabel("labels asked for in pure noise, %")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    return figure
