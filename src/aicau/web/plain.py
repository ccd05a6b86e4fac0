"""Numbers, tables and records as JSON, and a batch as plates."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from aicau.campaign.layout import PLATES, name, place


def plain(value: Any) -> Any:
    """The value as JSON; a missing number is null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, pd.DataFrame):
        value = value.to_dict("records")
    elif dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(one) for one in value]
    return None if value is pd.NA or value is pd.NaT else str(value)


def plates(rows: Sequence[dict[str, Any]], placed: bool) -> list[dict[str, Any]]:
    """Rows as plates of 96, 384 or more wells: by their wells, else one after another."""
    if placed and rows:
        spots = [(0, *place(row["well"])) for row in rows]
        least = max(row for _, row, _ in spots) + 1, max(column for *_, column in spots) + 1
        height, width = next((s for s in PLATES.values() if s[0] >= least[0] and s[1] >= least[1]), least)
    else:
        height, width = PLATES["96" if len(rows) <= 96 else "384"]
        spots = [(at // (height * width), at // width % height, at % width) for at in range(len(rows))]
    wells = dict(zip(spots, rows, strict=True))
    return [
        {
            "size": height * width,
            "rows": [(name(r, 0)[:-2], [wells.get((plate, r, c)) for c in range(width)]) for r in range(height)],
            "given": placed,
        }
        for plate in sorted({spot[0] for spot in spots})
    ]
