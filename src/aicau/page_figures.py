"""The figures of a campaign's report, as SVG text. One palette: blue is the model, orange is bias, grey is the pool."""

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from aicau.page_data import Map, Noise, Round, Words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, GREY, INK, SOFT = "#0072B2", "#D55E00", "#009E73", "#B8BFCA", "#1D2433", "#5B6577"
CLASSES = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#A6761D", "#444B59", "#8FB339")
MOST_BATCHES = 40  # drawn; the newest


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#9AA3B2")
    axes.tick_params(colors=SOFT, labelsize=9)
    axes.grid(True, color="#E8EBF0", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Figure, name: str, label: str) -> str:
    """Text of the figure alone; the same numbers give the same bytes."""
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, dpi=200)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    parts = r"figure|axes|matplotlib\.axis|patch|line2d|xtick|ytick|text|legend|PathCollection"
    text = re.sub(rf'id="({parts})[^"]*"', "", text)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    safe = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg", f'<svg role="img" aria-label="{safe}"', 1)


def _label(axes: "Axes", x: str, y: str) -> None:
    axes.set_xlabel(_plain(x), color=SOFT, fontsize=9.5)
    axes.set_ylabel(_plain(y), color=SOFT, fontsize=9.5)


def _plain(words: str) -> str:
    """A user's name for a thing, short, and never read as mathematics."""
    return (words if len(words) <= 40 else words[:37] + "...").replace("$", r"\$")


def learning(rounds: Sequence[Round], target: str, error: str) -> str:
    if all(r.out_of_fold is None and r.held_out is None for r in rounds):
        return ""
    figure, axes = _figure(10.4, 3.1)
    for word, colour, marker in (("out_of_fold", BLUE, "o"), ("held_out", ORANGE, "s")):
        points = [(r.measurements, getattr(r, word)) for r in rounds if getattr(r, word) is not None]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, color=colour, marker=marker, ms=5, lw=1.8, label=word.replace("_", " "))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.03)
    _label(axes, "measurements behind the model", f"error of {target} ({error})")
    figure.legend(frameon=False, fontsize=9, loc="outside upper left", ncols=2)
    return _svg(figure, "learning", "Out-of-fold and held-out error against the number of measurements")


def decomposition(rounds: Sequence[Round], target: str, words: Words) -> str:
    if not rounds:
        return ""
    figure, axes = _figure(5, 3.3)
    at = np.arange(len(rounds))
    parts = (("epistemic", "epistemic", BLUE), (words.bias, "bias", ORANGE), ("noise", "aleatoric", GREY))
    base = np.zeros(len(rounds))
    for name, field, colour in parts:
        height = np.array([getattr(r, field) for r in rounds])
        axes.bar(at, height, 0.68, bottom=base, color=colour, label=name)
        base += height
    every = max(1, len(rounds) // 12)
    axes.set_xticks(at[::every], [str(r.measurements) for r in rounds][::every])
    axes.set_ylim(0, float(base.max()) * 1.25 or 1.0)
    axes.grid(False, axis="x")
    _label(axes, "measurements behind the model", f"{words.parts} of {target}")
    axes.legend(frameon=False, fontsize=9, ncol=3, loc="upper right", columnspacing=1.2, handlelength=1.2)
    return _svg(figure, "decomposition", f"Epistemic, bias and noise parts of the {words.parts} over rounds")


def calibration(rows: Sequence[tuple[float, float, int]], words: Words) -> str:
    if not rows:
        return ""
    figure, axes = _figure(5, 3.3)
    nominal, observed, count = (np.array(column) for column in zip(*rows, strict=True))
    half = 1.96 * np.sqrt(np.clip(nominal * (1 - nominal), 1e-9, None) / count)
    line = np.linspace(0, 1, 2)
    axes.plot(line, line, color="#9AA3B2", lw=1.2, ls=(0, (4, 3)), label="ideal")
    axes.fill_between(nominal, nominal - half, nominal + half, color=GREY, alpha=0.35, lw=0, label="chance")
    axes.plot(nominal, observed, color=BLUE, marker="o", ms=4.5, lw=1.8, label="held-out measurements")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda v, _: f"{v:.0%}")
    _label(axes, "stated probability", words.calibration)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    return _svg(figure, "calibration", f"Held-out measurements: {words.calibration} by stated probability")


def noise(found: Noise, target: str) -> str:
    if not found.replicates:
        return ""
    figure, axes = _figure(5, 3.3)
    mean, sd, count = (np.array(column) for column in zip(*found.replicates, strict=True))
    axes.scatter(mean, sd, s=14 + 6 * np.minimum(count, 8), color=BLUE, alpha=0.55, linewidths=0)
    if found.dispersion is not None:  # counts scatter with their mean
        line = np.linspace(0, float(mean.max()) * 1.05 + 1e-12, 100)
        axes.plot(line, np.sqrt(found.dispersion * line), color=ORANGE, lw=1.6)
    else:
        _pooled(axes, found.sd)
    axes.set_ylim(0, max(float(sd.max()), found.sd) * 1.15 or 1.0)
    _label(axes, f"mean {target} of a candidate", "sd between its measurements")
    return _svg(figure, "noise", "Standard deviation between replicates against the mean of the candidate")


