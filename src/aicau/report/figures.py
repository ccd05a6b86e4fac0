"""The figures of a campaign, for Python and as SVG text for light and dark pages.

`figure` makes one of them for Python, `draw` all of them as text for the page. Blue is the model, orange is its bias or
what differs, grey is the pool. Backgrounds are transparent and colours are mid-tones. Words stay text, so that the
page's style sheet gives them font and colour; it also colours what has the group id "ink" here.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from aicau.campaign.setup import called
from aicau.report import svg
from aicau.report.data import Contents

BLUE, ORANGE, GREEN, GREY = "#2878BD", "#D9650F", "#1A9E77", "#98A1B0"
CLASSES = (BLUE, ORANGE, GREEN, "#C9709F", "#C99A12", "#4FA9DC", "#8A62AD", "#A6761D", "#6B7486", "#86A832")
MOST_BATCHES = 40  # drawn; the newest
MOST_CELLS = 12  # classes or batches up to which numbers are written beside them
STYLE: dict[Any, Any] = {
    "figure.figsize": (4.7, 3.2), "figure.constrained_layout.use": True, "figure.facecolor": "none",
    "axes.facecolor": "none", "axes.edgecolor": GREY, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": GREY, "grid.alpha": 0.25, "font.size": 9,
    "axes.labelsize": 9.5, "xtick.color": GREY, "ytick.color": GREY, "lines.linewidth": 1.8, "lines.markersize": 5,
    "legend.frameon": False, "legend.fontsize": 9, "legend.handlelength": 1.2, "legend.columnspacing": 1.2,
    "svg.fonttype": "none", "text.parse_math": False, "savefig.dpi": 200,
}  # fmt: skip


def draw(contents: Contents) -> dict[str, str]:
    """SVG text of every figure that has something to show, by name; the same numbers give the same text."""
    drawn = {name: figure(name, contents) for name in FIGURES}
    return {name: svg.text(one, name, STYLE, contents.titles) for name, one in drawn.items() if one is not None}


def figure(name: str, contents: Contents) -> Figure | None:
    """One of `FIGURES`; None where there is nothing to show yet."""
    with mpl.rc_context({**STYLE}):
        made = Figure()
        axes = made.add_subplot()
        FIGURES[name](axes, contents)
        if not axes.has_data():
            return None
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            wide = [len(label) + 5 for label in labels]
            columns = len(labels) if sum(wide) <= 62 else max(1, 62 // max(wide))
            keys = made.legend(handles, labels, loc="outside upper left", ncols=columns).legend_handles
            for handle, key in zip(handles, keys, strict=True):  # a key has the colour of what it stands for
                if key is not None and isinstance(handle, Artist) and (handle.get_gid() or "").startswith("ink"):
                    key.set_gid("ink")
    return made


def _short(name: str, most: int = 36) -> str:
    """Start and end of a long name: names of one kind often differ at the end only."""
    return name if len(name) <= most else f"{name[: most // 2 - 1]}..{name[1 - most // 2 :]}"


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(_short(x))
    axes.set_ylabel(_short(y))


def _names(axes: Axes, names: Sequence[str]) -> None:
    """Write names of bars along the axis; some of them where there are many."""
    every = -(-len(names) // 10)
    shown = [_short(name, 12) for name in names][::every]
    turned = sum(map(len, shown)) > 40
    axes.set_xticks(range(0, len(names), every), shown, rotation=30 * turned, ha="right" if turned else "center")
    axes.margins(x=0.06)
    axes.grid(False, axis="x")


def _bars(axes: Axes, layers: Sequence[tuple[Sequence[float], str, str | None]]) -> None:
    """Bars on top of each other: height, colour and name of each layer."""
    base = np.zeros(len(layers[0][0]))
    for height, colour, name in layers:
        axes.bar(np.arange(len(base)), height, 0.68, bottom=base, color=colour, label=name)
        base += np.asarray(height)
    axes.set(xlim=(-0.6, max(len(base), 3) - 0.4), ylim=(0, 1.05 * float(base.max()) or 1.0))


def learning(axes: Axes, contents: Contents) -> None:
    """The expected error over all candidates by round, beside predicting the mean and the noise."""
    table = contents.progress.rounds
    if table.empty:
        return
    x = table.measurements
    axes.fill_between(x, table.low, table.high, color=BLUE, alpha=0.22, lw=0, label="90% interval")
    axes.plot(x, table.error, color=BLUE, marker="o", label="expected error")
    axes.plot(x, table.mean_only, color=GREY, ls=(0, (4, 3)), label="predict the mean")
    if table.noise.iloc[-1] > 0:
        axes.plot(x, table.noise, color=ORANGE, ls=":", label="noise of a measurement")
    top = min(float(table[["high", "mean_only", "noise"]].max().max()), 1.6 * float(table.mean_only.max()))
    axes.set(xlim=(0, 1.05 * float(x.max())), ylim=(0, 1.08 * top or 1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    _label(axes, "measurements behind the model", f"{contents.words.error} of {called(contents.settings)}")


def parity(axes: Axes, contents: Contents) -> None:
    """Measured values beside what had been predicted of them, the shift of their batch taken out."""
    held = contents.progress.held
    if held.predicted.isna().all():
        return
    ends = [min(held.predicted.min(), held.measured.min()), max(held.predicted.max(), held.measured.max())]
    axes.plot(ends, ends, color=GREY, lw=1.2, ls=(0, (4, 3)), label="ideal")
    moved = held.measured - held.moved
    half = ((held.high - held.low) / 2).to_numpy()
    last = (held.basis == held.basis.max()).to_numpy()
    for some, colour, word in ((~last, GREY, "earlier batches"), (last, BLUE, "last batch")):
        if some.any():
            at = held.predicted[some], moved[some]
            axes.errorbar(*at, xerr=half[some], fmt="none", ecolor=colour, elinewidth=0.8, alpha=0.35)
            axes.scatter(*at, s=18, color=colour, linewidths=0, label=word, gid="last" if colour == BLUE else "earlier")
    target = called(contents.settings)
    _label(axes, f"{target}, predicted before", f"{target}, measured")


def decomposition(axes: Axes, contents: Contents) -> None:
    table = contents.rounds
    if table.empty:
        return
    parts = (("epistemic", BLUE, "epistemic"), ("bias", ORANGE, contents.words.bias), ("aleatoric", GREY, "noise"))
    _bars(axes, [(table[field].tolist(), colour, name) for field, colour, name in parts])
    _names(axes, table.measurements.astype(str).tolist())
    _label(axes, "measurements behind the model", contents.words.parts)


def calibration(axes: Axes, contents: Contents) -> None:
    if not contents.calibration:
        return
    stated, observed, count = (np.array(column) for column in zip(*contents.calibration, strict=True))
    half = 1.96 * np.sqrt(np.clip(stated * (1 - stated), 1e-9, None) / count)
    axes.plot((0, 1), (0, 1), color=GREY, lw=1.2, ls=(0, (4, 3)), label="ideal")
    axes.fill_between(stated, stated - half, stated + half, color=GREY, alpha=0.3, lw=0, label="chance")
    axes.plot(stated, observed, color=BLUE, marker="o", label="new measurements")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1))
    _label(axes, "stated probability", contents.words.observed)


def noise(axes: Axes, contents: Contents) -> None:
    found = contents.noise
    if not found.replicates:
        return
    mean, sd, count = (np.array(column) for column in zip(*found.replicates, strict=True))
    axes.scatter(
        mean, sd, s=14 + 6 * np.minimum(count, 8), color=BLUE, alpha=0.8, linewidths=0, zorder=3, label="candidates"
    )
    if found.dispersion is None:
        axes.axhline(found.sd, color=ORANGE, label="pooled")
        axes.scatter(mean, found.predicted, s=60, marker="_", color=GREY, label="predicted")
    else:  # counts scatter with their mean
        line = np.linspace(0, 1.05 * float(mean.max()) or 1.0, 100)
        axes.plot(line, np.sqrt(found.dispersion * line), color=ORANGE, label="pooled")
    axes.set_ylim(0, 1.15 * max(*sd.tolist(), found.sd, *found.predicted) or 1.0)
    _label(axes, f"mean {called(contents.settings)} of a candidate", "standard deviation of its values")


def shifts(axes: Axes, contents: Contents) -> None:
    rows = contents.noise.batches[-MOST_BATCHES:]
    if not rows:
        return
    shift, error = [b.shift for b in rows], [1.96 * b.error for b in rows]
    axes.axhline(0, color=GREY, lw=1.2)
    axes.errorbar(range(len(rows)), shift, yerr=error, fmt="o", color=BLUE, elinewidth=1.4)
    _names(axes, [b.name for b in rows])
    _label(axes, contents.settings["batch"] or "batch", f"mean {called(contents.settings)} minus model")


def confusion(axes: Axes, contents: Contents) -> None:
    """Told labels against predicted ones; the colour is the share of what was told."""
    labels = contents.labels
    if labels is None or not labels.tested:
        return
    table = np.array(labels.confusion, dtype=float)
    share = table / np.maximum(table.sum(1, keepdims=True), 1)
    colour = np.concatenate([np.broadcast_to(to_rgb(BLUE), (*table.shape, 3)), 0.75 * share[..., None]], -1)
    axes.imshow(colour, aspect="auto", interpolation="nearest")
    _names(axes, labels.names)
    axes.set_yticks(axes.get_xticks(), [_short(label.get_text(), 12) for label in axes.get_xticklabels()])
    axes.margins(0)
    axes.grid(False)
    if len(table) <= MOST_CELLS:
        for row, column in np.ndindex(*table.shape):
            axes.text(column, row, f"{table[row, column]:.0f}", ha="center", va="center", gid="ink")
    _label(axes, "predicted, out of fold", "label told")


def agreement(axes: Axes, contents: Contents) -> None:
    """Candidates with several labels: whether these agree, by the most frequent one."""
    labels = contents.labels
    if labels is None or not sum(labels.agree) + sum(labels.differ):
        return
    _bars(axes, [(labels.agree, BLUE, "all labels agree"), (labels.differ, ORANGE, "labels differ")])
    _names(axes, labels.names)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _label(axes, "most frequent label", "candidates with several labels")


def shares(axes: Axes, contents: Contents) -> None:
    """Share of each label in each batch."""
    labels = contents.labels
    if labels is None or not labels.batches:
        return
    names, counts = zip(*labels.batches[-MOST_BATCHES:], strict=True)
    table = np.array(counts, dtype=float)
    part = table / np.maximum(table.sum(1, keepdims=True), 1)
    _bars(axes, [(part[:, at], *look) for at, look in enumerate(legend(labels.names))])
    if len(names) <= MOST_CELLS:
        for at, total in enumerate(table.sum(1)):
            axes.text(at, 1.01, f"{total:.0f}", ha="center", va="bottom")
    _names(axes, names)
    axes.set_ylim(0, 1.1)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    _label(axes, contents.settings["batch"] or "batch", "share of labels")


def legend(names: Sequence[str]) -> list[tuple[str, str | None]]:
    """Colour of each class, and its name in the legend; all beyond the tenth are grey.

    Matplotlib leaves out names that begin with an underscore, so these get a blank in front.
    """
    known = zip(CLASSES, names, strict=False)
    own = [(colour, (" " if name.startswith("_") else "") + _short(name, 14)) for colour, name in known]
    return [*own, *((GREY, None if at else "others") for at in range(len(names) - len(own)))]


def _dots(axes: Axes, points: NDArray[np.float64], **look: Any) -> PathCollection:
    return axes.scatter(points[:, 0], points[:, 1], **look)


def candidates(axes: Axes, contents: Contents) -> None:
    """The candidates in two dimensions: measured ones by value or class, the next ones circled."""
    found, labels = contents.map, contents.labels
    pale = {"linewidths": 0, "rasterized": True}
    if found.predicted is None:
        _dots(axes, found.candidates, s=6, color=GREY, alpha=0.5, label="candidates", **pale)
    if labels is not None:
        for at, (colour, label) in enumerate(legend(labels.names)):
            if found.predicted is not None:
                _dots(axes, found.candidates[found.predicted == at], s=12, color=colour, alpha=0.35, **pale)
            _dots(axes, found.measured[found.values == at], s=24, color=colour, label=label)
    elif len(found.measured):
        edge = {"edgecolors": GREY, "linewidths": 0.5, "cmap": "viridis"}
        dots = _dots(axes, found.measured, s=24, c=found.values, label="measured", gid="measured", **edge)
        bar = axes.figure.colorbar(dots, ax=axes, pad=0.01, fraction=0.04)
        bar.set_label(_short(f"mean {called(contents.settings)}"))
        bar.outline.set_visible(False)
    if len(found.pending):
        ring = {"facecolors": "none", "edgecolors": "k", "lw": 1.4, "gid": "ink-next"}
        _dots(axes, found.pending, s=52, label="next (pending)", **ring)
    axes.grid(False)
    _label(axes, *found.axes)


FIGURES = {
    one.__name__: one
    for one in (learning, parity, decomposition, calibration, noise, shifts, confusion, agreement, shares, candidates)
}
