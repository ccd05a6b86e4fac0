"""The plates of a campaign as grids of wells, for the page's template."""

from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from aicau.campaign import layout as layouts
from aicau.campaign.campaign import Campaign

MOST_PLATES = 8


@dataclass(frozen=True)
class Well:
    row: int
    column: int
    look: str  # the name of its style
    colour: str
    title: str  # shown when it is hovered


@dataclass(frozen=True)
class Plate:
    name: str
    letters: tuple[str, ...]  # of its rows
    columns: int
    wells: tuple[Well, ...]


def draw(campaign: Campaign) -> tuple[Plate, ...]:
    """The newest plates, the last first; none where no batch has a layout."""
    if not (every := campaign.layouts()):
        return ()
    table = campaign.plates()
    value = pd.to_numeric(table.measured, errors="coerce")
    points = value.where(table.state != "control")
    low, high = points.min(), points.max()
    table = table.assign(value=value, share=(value - low) / (high - low) if high > low else 0.5)
    drawn = []
    for ask in sorted(table.ask.unique())[: -MOST_PLATES - 1 : -1]:
        own, layout = table[table.ask == ask], every[ask]
        name = next(iter(own.plate.dropna()), f"ask {ask}, not measured yet")
        letters = tuple(layouts.name(row, 0)[:-2] for row in range(layout["rows"]))
        drawn.append(Plate(str(name), letters, layout["columns"], tuple(map(_well, own.itertuples()))))
    return tuple(drawn)


def _well(row: Any) -> Well:
    known = pd.notna(row.value)
    measured = f", measured {row.value:.4g}" if known else "" if pd.isna(row.measured) else f", {row.measured}"
    title = f"{row.well}: {row.id}{measured} ({row.state})"
    if row.state == "control":
        return Well(*layouts.place(row.well), "control", "none", title)
    look = row.state if row.state in ("pending", "failed", "abandoned") else "done"
    return Well(*layouts.place(row.well), look, shade(row.share) if known else "none", f"{title}. {row.reason}")


def shade(share: float) -> str:
    """The colour of a value between the smallest (0) and the largest (1)."""
    return str(to_hex(mpl.colormaps["viridis"](float(np.clip(share, 0, 1)))))
