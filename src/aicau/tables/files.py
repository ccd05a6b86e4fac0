"""People's tables, in and out: CSV, Parquet or DataFrame.

Text that a spreadsheet would take for a formula (it starts with = + - @ or a tab, also after blanks) is written with
an apostrophe in front, and read back without it.
"""

import csv
import io
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from aicau.core.errors import InputError
from aicau.core.files import reason, short
from aicau.tables.sheet import Sheet, is_text

MOST_COLUMNS = 10_000
LONGEST_NAME = 500  # of a column
BLOCK = 1 << 24  # bytes that a row may have
_BLANK = " \t\n\v\f\r\x1c-\x1f\x85\u00a0\u1680\u180e\u2000-\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
_FORMULA = f"'*(?:[\t\r]|[{_BLANK}]*[=+\\-@＝＋－＠])"
_GUARD = f"^({_FORMULA})"
_GUARDED = f"^'({_FORMULA})"
_QUOTED = re.compile(rb'"(?<=[,\r\n]")[^"]*(?:""[^"]*)*"(?=[,\r\n]|\Z)')  # a whole cell, after a line end
_OPEN = re.compile(rb'"(?<=[,\r\n]")')
_BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32"}


def read(source: Any, name: str | None = None) -> Sheet:
    """A CSV file, a Parquet file or a DataFrame. A pipe is read to its end."""
    if isinstance(source, pd.DataFrame):
        return _from_frame(source, name or "the table")
    if not isinstance(source, str | Path):
        raise InputError(f"a table is a CSV or Parquet file or a DataFrame; got {type(source).__name__}")
    data = _content(Path(source))
    name = short(Path(source).name if os.path.isfile(source) else source)
    if data[:4] == b"PAR1":
        return _from_parquet(data, name)
    try:
        if word := _BOMS.get(data[:4], _BOMS.get(data[:2])):
            data = data.decode(word).encode()
    except UnicodeError as error:
        raise InputError(f"{name} is not text in UTF-8 ({reason(error)}); save it as CSV in UTF-8") from error
    return _from_csv(data.removeprefix(b"\xef\xbb\xbf"), name)


def _content(path: Path) -> bytes:
    """All bytes of a file or a pipe; a pipe into which nobody writes does not block."""
    try:
        if os.path.exists(f"{os.path.realpath(path)}-wal"):  # closing it here would drop SQLite's locks
            raise InputError(f"cannot read {short(path)}: it is a database in use; expected a CSV or Parquet file")
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(handle, "rb") as file:
            kind = os.fstat(handle).st_mode
            if not stat.S_ISREG(kind) and not stat.S_ISFIFO(kind):
                raise InputError(f"cannot read {short(path)}: it is not a file; expected a CSV or Parquet file")
            os.set_blocking(handle, True)
            data = file.read()
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {short(path)}: {reason(error)}") from error
    if not data and stat.S_ISFIFO(kind):
        raise InputError(f"nothing came through the pipe {short(path)}; start its writer first, or name a file")
    return data


def _from_parquet(data: bytes, name: str) -> Sheet:
    where = ""
    try:
        table = pq.read_table(pa.BufferReader(data))
        for column, cells in zip(table.column_names, table.columns, strict=True):
            where = f", column {short(column)!r},"
            cells.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InputError(f"{name}{where} cannot be read as Parquet: {reason(error)}; write the file again") from error
    return _checked(table, name)


