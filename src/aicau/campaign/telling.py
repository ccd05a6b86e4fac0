"""A table of results on its way into a campaign, or only checked: what it would change, row by row."""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from aicau import tables
from aicau.campaign import plates
from aicau.campaign.plates import Control
from aicau.campaign.setup import check_positive
from aicau.core.errors import InputError
from aicau.store import Measurement, Session, schema
from aicau.tables import candidates, results
from aicau.tables.sheet import Sheet

if TYPE_CHECKING:
    from aicau.campaign.campaign import Campaign

MOST_WRONG = 20  # rows that are named; a file with more is wrong as a whole
NEW, KNOWN, CONTROL, BLANK, WRONG = "new", "known already", "control", "not filled in", "looks wrong"


class _Undo(Exception):
    """Ends a transaction whose changes nobody wants."""


def tell(
    campaign: "Campaign", table: Any, correct: bool, new: Sequence[str], sheet: str | None, skip: int
) -> dict[str, Any]:
    """All rows of the table, or none of them."""
    read = tables.read(table, None, sheet, skip)
    parsed = _parsed(campaign, read)
    source = Path(table).name if isinstance(table, str | Path) else None
    with campaign.store.writing() as session:
        try:
            return _store(campaign, session, read, parsed, correct, source, new)
        except InputError as error:  # about a row
            raise InputError(f"{read.name}, {error}") from error


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
        try:
            found, counts = _try(campaign, read.where(left), correct, new)
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
    rows, controls, _ = parsed = _parsed(campaign, sheet)
    new: Counter[Any] = Counter()
    counts: dict[str, Any] = {}
    with suppress(_Undo), campaign.store.writing() as session:
        first = session.number(schema.measurements.c.id)
        counts = _store(campaign, session, sheet, parsed, correct, None, distinct)
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


Parsed = tuple[list[Measurement], list[Control], list[str]]


def _parsed(campaign: "Campaign", sheet: Sheet) -> Parsed:
    """The rows of a table, those of controls, and notes on how they were read."""
    settings = campaign.settings
    with campaign.store.reading() as session:
        ids = candidates.all_ids(session.ids())
        sheet, controls = plates.split(sheet, settings, session)
    how = (settings["batch"], ids, campaign.task, {column["name"] for column in settings["columns"]})
    rows: list[Measurement] = []
    notes: list[str] = []
    if sheet.rows or not controls:
        if len(targets := campaign.targets) > 1:
            rows, notes = results.parse_each(sheet, settings["id"], list(targets), *how)
        else:
            rows, notes = results.parse(sheet, settings["id"], settings["target"], *how)
    check_positive(settings, sheet.name, rows, controls)
    return rows, controls, notes


def _store(
    campaign: "Campaign",
    session: Session,
    sheet: Sheet,
    parsed: Parsed,
    correct: bool,
    source: str | None,
    distinct: Sequence[str],
) -> dict[str, Any]:
    rows, controls, notes = parsed
    digest = results.digest(rows, correct)
    told = plates.tell(session, rows, controls, digest, correct, campaign.author, source, distinct)
    return told | {"warnings": (*sheet.notes, *notes, *told["warnings"])}
