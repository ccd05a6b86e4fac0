"""Parquet files: read as a whole, or one row group at a time (`Parts`), so that a pool need not fit into memory."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa

from aicau.core.errors import InputError
from aicau.core.files import reason, short
from aicau.tables.sheet import Sheet, checked


@dataclass(frozen=True)
class Parts:
    """The rows of some Parquet files, in their order: a `Sheet` for each row group, read when it is wanted."""

    name: str
    groups: tuple[tuple[Path, int, int, int], ...]  # file, its group, the row in it where that begins, rows
    columns: tuple[str, ...]

    @classmethod
    def of(cls, files: Sequence[Path], name: str) -> "Parts":
        """Of files with the same columns."""
        import pyarrow.parquet as pq  # brings network file systems with it: late

        groups: list[tuple[Path, int, int, int]] = []
        schemas: list[pa.Schema] = []
        for path in files:
            with understood(short(path.name)), pq.ParquetFile(path) as file:
                schemas.append(file.schema_arrow)
                sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
                places = enumerate(zip(accumulate(sizes, initial=0), sizes, strict=False))
                groups += [(path, group, start, rows) for group, (start, rows) in places if rows]
        for path, schema in zip(files, schemas, strict=True):
            for own, other in zip_longest(_columns(schema), _columns(schemas[0]), fillvalue="nothing"):
                if own != other:
                    words = f"{short(path.name)} has {own} where {short(files[0].name)} has {other}"
                    raise InputError(
                        f"the files of one pool need the same columns and types in the same order; {words}"
                    )
        if not groups:
            raise InputError(f"{name} has column names but no rows; add one row per candidate or measurement")
        first = next(cls(name, tuple(groups), ()).parts())
        return cls(name, tuple(groups), first.columns)

    @property
    def rows(self) -> int:
        return sum(rows for *_, rows in self.groups)

    def has(self, column: str) -> bool:
        return column in self.columns

    def parts(self) -> Iterator[Sheet]:
        """One row group after another; rows are called by their place in the file."""
        import pyarrow.parquet as pq

        for path, group, start, rows in self.groups:
            name = short(path.name)
            with understood(name), pq.ParquetFile(path) as file:
                table = file.read_row_group(group)
            sheet = checked(Sheet(validated(table, name), name, np.arange(start, start + rows) + 2))
            if sheet.rows != rows or (self.columns and sheet.columns != self.columns):
                words = "candidates can stay in their file only if no row and no column of it is empty"
                raise InputError(f"{name}: {words}; write the file again, or leave --in-place out")
            yield sheet

    def row(self, index: int) -> str:
        """The row in its file, as messages name it."""
        for path, _, start, rows in self.groups:
            if index < rows:
                return f"{start + index + 2} of {short(path.name)}"
            index -= rows
        raise IndexError(index)

    def at(self, row: int, column: str) -> str:
        """The beginning of a message about a cell."""
        return f"{self.name}, row {self.row(row)}, column {column!r}"


def _columns(schema: pa.Schema) -> list[str]:
    """Each column and its type, in words."""
    return [f"{short(field.name, 60)!r} ({short(field.type, 60)})" for field in schema]


@contextmanager
def understood(name: str) -> Iterator[None]:
    """Turn a reading error into one sentence."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InputError(f"{name} cannot be read as Parquet: {reason(error)}; write the file again") from error


def read(data: bytes, name: str) -> Sheet:
    """A whole file."""
    import pyarrow.parquet as pq

    with understood(name):
        table = pq.read_table(pa.BufferReader(data))
    return checked(Sheet(validated(table, name), name))


def validated(table: pa.Table, name: str) -> pa.Table:
    """The table, without the numbers of rows that pandas keeps; an error where cells of a column are damaged."""
    kept = [name for name, kind in zip(table.column_names, table.schema.types, strict=True) if not _index(name, kind)]
    table = table.select(kept) if kept else table
    for column, cells in zip(table.column_names, table.columns, strict=True):
        with understood(f"{name}, column {short(column)!r},"):
            cells.validate(full=True)
    return table


def _index(name: str, kind: pa.DataType) -> bool:
    return re.fullmatch(r"__index_level_\d+__", name) is not None and pa.types.is_integer(kind)