def _pooled(axes: "Axes", sd: float) -> None:
    axes.axhline(sd, color=ORANGE, lw=1.6)
    axes.annotate(
        "pooled", (1, sd), xycoords=("axes fraction", "data"), xytext=(-2, 3), textcoords="offset points",
        ha="right", va="bottom", color=ORANGE, fontsize=9,
    )  # fmt: skip


def _names(axes: "Axes", words: Sequence[str], room: int) -> None:
    """Names of batches along the axis, some of them where there are many."""
    every = max(1, len(words) // 10)
    names = [_short(name, 12) for name in words][::every]
    turn = 30 if sum(len(name) for name in names) > room else 0
    axes.set_xticks(np.arange(len(words))[::every], names, rotation=turn, ha="right" if turn else "center")
    axes.margins(x=0.06)
    axes.grid(False, axis="x")


def shifts(found: Noise, target: str, batch: str | None) -> str:
    rows = found.batches[-MOST_BATCHES:]
    if not rows:
        return ""
    figure, axes = _figure(5, 3.3)
    at = np.arange(len(rows))
    axes.axhline(0, color="#9AA3B2", lw=1.2)
    error = [0.0 if b.error is None else 1.96 * b.error for b in rows]
    axes.errorbar(
        at, [b.shift for b in rows], yerr=error, fmt="o", ms=5, color=BLUE, ecolor=BLUE, elinewidth=1.4, capsize=0
    )
    _names(axes, [b.name for b in rows], 45)
    _label(axes, batch or "batch", f"mean {target} minus model")
    return _svg(figure, "shifts", "Mean difference between each batch and the model")


def legend(names: Sequence[str]) -> list[tuple[str, str | None]]:
    """Colour of each class, and what the legend calls it; all beyond the tenth are grey.

    Matplotlib leaves names that begin with an underscore out, so these get a blank in front.
    """
    own = [
        (colour, (" " if name.startswith("_") else "") + _short(name, 18))
        for colour, name in zip(CLASSES, names, strict=False)
    ]
    rest: list[tuple[str, str | None]] = [(GREY, None if at else "others") for at in range(len(names) - len(own))]
    return own + rest


def _short(name: str, most: int) -> str:
    return _plain(name if len(name) <= most else name[: most - 2] + "..")


def _classes(axes: "Axes", map: Map, names: Sequence[str]) -> None:
    """Candidates by predicted class, pale, and measured ones by what most of their labels say."""
    for at, (colour, label) in enumerate(legend(names)):
        said = map.candidates[:0] if map.predicted is None else map.candidates[map.predicted == at]
        axes.scatter(said[:, 0], said[:, 1], s=14, color=colour, alpha=0.4, linewidths=0, rasterized=True)
        here = map.measured[map.values == at]
        axes.scatter(here[:, 0], here[:, 1], s=34, color=colour, edgecolors="white", linewidths=0.6, label=label)


def map_of_candidates(map: Map, target: str, classes: Sequence[str] = ()) -> str:
    figure, axes = _figure(10.4, 4.6)
    axes.grid(False)
    if map.predicted is None:
        x, y = map.candidates.T
        axes.scatter(x, y, s=7, color="#C3CAD5", linewidths=0, rasterized=True, label="candidates")
    if classes:
        _classes(axes, map, classes)
    elif len(map.measured):
        x, y = map.measured.T
        dots = axes.scatter(
            x, y, c=map.values, s=30, cmap="viridis", edgecolors="white", linewidths=0.6, label="measured"
        )
        bar = figure.colorbar(dots, ax=axes, pad=0.01, fraction=0.03)
        bar.set_label(_plain(f"mean {target}"), color=SOFT, fontsize=9.5)
        bar.ax.tick_params(colors=SOFT, labelsize=9)
        bar.outline.set_visible(False)
    if len(map.pending):
        x, y = map.pending.T
        ring = INK if classes else ORANGE
        axes.scatter(x, y, s=62, facecolors="none", edgecolors=ring, linewidths=1.7, label="next (pending)")
    _label(axes, "first principal component", "second principal component")
    figure.legend(frameon=False, fontsize=9, loc="outside upper left", ncols=6, handletextpad=0.4)
    what = "by predicted class" if classes else "measured ones by value"
    return _svg(figure, "map", f"Candidates in two principal components, {what}, next ones circled")
