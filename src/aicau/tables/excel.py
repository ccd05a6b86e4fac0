"""Excel workbooks, by openpyxl (the extra `excel`)."""

import io
import math
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from aicau.core.errors import InputError, shown
from aicau.core.files import reason, short
from aicau.tables.kinds import cells
from aicau.tables.sheet import EXACT, Sheet, too_many

MOST_BYTES = 500_000_000  # of a workbook when it is unpacked
MOST_RATIO = 1000  # of unpacked to packed bytes
MOST_ROWS = 1_048_576  # of a sheet
_ZEROS = re.compile(r"0{2,}")  # a format that shows 117 as 00117


def _openpyxl() -> ModuleType:
    try:
        import openpyxl
    except ImportError:
        words = "Excel files need openpyxl: pip install 'aicau[excel]'; or save the sheet as CSV"
        raise InputError(words) from None
    return openpyxl


def read(data: bytes, name: str, sheet: str | None, skip: int) -> Sheet:
    """One sheet of a workbook: the named one, or the only one that is not empty."""
    _check(data, name)
    openpyxl = _openpyxl()
    try:
        values = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        formulas = openpyxl.load_workbook(io.BytesIO(data), read_only=True)
        title, rows = _rows(values, formulas, name, sheet, skip)
        notes = _hidden(data, values[title], {row for row, _ in rows if row > skip})
    except InputError:
        raise
    except Exception as error:  # whatever a damaged workbook does to its reader
        words = f"cannot be read as Excel ({reason(error)}); open and save it again, or as CSV"
        raise InputError(f"{name} {words}") from error
    return replace(_sheet(rows, name if sheet is None else f"{name}, sheet {sheet!r}", skip), notes=notes)


def _check(data: bytes, name: str) -> None:
    """Refuse what is no workbook, and a zip bomb."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise InputError(f"{name} is damaged ({reason(error)}); save it again as .xlsx or CSV") from error
    if not any(entry.filename.startswith("xl/") for entry in entries):
        raise InputError(f"{name} is an archive but no Excel workbook; unpack it, or save the table as .xlsx or CSV")
    size = sum(entry.file_size for entry in entries)
    if size > MOST_BYTES or (size > 10_000_000 and size > MOST_RATIO * len(data)):
        raise InputError(f"{name} would take {size / 1e6:,.0f} MB when unpacked, which is too much; save it as CSV")


Row = tuple[int, Sequence[Any]]  # what the sheet calls it, and its cells


def _rows(book: Any, formulas: Any, name: str, wanted: str | None, skip: int) -> tuple[str, list[Row]]:
    """The sheet and its rows that are not empty; the file must hold the value of every formula."""
    names = [one.title for one in book.worksheets if one.sheet_state == "visible" or one.title == wanted]
    if wanted is not None and wanted not in names:
        raise InputError(f"{name} has no sheet {wanted!r}; it has {', '.join(map(repr, names[:20]))}")
    found = {}
    for title in names if wanted is None else [wanted]:
        sheet = book[title]
        sheet.reset_dimensions()
        rows: list[Row] = []
        percent: dict[int, list[tuple[list[Any], Any]]] = defaultdict(list)
        plain = set()  # columns with numbers that are not shown as a percentage
        for line in sheet.iter_rows():
            if filled := [at for at, cell in enumerate(line) if cell.value not in (None, "")]:
                too_many(filled[-1] + 1, name)
                values = [_value(cell) for cell in line[: filled[-1] + 1]]
                rows.append((line[filled[0]].row, values))
                for at in filled if rows[-1][0] > skip else ():
                    if type(values[at]) in (int, float) and values[at]:
                        if "%" in str(line[at].number_format):
                            percent[at].append((values, f"{100 * values[at]:.15g}%"))
                        else:
                            plain.add(at)
        for at in plain & percent.keys():  # 45% beside 46: the file holds 0.45 and 46
            for values, words in percent[at]:
                values[at] = words
        if rows or wanted is not None:
            found[title] = rows
    if len(found) > 1:
        first = next(iter(found))
        raise InputError(f"{name} has several sheets: {', '.join(map(repr, found))}; name one, as in --sheet {first!r}")
    title, rows = next(iter(found.items()), ("", []))
    if not rows:
        raise InputError(f"{name} is empty; expected a line of column names and then one line per row")
    there = dict(rows)
    formulas[title].reset_dimensions()
    for cell in (cell for row in formulas[title].iter_rows() for cell in row if cell.data_type == "f"):
        known = there.get(cell.row, ())
        if len(known) < cell.column or known[cell.column - 1] is None:
            raise InputError(
                f"{name}, sheet {title!r}, cell {cell.coordinate} is a formula without its value; open the file in the"
                " spreadsheet and save it, or paste the values"
            )
    return title, rows


def _hidden(data: bytes, sheet: Any, filled: Set[int]) -> tuple[str, ...]:
    """A word about rows that a filter hides."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        tags = re.findall(rb"<row [^>]*>", archive.read(sheet._worksheet_path))
    marks = (re.search(rb' r="(\d+)"', tag) for tag in tags if re.search(rb' hidden="(1|true)"', tag))
    found = sorted(filled & {int(mark[1]) for mark in marks if mark})
    if not found:
        return ()
    some = "1 row is" if len(found) == 1 else f"{len(found)} rows are"
    return (f"{some} hidden in the spreadsheet (row {found[0]}), and read; delete what does not count",)


