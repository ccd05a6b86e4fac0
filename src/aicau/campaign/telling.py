"""The verbs of a campaign that take results in, or only check what a table of results would change."""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from aicau import tables
from aicau.campaign import plates
from aicau.campaign.looking import Looking
from aicau.campaign.plates import Control
from aicau.campaign.setup import is_log
from aicau.core.errors import InputError
from aicau.core.files import check_other
from aicau.store import PENDING, Measurement, Session, Told, add_tell, changes, identity, schema
from aicau.tables import candidates, results
from aicau.tables.sheet import Sheet

MOST_LOOKED_UP = 1_000_000  # candidates: to read their features again takes time
MOST_WRONG = 20  # rows that are named; a file with more is wrong as a whole
NEW, KNOWN, CONTROL, BLANK, WRONG = "new", "known already", "control", "not filled in", "looks wrong"
# Measurements of candidates, those of controls, notes on how they were read, and the table without controls.
Parsed = tuple[list[Measurement], list[Control], list[str], Sheet]


class _Undo(Exception):
    """Ends a transaction without its changes."""


class Telling(Looking):
    """The verbs that take results in, or only check them."""

    def tell(
        self, table: Any, correct: bool = False, new: Sequence[str] = (), sheet: str | None = None, skip: int = 0
    ) -> dict[str, Any]:
        """Store results: all rows of the table, or none of them. Rows that are known already are not stored again.

        Parameters
        ----------
        table : str, Path or DataFrame
            Columns: the id, the target, the batch where the campaign has one; and where wanted `status` (ok, failed),
            `sem` and `count` (the target is then a mean) and `replicate`.
        correct : bool
            Replace what was told before for the same id and batch (and replicate, where given); the old rows stay,
            marked as superseded.
        new : sequence of str
            Batches or classes that are new ones, though they look like known ones (`p1` beside `P1`).
        sheet : str, optional
            Which sheet of an Excel file.
        skip : int
            Lines of an instrument above the column names.

        Returns
        -------
        dict
            Counts: `rows`, `new`, `known`, `completed`, `failed`, `unrequested`, `superseded`, `pending`; `already` if
            nothing was new; `warnings` about what may not be meant so.
        """
        check_other(table, self.store.engine.url.database)
        read = tables.read(table, None, sheet, skip)
        parsed = self._parsed(read)
        source = Path(table).name if isinstance(table, str | Path) else None
        with self.store.writing() as session:
            try:
                return self._store(session, read, parsed, correct, source, new)
            except InputError as error:  # about a row
                raise InputError(f"{read.name}, {error}") from error

    def check(
        self, table: Any, correct: bool = False, new: Sequence[str] = (), sheet: str | None = None, skip: int = 0
    ) -> tuple[pd.DataFrame, dict[str, Any]]:
        """What `tell` would do with a table, row by row; nothing is stored. Parameters are those of `tell`.

        Returns
        -------
        DataFrame, dict
            The table with the number of each `row`, its `outcome` ("new", "known already", "control", "not filled in",
            "looks wrong") and a `note`, and what `tell` would return for the rows that are right. At most 20 wrong rows
            are named; a table with more, or without a column it needs, is refused as a whole.
        """
        check_other(table, self.store.engine.url.database)
        read = tables.read(table, None, sheet, skip)
        numbers = np.array([read.row(at) for at in range(read.rows)], dtype=np.int64)
        wrong, found, counts = dict[int, str](), dict[int, str](), dict[str, Any]()
        while len(wrong) < read.rows:
            left = ~np.isin(numbers, list(wrong))
            try:
                found, counts = self._try(read.where(left), correct, new)
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

    def _try(self, sheet: Sheet, correct: bool, new: Sequence[str]) -> tuple[dict[int, str], dict[str, Any]]:
        """The outcome of each row, and what `tell` would return; nothing is stored."""
        rows, controls, _, rest = parsed = self._parsed(sheet)
        added: Counter[Any] = Counter()
        counts: dict[str, Any] = {}
        with suppress(_Undo), self.store.writing() as session:
            first = session.number(schema.measurements.c.id)
            counts = self._store(session, sheet, parsed, correct, None, new)
            added.update(_key(row) for row in session.measurements() if row.id > first)
            raise _Undo
        lines = {sheet.row(at): CONTROL for at in range(sheet.rows) if controls}
        lines |= {rest.row(at): BLANK for at in range(rest.rows)} | {row.line: KNOWN for row in rows}
        for row in rows:
            if added[_key(row)] > 0:
                added[_key(row)] -= 1
                lines[row.line] = NEW
        return lines, counts

    def _parsed(self, sheet: Sheet) -> Parsed:
        settings = self.settings
        with self.store.reading() as session:
            ids = candidates.all_ids(session.ids())
            rest, controls = plates.split(sheet, session)
            names = sorted(plates.control_names(session))
        rows: list[Measurement] = []
        notes: list[str] = []
        if rest.rows or not controls:
            ids = pa.concat_arrays([ids, pa.array(names, pa.string())])  # a mistyped id may be that of a control
            how = (settings["batch"], ids, self.task, {column["name"] for column in settings["columns"]})
            rows, notes = results.parse(rest, settings["id"], list(self.targets), *how)
            self._check_features(rest, {row.line: row.candidate for row in rows})
        values = [(row.value, f"row {row.line}") for row in rows] + [(c.value, f"control {c.name}") for c in controls]
        for value, where in values if is_log(settings) else ():
            if value is not None and value <= 0:
                raise InputError(
                    f"{sheet.name}, {where}: {settings['target']} is {value:g}, and --scale log needs positive values;"
                    " write 'failed' in a column 'status' if it could not be measured, or make a campaign without it"
                )
        return rows, controls, notes, rest

    def _check_features(self, sheet: Sheet, told: dict[int, int]) -> None:
        """A file of `ask` holds features of candidates: the same numbers in another order are a column that was sorted
        without the others."""
        columns = [one for one in self.settings["columns"] if one["kind"] == "number" and sheet.has(one["name"])]
        told = {line: candidate for line, candidate in told.items() if candidate < self.n}  # others are controls
        if not columns or len(told) < 2 or self.n > MOST_LOOKED_UP:
            return
        with self.store.reading() as session:
            known = candidates.described(session, list(told.values()))
        at = np.searchsorted([sheet.row(row) for row in range(sheet.rows)], list(told))
        for column in columns:
            name, own = column["name"], known[column["name"]].to_numpy(dtype=float)
            try:
                here = sheet.numbers(name, sheet.blank(name))[at]
            except InputError:
                continue  # nobody reads it
            off, sorted_off = np.abs(here - own), np.abs(np.sort(here) - np.sort(own))
            if off.max() > 10 * sorted_off.max() + column["scale"] / 10:  # never where a cell is empty
                row = int(off.argmax())
                raise InputError(
                    f"{sheet.at(int(at[row]), name)}: {here[row]:g} belongs to another row, and to this candidate"
                    f" {own[row]:g}; was one column sorted alone? If ids and results fit, leave {name!r} out"
                )

    def _store(
        self, session: Session, sheet: Sheet, parsed: Parsed, correct: bool, source: str | None, new: Sequence[str]
    ) -> dict[str, Any]:
        """Store a table; returns what changed, as plain JSON. Controls alone are a tell, too: models depend on them."""
        rows, controls, notes, _ = parsed
        digest, distinct = results.digest(rows, correct), [new] if isinstance(new, str) else list(new)
        if rows or not controls:
            told = asdict(add_tell(session, rows, digest, correct, self.author, source, distinct))
        else:
            told = asdict(Told(0, 0, pending=len(session.proposals(status=PENDING))))
        if controls:
            known = set(plates.kept(session))
            fresh = [one for one in controls if one._replace(line=0) not in known]
            here, there = ([Measurement(0, None, batch=c.plate, line=c.line) for c in some] for some in (fresh, known))
            current = [*session.measurements(), *there]
            identity.check_names("batch", here, current, changes.renamed(session), distinct)
            if fresh and (not rows or told["already"]):
                told["tell"] = session.next_tell()
                session.add_rows(told["tell"], digest, int(correct), [])
                session.event("tell", self.author, told["tell"], source=source, rows=0)
            if fresh:
                kept = [[*one[:4], *filter(None, one[4:5])] for one in fresh]
                session.event(plates.KIND, self.author, told["tell"], rows=kept)
            told |= {"controls": len(fresh), "already": told["already"] and not fresh}
        return told | {"warnings": (*sheet.notes, *notes, *told["warnings"])}


def _key(row: Any) -> tuple[Any, ...]:
    return row.candidate, row.target, row.value, row.label, row.sem, row.repeats, row.batch, row.status
