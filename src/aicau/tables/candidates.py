"""The candidates of a campaign: encoded and standardised columns, kept as chunks of bytes, looked up by id.

A numeric column becomes one feature with mean 0 and variance 1 over the pool. A categorical column becomes one feature
per level, centred, and scaled so that the column as a whole has variance 1 and weighs as much as a numeric one.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aicau.core.errors import InputError, shown
from aicau.core.files import reason, short
from aicau.store import Chunk, Session, inplace
from aicau.store.identity import alike
from aicau.tables.kinds import is_text, made_a_date, plain
from aicau.tables.parquet import Parts
from aicau.tables.sheet import Sheet

Table = Sheet | Parts

CHUNK = 50_000  # rows: 6 MB of 16 features
MOST_LEVELS = 200  # of a category; more is free text or an id
MOST_NUMBERS = 250_000_000  # of the encoded table: 1 GB
_UNIT = re.compile(r"\s*([+-]?\d+([.,]\d+)?\s*[^\d\s.,:/-][^\d]*|[$€£<>≤≥~]\s*\d+([.,]\d+)?)")  # 5 mg, 10%, $5, <3
_DATE = re.compile(r"\s*(\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./]\d{2,4})([ T].*)?")
REASONS = ("score", "share", "distance", "epistemic", "bias", "aleatoric")  # numbers behind a reason that have a column
RESERVED = ("replicate", "reason", "status", "sem", "count", *(f"reason_{name}" for name in REASONS))


def describe(sheet: Table, id: str, ignore: Sequence[str] = ()) -> list[dict[str, Any]]:
    """How `encode` is to encode each column but the id, as plain JSON."""
    first = next(sheet.parts())
    for name in ignore:
        first.array(name)
    columns = []
    for name in sheet.columns:
        if name == id:
            continue
        if name.strip().casefold() in RESERVED:
            raise InputError(f"{sheet.name}: a column called {name!r} has a meaning of its own here; rename it")
        kind = "ignored" if name in ignore else "number" if first.looks_numeric(name) else "category"
        columns.append({"name": name, "kind": kind})
    if not (features := [column for column in columns if column["kind"] != "ignored"]):
        raise InputError(f"{sheet.name} has no feature column beside the id {id!r}")
    _measure(sheet, features)
    if isinstance(sheet, Sheet):  # what stays in its files need not fit into memory
        check_width(sheet.name, sheet.rows, columns)
    return columns


def _width(column: dict[str, Any]) -> int:
    """How many features a column becomes."""
    return 0 if column["kind"] == "ignored" else len(column.get("levels", [0]))


def check_width(name: str, rows: int, columns: Sequence[dict[str, Any]]) -> None:
    """Refuse a table whose encoded copy would need too much memory."""
    width = sum(map(_width, columns))
    if width * rows > MOST_NUMBERS:
        raise InputError(
            f"{name}: {rows:,} rows of {width:,} features are too many for a copy; leave columns out, or keep them in a"
            " Parquet file: --in-place"
        )


def extended(sheet: Sheet, columns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The columns with the new levels of more candidates behind the known ones."""
    found = []
    for column in columns:
        if column["kind"] == "category":
            new = sorted(set(sheet.texts(column["name"]).to_pylist()) - set(column["levels"]))
            column = column | {"levels": column["levels"] + new, "shift": column["shift"] + [0.0] * len(new)}
            _check_levels(sheet, column["name"], len(column["levels"]))
        found.append(column)
    return found


def summary(columns: Sequence[dict[str, Any]]) -> str:
    """What was understood of the columns: "4 numbers, 1 category with 3 levels, 1 ignored"."""
    parts = [
        f"category {c['name']!r} with {len(c['levels'])} level{'s' * (len(c['levels']) > 1)} ({_some(c['levels'])})"
        for c in columns
        if c["kind"] == "category"
    ]
    if numbers := [c["name"] for c in columns if c["kind"] == "number"]:
        parts.insert(0, f"{len(numbers)} number{'s' * (len(numbers) > 1)} ({_some(numbers)})")
    if ignored := [c["name"] for c in columns if c["kind"] == "ignored"]:
        parts.append(f"{len(ignored)} ignored ({_some(ignored)})")
    return ", ".join(parts)


def _some(names: Sequence[str]) -> str:
    return ", ".join(short(" ".join(name.split()), 40) for name in names[:4]) + (" ..." if len(names) > 4 else "")


def notes(columns: Sequence[dict[str, Any]], rows: int) -> list[str]:
    """Warnings about columns that were read as categories and may be something else."""
    words = []
    for column in columns:
        levels, name = column.get("levels", ()), column["name"]
        begin = f"column {name!r} is a category with {len(levels)} levels"
        if 2 * sum(_UNIT.fullmatch(level) is not None for level in levels) > len(levels):
            words.append(f"{begin} such as {levels[0]!r}: to use it as a number write the numbers without their unit")
        elif 2 * sum(_DATE.fullmatch(level) is not None for level in levels) > len(levels):
            words.append(f"{begin} that look like dates ({levels[0]!r}): write days as numbers, or use --ignore {name}")
        elif 0 < (numbers := sum(isinstance(alike(level), float) for level in levels)) < len(levels):
            words.append(f"{begin}, {numbers} of them numbers: if it is a number, write numbers alone into all rows")
        elif len(levels) == rows > 2:
            words.append(f"{begin}, one for every row, so it teaches nothing: use --ignore {name}")
        elif pair := next(iter(look_alikes(levels)), None):
            words.append(f"{begin}, and {pair[0]!r} looks like {pair[1]!r}: if they are one, write them alike")
    return words


