"""Tables and plots of results."""

from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.figure import Figure
from rich import box
from rich.markup import escape
from rich.table import Table

from aicau.core.statistics import Interval, half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from aicau.simulation.simulate import Result

# Okabe & Ito's palette, told apart by readers with any kind of colour vision; line styles carry it into print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5D3A9B", "#8C8C00")
DASHES: tuple[object, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKERS = "osD^vP*X"


def table(result: "Result") -> Table:
    """Final error and its ratio to the baseline, best first; green and red where the interval excludes 1."""
    base = result.baseline
    title = f"{result.problem}: error after {result.points(result.mse.shape[2] - 1)} measurements, [95% intervals]"
    out = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1))
    out.add_column("strategy", no_wrap=True)
    out.add_column(f"final {result.error}", justify="right", no_wrap=True)
    out.add_column(f"ratio to {base}, paired", justify="right", no_wrap=True)
    for name in sorted(result.strategies, key=lambda s: result.final_mse(s).mean):
        final, ratio = result.final_mse(name), result.paired(name)
        style = "" if name == base else "green" if ratio.high < 1 else "red" if ratio.low > 1 else ""
        out.add_row(name, escape(cell(final, 4)), "1" if name == base else escape(cell(ratio)), style=style)
    return out


def cell(value: Interval, digits: int = 2) -> str:
    """A mean with its interval, where there is one."""
    mean = f"{value.mean:.{digits}f}"
    return mean if np.isnan(value.low) else f"{mean} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


def curve(axes: "Axes", x: object, mse: object, label: str, number: int) -> None:
    """One learning curve: geometric mean over runs with its 95% band; `mse` (run, round)."""
    values = np.log(np.asarray(mse))
    at = np.asarray(x)
    centre = values.mean(0)
    colour = "#222222" if label == "random" else COLOURS[number % len(COLOURS)]
    dash = (0, (1, 1)) if label == "random" else DASHES[(number // len(COLOURS) + number) % len(DASHES)]
    marker = "" if label == "random" else MARKERS[number % len(MARKERS)]
    every = max(1, len(at) // 6)
    (line,) = axes.plot(at, np.exp(centre), color=colour, linestyle=dash, lw=1.6, label=label)
    line.set(marker=marker, markevery=(number % every, every), markersize=4)
    if len(values) > 1:
        half = half_width(values)
        axes.fill_between(at, np.exp(centre - half), np.exp(centre + half), color=colour, alpha=0.1, linewidth=0)


def learning_curves(result: "Result", path: str | None = None) -> Figure:
    """MSE against the number of measurements, one curve per strategy, on a logarithmic scale."""
    figure = Figure(figsize=(8.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    points = [result.points(k) for k in range(result.mse.shape[2])]
    order = sorted(result.strategies, key=lambda s: -result.final_mse(s).mean)
    for name in order:
        s = result.strategies.index(name)
        curve(axes, points, result.mse[s], name, s)
    axes.set_yscale("log")
    log_ticks(axes)
    axes.set_xlabel("measurements")
    axes.set_ylabel(f"{result.error} to the truth over the pool (geometric mean)")
    runs = result.mse.shape[1]
    axes.set_title(f"{result.problem}, {result.initial} initial points, batches of {result.batch_size}, {runs} runs")
    figure.legend(loc="outside right center", frameon=False, title="worst at the end first")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def log_ticks(axes: "Axes") -> None:
    """Plain numbers at a few places of each decade, or at more of them where the axis is short."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    subs = [1, 1.5, 2, 3, 5, 7] if high > 2 * low else np.arange(1, 10, 0.5).tolist()
    axes.yaxis.set_major_locator(LogLocator(10, subs=subs))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    quiet(axes, "both")


def quiet(axes: "Axes", lines: Literal["x", "y", "both"]) -> None:
    """Pale lines across one axis or both, and no frame on top and to the right."""
    axes.grid(True, axis=lines, color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
