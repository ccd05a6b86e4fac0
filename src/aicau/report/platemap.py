"""The plates of a campaign as grids of wells: numbers for the page's template."""

from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from aicau.campaign import layout as layouts
from aicau.campaign.campaign import Campaign

MOST_PLATES = 8


@dataclass(frozen=True)
class Well:
    """One well of a plate: where its circle stands, its colour and what it says when it is hovered."""

    x: float
    y: float
    look: str  # the name of its style
    colour: str
    title: str


@dataclass(frozen=True)
class Plate:
    """A plate as it is drawn; a well is 10 wide."""

    name: str
    width: int
    height: int
    wells: tuple[Well, ...]
    rows: tuple[tuple[float, str], ...]
    columns: tuple[tuple[float, str], ...]


def draw(campaign: Campaign) -> tuple[Plate, ...]:
    """The newest plates, the last first."""
    table, every = campaign.plates(), campaign.layouts()
    values = pd.to_numeric(table.measured, errors="coerce").where(table.state != "control")
    low, high = values.min(), values.max()
    drawn = []
    for ask in sorted(table.ask.unique())[: -MOST_PLATES - 1 : -1]:
        wells, layout = [], every[ask]
        for row in table[table.ask == ask].itertuples():
            at, column = layouts.place(row.well)
            number = pd.to_numeric(row.measured, errors="coerce")
            colour = shade((number - low) / (high - low) if high > low else 0.5) if pd.notna(number) else "none"
            said = (
                ""
                if row.measured is None or pd.isna(row.measured)
                else f", measured {row.measured:.4g}"
                if pd.notna(number)
                else f", {row.measured}"
            )
            look = row.state if row.state in ("control", "pending", "failed", "abandoned") else "done"
            colour = "none" if look == "control" else colour
            title = f"{row.well}: {row.id}{said} ({row.state}){'' if row.state == 'control' else '. ' + row.reason}"
            wells.append(Well(10 * column + 15, 10 * at + 15, look, colour, title))
        names = table.plate[(table.ask == ask) & table.plate.notna()]
        drawn.append(
            Plate(
                str(names.iloc[0]) if len(names) else f"ask {ask}, not measured yet",
                10 * layout["columns"] + 12,
                10 * layout["rows"] + 12,
                tuple(wells),
                tuple((10.0 * r + 15, layouts.name(r, 0)[:-2]) for r in range(layout["rows"])),
                tuple((10.0 * c + 15, str(c + 1)) for c in range(layout["columns"])),
            )
        )
    return tuple(drawn)


def shade(share: float) -> str:
    """The colour of a value between the smallest (0) and the largest (1)."""
    return str(to_hex(mpl.colormaps["viridis"](float(np.clip(share, 0, 1)))))