def look_alikes(names: Sequence[str]) -> list[tuple[str, str]]:
    """Names that differ from one before only by case, blanks, unicode form or the way a number is written."""
    seen: dict[float | str, str] = {}
    return [(name, other) for name in names if (other := seen.setdefault(alike(name), name)) != name]


def described(session: Session, index: Sequence[int]) -> pd.DataFrame:
    """Ids and columns of some candidates, in that order."""
    ends = np.cumsum(session.sizes())
    wanted = np.asarray(index, dtype=np.int64)
    chunk = np.searchsorted(ends, wanted, side="right")
    parts: list[pa.Table] = []
    for number, ids, features in session.features(chunk if len(wanted) else [0]):
        table = unpack(features).add_column(0, session.settings["id"], ids_of(ids, session.settings))
        parts.append(table.take(wanted[chunk == number] - (ends[number - 1] if number else 0)))
    found = pa.concat_tables(parts).to_pandas(integer_object_nulls=True)
    return found.iloc[np.argsort(np.argsort(chunk, kind="stable"))].reset_index(drop=True)  # they came by chunk


def ids_of(chunk: bytes, settings: dict[str, Any]) -> pa.ChunkedArray:
    """Ids of a chunk; whole numbers where the pool had them as such."""
    ids = unpack(chunk).column(0)
    return ids.cast(pa.int64()) if settings.get("id_kind") == "integer" else ids


def _measure(sheet: Table, columns: Sequence[dict[str, Any]]) -> None:
    """Add to each column what `encode` needs, in two passes over the rows."""
    counts = {c["name"]: Counter[str]() for c in columns if c["kind"] == "category"}
    sizes = {c["name"]: 0.0 for c in columns if c["kind"] == "number"}
    for part in sheet.parts():
        for name, found in counts.items():
            found.update({pair["values"]: pair["counts"] for pair in pc.value_counts(part.texts(name)).to_pylist()})
            _check_levels(sheet, name, len(found))
        for name, size in sizes.items():
            values = part.numbers(name, instead=f"; write a number, or leave the column out: --ignore {name}")
            sizes[name] = max(size, float(np.abs(values).max()))
    sums = {name: Sums(size) for name, size in sizes.items()}
    for part in sheet.parts() if sums else ():
        for name, own in sums.items():
            own.add(part.numbers(name))
    for column in columns:
        name = column["name"]
        if name in sums:
            column |= sums[name].about(sheet.name, name)
            continue
        levels = sorted(counts[name])
        share = np.array([counts[name][level] for level in levels]) / sheet.rows
        scale = float(np.sqrt((share * (1 - share)).sum()))
        column |= {"levels": levels, "shift": share.tolist(), "scale": scale if scale > 0 else 1.0}


class Sums:
    """Mean and standard deviation of a column, the same in however many parts it comes."""

    def __init__(self, size: float) -> None:
        self.size, self.count = size, 0
        self.unit = size if 0 < size < 1e-100 else 1.0  # squares of such numbers would be 0
        self.first = self.total = self.square = np.longdouble(0)

    def add(self, values: NDArray[np.float64]) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            values = values / self.unit
            self.first = self.first if self.count else np.longdouble(values[0])
            away = values - float(self.first)  # about one of them: little cancels
            self.total += away.sum(dtype=np.longdouble)
            self.square += (away * away).sum(dtype=np.longdouble)
        self.count += len(values)

    def about(self, where: str, name: str) -> dict[str, float]:
        """Shift and scale."""
        with np.errstate(over="ignore", invalid="ignore"):
            mean = self.total / self.count
            shift = self.unit * float(self.first + mean)
            scale = self.unit * float(np.sqrt(max(self.square / self.count - mean * mean, np.longdouble(0))))
        if not np.isfinite([shift, scale]).all():
            raise InputError(f"{where}, column {name!r}: numbers up to {self.size:.3g} are too large")
        return {"shift": shift, "scale": scale if scale > 1e-12 * abs(shift) else 1.0}


def _check_levels(sheet: Table, name: str, count: int) -> None:
    if count > MOST_LEVELS:
        words = f"{count:,} different texts, and a category has at most {MOST_LEVELS}; leave it out: --ignore {name}"
        raise InputError(f"{sheet.name}, column {name!r} holds {words}")


