"""Numbers, tables and records as JSON, and a batch as plates."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

SIZES = {96: (8, 12), 384: (16, 24)}


def plain(value: Any) -> Any:
    """The same as JSON has it; a missing number is null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, pd.DataFrame):
        return plain(value.to_dict("records"))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set):
        return [plain(one) for one in value]
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    return None if value is pd.NA or value is pd.NaT else str(value)


def plates(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with an id, a state and a reason, as 96- or 384-well plates: by their wells, else one after another."""
    size = 96 if len(rows) <= 96 else 384
    placed = [re.fullmatch(r"([A-P])0?(\d{1,2})", str(row.get("well") or "")) for row in rows]
    if rows and all(placed):
        spots = [(ord(found[1]) - 65, int(found[2]) - 1) for found in placed if found]
        size = 96 if max(r for r, _ in spots) < 8 and max(c for _, c in spots) < 12 else 384
        places = [(0, *spot) for spot in spots]
    else:
        columns = SIZES[size][1]
        places = [(at // size, at % size // columns, at % size % columns) for at in range(len(rows))]
    made = []
    for number in sorted({place[0] for place in places}):
        wells = {place[1:]: row for place, row in zip(places, rows, strict=True) if place[0] == number}
        lines = [[wells.get((r, c)) for c in range(SIZES[size][1])] for r in range(SIZES[size][0])]
        made.append(
            {"size": size, "rows": [(chr(65 + at), line) for at, line in enumerate(lines)], "given": all(placed)}
        )
    return made
