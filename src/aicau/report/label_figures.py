"""The figures of a report about labels, as SVG text."""

import numpy as np
from matplotlib.ticker import MaxNLocator

from aicau.report.data import Labels
from aicau.report.figures import (
    BLUE,
    INK,
    MOST_BATCHES,
    ORANGE,
    SOFT,
    _figure,
    _label,
    _names,
    _short,
    _svg,
    legend,
)

MOST_CELLS = 12  # classes up to which the numbers stand in the cells


def confusion(labels: Labels) -> str:
    """Labels told against labels predicted, as shares of what was told."""
    table = np.array(labels.confusion, dtype=float)
    if not table.size or not table.sum():
        return ""
    figure, axes = _figure(5, 3.3)
    axes.grid(False)
    share = table / np.maximum(table.sum(1, keepdims=True), 1)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    names = [_short(name, 12) for name in labels.names]
    at = np.arange(len(names))
    every = max(1, len(names) // MOST_CELLS)
    turn = 30 if sum(len(name) for name in names) > 45 else 0
    axes.set_xticks(at[::every], names[::every], rotation=turn, ha="right" if turn else "center")
    axes.set_yticks(at[::every], names[::every])
    if len(names) <= MOST_CELLS:
        for row, column in np.ndindex(*table.shape):
            colour = "white" if share[row, column] > 0.55 else INK
            axes.text(column, row, f"{table[row, column]:.0f}", ha="center", va="center", color=colour, fontsize=9)
    _label(axes, "predicted, out of fold", "label told")
    return _svg(figure, "confusion", "Labels told against labels predicted out of fold")


def disagreement(labels: Labels) -> str:
    """Candidates with several labels: whether these agree, by the most frequent one."""
    if not sum(labels.agree) + sum(labels.differ):
        return ""
    figure, axes = _figure(5, 3.3)
    at = np.arange(len(labels.names))
    axes.bar(at, labels.agree, 0.68, color=BLUE, label="all labels agree")
    axes.bar(at, labels.differ, 0.68, bottom=labels.agree, color=ORANGE, label="labels differ")
    _names(axes, labels.names, 45)
    axes.set_ylim(0, 1.25 * max(a + b for a, b in zip(labels.agree, labels.differ, strict=True)))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _label(axes, "most frequent label of a candidate", "candidates with several labels")
    axes.legend(frameon=False, fontsize=9, ncol=2, loc="upper right")
    return _svg(figure, "disagreement", "Candidates with several labels that agree or differ, by their main label")


def shares(labels: Labels, batch: str | None) -> str:
    """Share of each label in each batch."""
    rows = labels.batches[-MOST_BATCHES:]
    if not rows:
        return ""
    figure, axes = _figure(10.4, 2.9)
    table = np.array([counts for _, counts in rows], dtype=float)
    part = table / np.maximum(table.sum(1, keepdims=True), 1)
    base = np.zeros(len(rows))
    for at, (colour, label) in enumerate(legend(labels.names)):
        axes.bar(np.arange(len(rows)), part[:, at], 0.68, bottom=base, color=colour, label=label)
        base += part[:, at]
    for at, total in enumerate(table.sum(1)):
        axes.text(at, 1.01, f"{total:.0f}", ha="center", va="bottom", color=SOFT, fontsize=8.5)
    _names(axes, [name for name, _ in rows], 110)
    axes.set_ylim(0, 1.1)
    axes.yaxis.set_major_formatter(lambda v, _: f"{v:.0%}")
    _label(axes, batch or "batch", "share of labels")
    figure.legend(frameon=False, fontsize=9, loc="outside right upper")
    return _svg(figure, "shares", "Share of each label in each batch, with the number of labels")