def cut(sheet: Sheet, id: str, columns: Sequence[dict[str, Any]], schema: pa.Schema | None = None) -> Iterator[Chunk]:
    """The candidates as chunks, with column types as in `schema`. All ids are checked before the first chunk leaves."""
    ids, table = distinct_ids(sheet, id).combine_chunks(), _columns(sheet, columns)
    try:
        table = table if schema is None else table.cast(schema.remove_metadata())
    except (pa.ArrowException, ValueError) as error:
        words = f"a column has another type than before ({reason(error)}); write it alike"
        raise InputError(f"{sheet.name}: {words}") from error
    yield from (chunk(ids.slice(at, CHUNK), table.slice(at, CHUNK)) for at in range(0, sheet.rows, CHUNK))


def distinct_ids(sheet: Table, id: str) -> pa.ChunkedArray:
    """The ids without blanks around, all different."""
    ids = pa.chunked_array([pc.utf8_trim_whitespace(part.texts(id)) for part in sheet.parts()], pa.string())
    if (row := made_a_date(ids)) is not None:
        words = "a date, and other ids are none; a spreadsheet makes dates of SEP1: write it again, as text"
        raise InputError(f"{sheet.at(row, id)}: {shown(ids[row].as_py())} is {words}")
    if pc.count_distinct(ids).as_py() < len(ids):
        ids = ids.combine_chunks()
        places = pc.index_in(ids, value_set=ids).to_numpy()  # of the first one that is equal
        row = int((places < np.arange(len(ids))).argmax())
        words = f"the id {shown(ids[row].as_py())} stands in row {sheet.row(int(places[row]))} already"
        raise InputError(f"{sheet.at(row, id)}: {words}")
    return ids


def _columns(sheet: Sheet, columns: Sequence[dict[str, Any]]) -> pa.Table:
    """The columns as they are kept: numbers, texts, and ignored columns in a form that every kind of file can hold."""
    found: dict[str, pa.Array] = {}
    for name, kind in ((column["name"], column["kind"]) for column in columns):
        if kind != "ignored":
            found[name] = pa.array(sheet.numbers(name)) if kind == "number" else sheet.texts(name)
            continue
        if is_text(sheet.array(name).type):
            sheet.texts(name, empty=True)  # refuses zero bytes
        try:
            found[name] = plain(sheet.array(name))
        except InputError as error:
            raise InputError(f"{sheet.name}, column {name!r}: {error}; leave the column out of the file") from error
    return pa.table(found)


def kept(sheet: Table, id: str, columns: Sequence[dict[str, Any]]) -> Iterator[Chunk]:
    """The candidates as chunks; for candidates that stay in their files a chunk says where its rows are."""
    if isinstance(sheet, Sheet):
        yield from cut(sheet, id, columns)
        return
    distinct_ids(sheet, id)
    files = {path: inplace.about(path) for path, *_ in sheet.groups}
    kinds = {id: "id"}, {column["name"]: column["kind"] for column in columns}
    for (path, group, _, rows), part in zip(sheet.groups, sheet.parts(), strict=True):
        places = [json.dumps(files[path] | {"group": group, "columns": own}).encode() for own in kinds]
        for place, known in zip(places, (pa.table({"id": part.texts(id)}), _columns(part, columns)), strict=True):
            if not unpack(place).equals(known):
                words = "candidates can stay in their file only if numbers are numbers, and text has no blanks around"
                raise InputError(f"{part.name}: {words}; write the file again, or leave --in-place out")
        yield Chunk(rows, *places)


def chunk(ids: pa.Array | pa.ChunkedArray, columns: pa.Table) -> Chunk:
    """Some candidates as bytes."""
    sinks = io.BytesIO(), io.BytesIO()
    for sink, table in zip(sinks, (pa.table({"id": ids}), columns), strict=True):
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return Chunk(len(ids), *(sink.getvalue() for sink in sinks))


def unpack(data: bytes) -> pa.Table:
    """The table behind the bytes of a chunk, wherever its rows are."""
    if (table := inplace.read(data)) is None:
        table = pa.ipc.open_stream(pa.py_buffer(bytes(data))).read_all()
    return pa.table([plain(column) for column in table.columns], names=table.column_names)


def all_ids(parts: Iterable[bytes]) -> pa.Array:
    """Ids of all candidates in their order."""
    return pa.chunked_array([c for part in parts for c in unpack(part).column(0).chunks], pa.string()).combine_chunks()


def encode(table: pa.Table, columns: Sequence[dict[str, Any]]) -> NDArray[np.float32]:  # (rows, width)
    """Standardised features of some candidates."""
    columns = [column for column in columns if column["kind"] != "ignored"]
    found, at = np.empty((table.num_rows, sum(map(_width, columns))), np.float32), 0
    for column in columns:  # into its place: a copy of a whole table costs memory
        cells, width = table.column(column["name"]), _width(column)
        if column["kind"] == "category":
            cells = pc.index_in(cells, pa.array(column["levels"])).to_numpy()[:, None] == np.arange(width)
        values = np.asarray(cells).reshape(len(found), -1)
        found[:, at : at + width] = (values - np.array(column["shift"])) / column["scale"]
        at += width
    return found