def _from_csv(data: bytes, name: str) -> Sheet:
    _check_text(data, name)
    rows = _rows(data, name)
    header = _header(data, name)
    bad: list[tuple[int, int, int]] = []

    def remember(row: Any) -> str:
        bad.append((row.number, row.expected_columns, row.actual_columns))
        return "error"

    positions = [str(i) for i in range(len(header))]
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(data),
            pa_csv.ReadOptions(column_names=positions, skip_rows=0, use_threads=False, block_size=BLOCK),
            pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=remember),
            pa_csv.ConvertOptions(column_types=dict.fromkeys(positions, pa.string()), strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        if bad:
            number, expected, got = bad[0]
            raise InputError(
                f"{name}, row {rows[number - 1]}: expected {expected} columns as in the header, got {got};"
                " is the file separated by commas, with decimal points, and every quote closed?"
            ) from error
        words = "a row is longer than 16 MB" if "straddling" in str(error) else reason(error)
        raise InputError(f"{name} cannot be read: {words}; save it as CSV in UTF-8") from error
    columns = table.slice(1).columns
    if b"'" in data:
        columns = [pc.replace_substring_regex(column, _GUARDED, r"\1") for column in columns]
    return _checked(pa.table(columns, names=header), name, rows[1:])


def _check_text(data: bytes, name: str) -> None:
    """UTF-8 without zero bytes."""
    at, words = data.find(b"\x00"), "holds a zero byte"
    if at < 0:
        try:
            data.decode()
            return
        except UnicodeDecodeError as error:
            at, words = error.start, "is not text in UTF-8"
    before = _OPEN.split(_QUOTED.sub(b"x", b"\n" + data[:at]))[0]
    raise InputError(f"{name}, row {_lines(before)} {words}; save it as CSV in UTF-8")


def _rows(data: bytes, name: str) -> NDArray[np.int64]:
    """What a spreadsheet calls the header and every row that is not blank; a quoted cell may hold line ends."""
    bare = b"\n" + data
    if b'"' in data:
        bare = _QUOTED.sub(b"x", bare)
    if wrong := _OPEN.search(bare):
        raise InputError(
            f"{name}, row {_lines(bare[: wrong.start()])}: a quote is not closed at the end of its cell;"
            ' write a quote inside a cell twice, as in "5"" plate"'
        )
    if b"\r" in data:
        bare = bare.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    ends = np.flatnonzero(np.frombuffer(bare + b"\n", np.uint8) == ord("\n"))
    return 1 + np.flatnonzero(np.diff(ends) > 1)


def _lines(data: bytes) -> int:
    """How many line ends there are."""
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")


def _header(data: bytes, name: str) -> list[str]:
    try:
        lines = csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""))
        names = next((line for line in lines if line), [])
    except csv.Error as error:
        raise InputError(f"{name}, row 1: not a line of column names ({reason(error)})") from error
    if not any(names):
        raise InputError(f"{name} is empty; expected a line of column names and then one line per row")
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{name} has {len(names):,} columns; at most {MOST_COLUMNS:,} can be read")
    if len(names) == 1 and (mark := next((m for m in ";\t|" if m in names[0]), None)):
        raise InputError(f"{name}, row 1: the columns are separated by {mark!r}; save it with commas")
    return [re.sub(_GUARDED, r"\1", n.strip()) for n in names]


def _checked(table: pa.Table, name: str, lines: NDArray[np.int64] | None = None) -> Sheet:
    names = table.column_names
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{name} has {len(names):,} columns; at most {MOST_COLUMNS:,} can be read")
    seen: dict[str, int] = {}
    for at, column in enumerate(names, 1):
        if not column:
            raise InputError(f"{name}, row 1: column {at} has no name")
        if len(column) > LONGEST_NAME or "\x00" in column:
            words = "a zero byte" if "\x00" in column else f"more than {LONGEST_NAME} characters"
            raise InputError(f"{name}, row 1: the name of column {at} has {words}; choose a shorter one")
        if column in seen:
            raise InputError(f"{name}, row 1: columns {seen[column]} and {at} are both called {column!r}")
        seen[column] = at
    if table.num_rows == 0:
        raise InputError(f"{name} has column names but no rows")
    return Sheet(table, name, lines=lines)


def _from_frame(frame: pd.DataFrame, name: str) -> Sheet:
    if any(label is not None for label in frame.index.names) and not set(frame.index.names) & set(frame.columns):
        frame = frame.reset_index()
    columns, names = [], [str(label) for label in frame.columns]
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{name} has {len(names):,} columns; at most {MOST_COLUMNS:,} can be read")
    for at in range(len(names)):
        series = frame.iloc[:, at]
        try:
            array = pa.array(series, from_pandas=True)
        except (pa.ArrowException, OverflowError, UnicodeError):
            array = None
        if array is None or isinstance(array.type, pa.BaseExtensionType):  # periods, intervals ...
            array = _mixed(series, name, names[at])
        columns.append(pa.chunked_array([array]) if isinstance(array, pa.Array) else array)
    try:
        table = pa.table(columns, names)
    except UnicodeError as error:
        raise InputError(f"{name} has a column name that is not text ({reason(error)}); rename it") from error
    return _checked(table, name)


def _mixed(series: "pd.Series[Any]", name: str, column: str) -> pa.Array:
    """A column of several types, as text; complex numbers as pairs, which nothing takes for a category."""
    try:
        if any(isinstance(value, complex) for value in series):
            return pa.array([{"real": complex(v).real, "imaginary": complex(v).imag} for v in series])
        return pa.array([None if missing else str(v) for v, missing in zip(series, series.isna(), strict=True)])
    except (UnicodeError, TypeError, ValueError) as error:
        raise InputError(f"{name}, column {column!r} cannot be read: {reason(error)}") from error


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
