"""Tables in Markdown, and numbers in them."""

from collections.abc import Iterable, Sequence

import numpy as np

from aicau.core.statistics import Interval
from aicau.simulation import curves


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Its lines, with an empty one at the end."""
    line = "| {} |".format
    return [line(" | ".join(head)), "|---" * len(head) + "|", *(line(" | ".join(row)) for row in rows), ""]


def cell(value: Interval | None, digits: int = 2) -> str:
    """A mean with its interval; a dash where there is none."""
    return "–" if value is None or np.isnan(value.mean) else curves.cell(value, digits)
