"""People's tables, in and out: CSV, Parquet or DataFrame.

Text that a spreadsheet would take for a formula (it starts with = + - @ or a tab) is written with an apostrophe in
front, and read back without it.
"""

import codecs
import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from aicau.errors import InputError
from aicau.sheet import Sheet, is_text

MOST_COLUMNS = 10_000
_FORMULA = "=+\\-@\t\r＝＋－＠"
_GUARD = f"^('*[{_FORMULA}])"
_GUARDED = f"^'('*[{_FORMULA}])"
_BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32"}


def read(source: Any, name: str | None = None) -> Sheet:
    """A CSV file, a Parquet file or a DataFrame."""
    if isinstance(source, pd.DataFrame):
        return _from_frame(source, name or "the table")
    if not isinstance(source, str | Path):
        raise InputError(f"a table is a CSV or Parquet file or a DataFrame; got {type(source).__name__}")
    path = Path(source)
    try:
        with path.open("rb") as file:
            head = file.read(4)
        if head == b"PAR1":
            return _checked(pq.read_table(path), path.name)
        if head[:2] in _BOMS or head in _BOMS:
            text = path.read_bytes().decode(_BOMS.get(head, _BOMS.get(head[:2], "")))
            return _from_csv(lambda: io.BytesIO(text.encode()), path.name)
        return _from_csv(lambda: path.open("rb"), path.name)
    except OSError as error:
        if isinstance(error, pa.ArrowException):
            raise InputError(f"{path.name} is not a Parquet file that can be read: {_line(error)}") from error
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{path.name} cannot be read: {_line(error)}") from error
    except UnicodeError as error:
        raise InputError(f"{path.name} is not text in UTF-8 ({_line(error)}); save it as CSV in UTF-8") from error


def _line(error: Exception) -> str:
    words = " ".join(str(error).split())
    return words if len(words) <= 160 else words[:157] + "..."


def _from_csv(open_again: Any, name: str) -> Sheet:
    _check_text(open_again, name)
    header = _header(open_again, name)
    bad: list[tuple[int | None, int, int]] = []

    def remember(row: Any) -> str:
        bad.append((row.number, row.expected_columns, row.actual_columns))
        return "error"

    positions = [str(i) for i in range(len(header))]
    try:
        with open_again() as file:
            table = pa_csv.read_csv(
                file,
                pa_csv.ReadOptions(column_names=positions, skip_rows=0, use_threads=False, block_size=1 << 24),
                pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=remember),
                pa_csv.ConvertOptions(column_types=dict.fromkeys(positions, pa.string()), strings_can_be_null=False),
            )
    except pa.ArrowInvalid as error:
        if bad:
            number, expected, got = bad[0]
            raise InputError(
                f"{name}, row {number}: expected {expected} columns as in the header, got {got};"
                " is the file separated by commas, with decimal points, and every quote closed?"
            ) from error
        raise
    table = table.slice(1)
    columns = [pc.replace_substring_regex(column, _GUARDED, r"\1") for column in table.columns]
    return _checked(pa.table(columns, names=header), name)


def _check_text(open_again: Any, name: str) -> None:
    """UTF-8 without zero bytes, block by block."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    lines = 1
    with open_again() as file:
        while True:
            block = file.read(1 << 22)
            zero = block.find(b"\x00")
            if zero >= 0:
                row = lines + block[:zero].count(b"\n")
                raise InputError(f"{name}, row {row} holds a zero byte; save it as CSV in UTF-8")
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                row = lines + block[: error.start].count(b"\n")
                raise InputError(f"{name}, row {row} is not text in UTF-8; save it as CSV in UTF-8") from error
            if not block:
                return
            lines += block.count(b"\n")


def _header(open_again: Any, name: str) -> list[str]:
    try:
        with io.TextIOWrapper(open_again(), "utf-8-sig", newline="") as file:
            names = next(csv.reader(file), [])
    except csv.Error as error:
        raise InputError(f"{name}, row 1: not a line of column names ({_line(error)})") from error
    if not any(names):
        raise InputError(f"{name} is empty; expected a line of column names and then one line per row")
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{name} has {len(names):,} columns; at most {MOST_COLUMNS:,} can be read")
    if len(names) == 1 and (mark := next((m for m in ";\t|" if m in names[0]), None)):
        raise InputError(f"{name}, row 1: the columns are separated by {mark!r}; save it with commas")
    return [re.sub(_GUARDED, r"\1", n.strip()) for n in names]


def _checked(table: pa.Table, name: str, first: int = 2) -> Sheet:
    names = table.column_names
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{name} has {len(names):,} columns; at most {MOST_COLUMNS:,} can be read")
    seen: dict[str, int] = {}
    for at, column in enumerate(names, 1):
        if not column:
            raise InputError(f"{name}, row 1: column {at} has no name")
        if column in seen:
            raise InputError(f"{name}, row 1: columns {seen[column]} and {at} are both called {column!r}")
        seen[column] = at
    if table.num_rows == 0:
        raise InputError(f"{name} has column names but no rows")
    return Sheet(table, name, first)


def _from_frame(frame: pd.DataFrame, name: str) -> Sheet:
    if any(label is not None for label in frame.index.names) and not set(frame.index.names) & set(frame.columns):
        frame = frame.reset_index()
    columns, names = [], [str(label) for label in frame.columns]
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{name} has {len(names):,} columns; at most {MOST_COLUMNS:,} can be read")
    for at in range(len(names)):
        series = frame.iloc[:, at]
        try:
            columns.append(pa.array(series, from_pandas=True))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, UnicodeError):
            columns.append(_mixed(series, name, names[at]))
    return _checked(pa.table([pa.chunked_array([c]) if isinstance(c, pa.Array) else c for c in columns], names), name)


def _mixed(series: "pd.Series[Any]", name: str, column: str) -> pa.Array:
    """A column of several types, as text."""
    if series.dtype.kind == "c":
        raise InputError(f"{name}, column {column!r} holds complex numbers; split it into real ones")
    try:
        return pa.array([None if missing else str(v) for v, missing in zip(series, series.isna(), strict=True)])
    except (UnicodeError, TypeError, ValueError) as error:
        raise InputError(f"{name}, column {column!r} cannot be read: {_line(error)}") from error


def guard(array: pa.Array) -> pa.Array:
    """Text that no spreadsheet takes for a formula."""
    return pc.replace_substring_regex(array, _GUARD, r"'\1")


def guarded(table: pa.Table) -> pa.Table:
    """A table whose text cells and column names are safe to open in a spreadsheet."""
    columns = [guard(c) if is_text(c.type) else c for c in table.columns]
    return pa.table(columns, names=[re.sub(_GUARD, r"'\1", n) for n in table.column_names])


def write(tables: Iterable[pa.Table], path: Path) -> None:
    """Stream tables of one shape into a CSV or Parquet file, by its name."""
    parquet = path.suffix.lower() in {".parquet", ".pq"}
    writer: Any = None
    try:
        for table in tables:
            table = table if parquet else guarded(table)
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema) if parquet else pa_csv.CSVWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()