def _value(cell: Any) -> Any:
    value = cell.value
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and _ZEROS.fullmatch(str(cell.number_format)):
        return str(value).zfill(len(cell.number_format))
    return None if value == "" else value


def _sheet(rows: Sequence[Row], name: str, skip: int) -> Sheet:
    rows = [row for row in rows if row[0] > skip]
    if not rows:
        raise InputError(f"{name} has nothing below row {skip}; use a smaller --skip")
    (_, header), *body = rows
    columns = list(zip_longest(header, *(filled for _, filled in body)))
    if len(columns) > len(header) == 1:
        below = next(line for line, filled in rows if len(filled) > 1)
        raise InputError(f"{name}: the column names seem to stand in row {below}; use --skip {below - 1}")
    names = ["" if c[0] is None else str(c[0]).strip() for c in columns]
    arrays = []
    for own, (_, *values) in zip(names, columns, strict=True):
        array = cells(pd.Series(values, dtype=object), f"{name}, column {short(own)!r}")
        arrays.append(array.cast(pa.string()) if pa.types.is_null(array.type) else array)
    return Sheet(pa.table(arrays, names=names), name, lines=np.array([line for line, _ in body], dtype=np.int64))


def write(tables: Iterable[pa.Table], path: Path) -> None:
    """Stream tables of one shape into a workbook with one sheet; text stays text."""
    openpyxl = _openpyxl()
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.utils.exceptions import IllegalCharacterError

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("aicau")
    sheet.freeze_panes = "B2"
    count = 0

    def cell(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return None
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**15:
            value = str(value)  # more digits than a spreadsheet keeps
        if not isinstance(value, str):
            return value
        try:
            made = WriteOnlyCell(sheet, value)
        except IllegalCharacterError:
            raise InputError(f"{shown(value)} cannot stand in an Excel file; write a .csv or .parquet file") from None
        made.data_type, made.number_format = "s", "@"  # no formula, and zeros stay
        return made

    try:
        for table in tables:
            count += table.num_rows
            if count >= MOST_ROWS:
                raise InputError(f"an Excel sheet holds {MOST_ROWS:,} rows; write a .csv or .parquet file")
            if sheet._rows is None:
                sheet.append([cell(name) for name in table.column_names])
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                sheet.append([cell(value) for value in row])
    except BaseException:
        if sheet._rows is not None:
            sheet.close()
        raise
    book.save(path)
