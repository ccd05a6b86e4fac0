"""People's tables, in and out: CSV, Excel, Parquet or DataFrame.

Text that a spreadsheet would take for a formula (it starts with = + - @ or a tab, also after blanks) is written with
an apostrophe in front, and read back without it.
"""

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from aicau.core.errors import InputError
from aicau.core.files import reason, short
from aicau.tables import delimited, parquet
from aicau.tables.kinds import cells, is_text
from aicau.tables.sheet import Sheet, checked, too_many

_BLANK = " \t\n\v\f\r\x1c-\x1f\x85\u00a0\u1680\u180e\u2000-\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
_FORMULA = f"'*(?:[\t\r]|[{_BLANK}]*[=+\\-@＝＋－＠])"
_GUARD = f"^({_FORMULA})"
_GUARDED = f"^'({_FORMULA})"
_AS_TEXT = r'^="(.*)"$'  # how a spreadsheet is told to keep the zeros of an id
WORKBOOKS, PARQUET = (".xlsx", ".xlsm"), (".parquet", ".pq")


def read(source: Any, name: str | None = None, sheet: str | None = None, skip: int = 0) -> Sheet:
    """A CSV, Excel or Parquet file or a DataFrame. A pipe is read to its end.

    `sheet` is one of an Excel file; `skip` lines stand above the column names.
    """
    if isinstance(skip, bool) or not isinstance(skip, int) or skip < 0:
        raise InputError(f"--skip takes a number of lines, 0 or more; got {skip!r}")
    if isinstance(source, pd.DataFrame):
        data, name = b"", name or "the table"
        found = _from_frame(source, name)
    elif isinstance(source, str | Path):
        data, name = _content(Path(source)), short(Path(source).name if os.path.isfile(source) else source)
        found = _from_bytes(data, name, sheet, skip)
    else:
        raise InputError(f"a table is a CSV, Excel or Parquet file or a DataFrame; got {type(source).__name__}")
    if skip and (isinstance(source, pd.DataFrame) or data[:4] == b"PAR1"):
        raise InputError(f"{name} has no lines above its column names; leave --skip out")
    if sheet is not None and data[:2] != b"PK":
        raise InputError(f"{name} is no Excel file and has no sheets; leave --sheet out")
    return found


def read_pool(source: Any, in_place: bool, sheet: str | None = None, skip: int = 0) -> Sheet | parquet.Parts:
    """A table of candidates. Candidates stay `in_place` in a Parquet file or in a folder of such files."""
    if not in_place:
        return read(source, "the pool", sheet, skip)
    if skip or sheet is not None:
        raise InputError("Parquet files have no sheets and no lines above column names; leave --sheet and --skip out")
    words = "only candidates in a Parquet file, or in a folder of them, can stay in place"
    if not isinstance(source, str | Path):
        raise InputError(f"{words}; write them so")
    path = Path(source)
    files = [path]
    if path.is_dir():  # macOS and others leave hidden files beside what is meant
        files = sorted(file for file in path.rglob("[!.]*") if file.suffix.lower() in PARQUET)
    if wrong := [file for file in files if not _is_parquet(file)] or [path] * (not files):
        raise InputError(f"{words}; {short(wrong[0])} is none")
    if inner := [file for file in files if path not in (file, file.parent)]:
        raise InputError(f"{short(inner[0])} is in a folder inside {short(path)}; put all files into one folder")
    return parquet.Parts.of(files, short(path.name))


def _is_parquet(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return file.read(4) == b"PAR1"
    return False


def _from_bytes(data: bytes, name: str, title: str | None, skip: int) -> Sheet:
    if data[:4] == b"PAR1":
        return parquet.read(data, name)
    if data[:8] == b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1":
        raise InputError(f"{name} is an old Excel file (.xls) or has a password; save it as .xlsx or CSV without one")
    if data[:4] == b"PK\x03\x04":
        from aicau.tables import excel

        sheet = excel.read(data, name, title, skip)
    else:
        sheet = delimited.read(data, name, skip)
    # Without the apostrophe before a formula, and without what keeps zeros: ="00117".
    return checked(replace(sheet, table=_replaced(unguarded(sheet.table), _AS_TEXT, r"\1")))


def _content(path: Path) -> bytes:
    """All bytes of a file or a pipe; a pipe into which nobody writes does not block."""
    try:
        if os.path.exists(f"{os.path.realpath(path)}-wal"):  # closing it here would drop SQLite's locks
            raise InputError(f"cannot read {short(path)}: it is a database in use; expected a CSV or Parquet file")
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(handle, "rb") as file:
            kind = os.fstat(handle).st_mode
            if not stat.S_ISREG(kind) and not stat.S_ISFIFO(kind):
                raise InputError(f"cannot read {short(path)}: it is not a file; expected a CSV, Excel or Parquet file")
            os.set_blocking(handle, True)
            data = file.read()
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {short(path)}: {reason(error)}") from error
    if not data and stat.S_ISFIFO(kind):
        raise InputError(f"nothing came through the pipe {short(path)}; start its writer first, or name a file")
    return data


def _from_frame(frame: pd.DataFrame, name: str) -> Sheet:
    if any(label is not None for label in frame.index.names) and not set(frame.index.names) & set(frame.columns):
        frame = frame.reset_index()
    names = [str(label) for label in frame.columns]
    too_many(len(names), name)
    columns = [cells(frame.iloc[:, at], f"{name}, column {column!r}") for at, column in enumerate(names)]
    try:
        table = pa.table(columns, names)
    except UnicodeError as error:
        raise InputError(f"{name} has a column name that is not text ({reason(error)}); rename it") from error
    return checked(Sheet(table, name))


def guarded(table: pa.Table) -> pa.Table:
    """A table whose text cells and column names are safe to open in a spreadsheet."""
    return _replaced(table, _GUARD, r"'\1")


def unguarded(table: pa.Table) -> pa.Table:
    """The inverse of `guarded`."""
    return _replaced(table, _GUARDED, r"\1")


def _replaced(table: pa.Table, pattern: str, words: str) -> pa.Table:
    """Replace a pattern in text cells and column names."""
    columns = [pc.replace_substring_regex(c, pattern, words) if is_text(c.type) else c for c in table.columns]
    return pa.table(columns, names=[re.sub(pattern, words, name) for name in table.column_names])


def write(tables: Iterable[pa.Table], path: Path) -> None:
    """Stream tables of one shape into a CSV, Excel or Parquet file, by its name."""
    if path.suffix.lower() in WORKBOOKS:
        from aicau.tables import excel

        excel.write(map(guarded, tables), path)
        return
    import pyarrow.parquet as pq

    binary = path.suffix.lower() in PARQUET
    stream = iter(tables) if binary else map(guarded, tables)
    first = next(stream)
    with pq.ParquetWriter(path, first.schema) if binary else pa_csv.CSVWriter(path, first.schema) as writer:
        for table in chain([first], stream):
            writer.write_table(table)
