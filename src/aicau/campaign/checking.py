"""What a table of results would change, row by row, before anything is stored."""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from aicau import tables
from aicau.campaign import plates
from aicau.campaign.telling import parsed
from aicau.core.errors import InputError
from aicau.store import schema
from aicau.tables import results
from aicau.tables.sheet import Sheet

if TYPE_CHECKING:
    from aicau.campaign.campaign import Campaign

MOST_WRONG = 20  # rows that are named; a file with more is wrong as a whole
NEW, KNOWN, CONTROL, BLANK, WRONG = "new", "known already", "control", "not filled in", "looks wrong"


class _Undo(Exception):
    """Ends a transaction whose changes nobody wants."""


def check(
    campaign: "Campaign", table: Any, correct: bool, new: Sequence[str], sheet: str | None, skip: int
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The same way as `tell`, all of it taken back; a row that is refused is named and left out, then it goes on."""
    read = tables.read(table, None, sheet, skip)
    numbers = np.array([read.row(at) for at in range(read.rows)], dtype=np.int64)
    wrong: dict[int, str] = {}
    found: dict[int, str] = {}
    counts: dict[str, Any] = {}
    while len(wrong) < read.rows:
        left = ~np.isin(numbers, list(wrong))
        part = replace(read, table=read.table.filter(pa.array(left)), lines=numbers[left])
        try:
            found, counts = _try(campaign, part, correct, new)
            break
        except InputError as error:
            named = re.search(r"\brows? (\d+)", str(error))
            if named is None or int(named[1]) not in numbers[left] or len(wrong) >= MOST_WRONG:
                raise
            wrong[int(named[1])] = str(error).removeprefix(f"{read.name}, ")
    outcome = [WRONG if line in wrong else found.get(line, BLANK) for line in numbers.tolist()]
    shown = read.table.to_pandas()
    shown.insert(0, "row", numbers, allow_duplicates=True)
    return shown.assign(outcome=outcome, note=[wrong.get(line, "") for line in numbers.tolist()]), counts


def _try(
    campaign: "Campaign", sheet: Sheet, correct: bool, distinct: Sequence[str]
) -> tuple[dict[int, str], dict[str, Any]]:
    """What every line holds that is filled in, and what `tell` would say; nothing is stored."""
    rows, controls, notes = parsed(campaign, sheet)
    new: Counter[Any] = Counter()
    counts: dict[str, Any] = {}
    with suppress(_Undo), campaign.store.writing() as session:
        first = session.number(schema.measurements.c.id)
        digest = results.digest(rows, correct)
        told = plates.tell(session, rows, controls, digest, correct, campaign.author, None, distinct)
        counts = told | {"warnings": [*sheet.notes, *notes, *told["warnings"]]}
        new.update(_key(row) for row in session.measurements() if row.id > first)
        raise _Undo
    lines = dict.fromkeys((row.line for row in rows), KNOWN)
    if controls:
        with campaign.store.reading() as session:
            rest = plates.split(sheet, campaign.settings, session)[0]
        own = {sheet.row(at) for at in range(sheet.rows)} - {rest.row(at) for at in range(rest.rows)}
        lines |= dict.fromkeys(own, CONTROL)
    for row in rows:
        if new[_key(row)] > 0:
            new[_key(row)] -= 1
            lines[row.line] = NEW
    return lines, counts


def _key(row: Any) -> tuple[Any, ...]:
    return row.candidate, row.target, row.value, row.label, row.sem, row.repeats, row.batch, row.status
