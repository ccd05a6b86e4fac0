"""What a table of results would change, row by row, before anything is stored."""

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from aicau import tables
from aicau.core.errors import InputError
from aicau.store import schema
from aicau.tables import candidates, results
from aicau.tables.sheet import Sheet

if TYPE_CHECKING:
    from aicau.campaign.campaign import Campaign

MOST_WRONG = 20  # rows that are named; a file with more is wrong as a whole
NEW, KNOWN, WRONG = "new", "known already", "looks wrong"


class _Undo(Exception):
    """Ends a transaction whose changes nobody wants."""


def check(campaign: "Campaign", table: Any, correct: bool) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The same way as `tell`, all of it taken back; a row that is refused is named and left out, then it goes on."""
    sheet = tables.read(table)
    with campaign.store.reading() as session:
        ids = candidates.all_ids(session.ids())
    wrong: dict[int, str] = {}
    while True:
        left = np.array([sheet.row(at) not in wrong for at in range(sheet.rows)])
        lines = np.array([sheet.row(at) for at in np.flatnonzero(left)], dtype=np.int64)
        part = Sheet(sheet.table.filter(pa.array(left)), sheet.name, lines=lines)
        try:
            stored, counts = _try(campaign, part, ids, correct) if part.rows else (Counter(), {})
            break
        except InputError as error:
            found = re.search(r"\brows? (\d+)", str(error))
            if found is None or int(found[1]) in wrong or int(found[1]) not in lines or len(wrong) >= MOST_WRONG:
                raise
            wrong[int(found[1])] = str(error).removeprefix(f"{sheet.name}, ")
    shown = sheet.table.to_pandas()
    shown.insert(0, "row", [sheet.row(at) for at in range(sheet.rows)])
    outcome = []
    for line in shown["row"]:
        outcome.append(WRONG if line in wrong else NEW if stored[line] else KNOWN)
    return shown.assign(outcome=outcome, note=[wrong.get(line, "") for line in shown["row"]]), counts


def _try(campaign: "Campaign", sheet: Sheet, ids: pa.Array, correct: bool) -> tuple["Counter[int]", dict[str, Any]]:
    """Lines that would be stored, and what `tell` would say; nothing is."""
    from dataclasses import asdict

    settings = campaign.settings
    own = {column["name"] for column in settings["columns"]}
    names = (settings["id"], settings["target"], settings["batch"])
    rows = results.parse(sheet, *names, ids, campaign.task, own)
    counts: dict[str, Any] = {}
    new: Counter[Any] = Counter()
    try:
        with campaign.store.writing() as session:
            first = session.number(schema.measurements.c.id)
            counts = asdict(session.add_tell(rows, results.digest(rows, correct), correct, campaign.author))
            new.update(_key(row) for row in session.measurements() if row.id > first)
            raise _Undo
    except _Undo:
        pass
    lines: Counter[int] = Counter()
    for row in rows:
        if new[_key(row)] > 0:
            new[_key(row)] -= 1
            lines[row.line] += 1
    return lines, counts


def _key(row: Any) -> tuple[Any, ...]:
    return row.candidate, row.value, row.label, row.sem, row.repeats, row.batch, row.status
