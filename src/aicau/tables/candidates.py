"""The candidates of a campaign: encoded and standardised columns, kept as chunks of bytes, looked up by id.

A numeric column becomes one feature with mean 0 and variance 1 over the pool. A categorical column becomes one feature
per level, centred, and scaled so that the column as a whole has variance 1 and weighs as much as a numeric one.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aicau.core.errors import InputError, shown
from aicau.store import Chunk
from aicau.tables.sheet import Sheet, is_text, plain

CHUNK = 50_000  # rows: 6 MB of 16 features
MOST_LEVELS = 200  # of a category; more is free text or an id
MOST_NUMBERS = 250_000_000  # of the encoded table: 1 GB
REASONS = ("score", "share", "distance", "epistemic", "bias", "aleatoric")  # numbers behind a reason that have a column
RESERVED = ("replicate", "reason", "status", "sem", "count", *(f"reason_{name}" for name in REASONS))


def describe(sheet: Sheet, id: str, ignore: Sequence[str] = ()) -> list[dict[str, Any]]:
    """How each column but the id is encoded: what `encode` needs, as plain JSON."""
    for name in ignore:
        sheet.array(name)
    columns = []
    for name in sheet.table.column_names:
        if name == id:
            continue
        if name.strip().casefold() in RESERVED:
            raise InputError(f"{sheet.name}: a column called {name!r} has a meaning of its own here; rename it")
        if name in ignore:
            columns.append({"name": name, "kind": "ignored"})
        elif sheet.looks_numeric(name):
            columns.append(_number(sheet, name))
        else:
            columns.append(_category(sheet, name))
    width = sum(len(c.get("levels", [0])) for c in columns if c["kind"] != "ignored")
    if width == 0:
        raise InputError(f"{sheet.name} has no feature column beside the id {id!r}")
    if width * sheet.rows > MOST_NUMBERS:
        raise InputError(f"{sheet.name}: {sheet.rows:,} rows of {width:,} features are too many; leave columns out")
    return columns


def _number(sheet: Sheet, name: str) -> dict[str, Any]:
    values = sheet.numbers(name)
    size = float(np.abs(values).max())
    unit = size if 0 < size < 1e-100 else 1.0  # squares of such numbers would be 0
    with np.errstate(over="ignore", invalid="ignore"):
        shift, scale = unit * float((values / unit).mean()), unit * float((values / unit).std())
    if not np.isfinite([shift, scale]).all():
        raise InputError(f"{sheet.name}, column {name!r}: numbers up to {size:.3g} are too large")
    return {"name": name, "kind": "number", "shift": shift, "scale": scale if scale > 1e-12 * abs(shift) else 1.0}


def _category(sheet: Sheet, name: str) -> dict[str, Any]:
    counts = pc.value_counts(sheet.texts(name))
    found = dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))
    if len(found) > MOST_LEVELS:
        raise InputError(
            f"{sheet.name}, column {name!r} holds {len(found):,} different texts, too many for a category"
            f" (at most {MOST_LEVELS}); leave it out with --ignore"
        )
    levels = sorted(found)
    share = np.array([found[level] for level in levels]) / sheet.rows
    scale = float(np.sqrt((share * (1 - share)).sum()))
    shift = [float(p) for p in share]
    return {"name": name, "kind": "category", "levels": levels, "shift": shift, "scale": scale if scale > 0 else 1.0}


def cut(sheet: Sheet, id: str, columns: Sequence[dict[str, Any]]) -> Iterator[Chunk]:
    """The candidates as chunks; ids are checked before the first one leaves."""
    ids = sheet.texts(id)
    _distinct(sheet, id, ids)
    arrays: dict[str, pa.Array] = {}
    for column in columns:
        name = column["name"]
        if column["kind"] == "number":
            arrays[name] = pa.array(sheet.numbers(name))
        elif column["kind"] == "category":
            arrays[name] = sheet.texts(name)
        else:
            arrays[name] = _kept(sheet, name)
    table = pa.table(arrays)
    for start in range(0, sheet.rows, CHUNK):
        part = ids.slice(start, CHUNK)
        yield Chunk(len(part), _pack(pa.table({"id": part})), _pack(table.slice(start, CHUNK)))


def _kept(sheet: Sheet, name: str) -> pa.Array:
    """A column that is no feature, in a form that every kind of file can hold."""
    array = sheet.array(name)
    if is_text(array.type):
        sheet.texts(name, empty=True)  # refuses zero bytes
    try:
        return plain(array)
    except InputError as error:
        raise InputError(f"{sheet.name}, column {name!r}: {error}; leave the column out of the file") from error


def _distinct(sheet: Sheet, id: str, ids: pa.Array) -> None:
    counts = pc.value_counts(ids)
    if len(counts) == len(ids):
        return
    again = counts.field(0)[pc.index(pc.greater(counts.field(1), 1), True).as_py()]
    first, second = pc.indices_nonzero(pc.equal(ids, again)).to_pylist()[:2]
    raise InputError(f"{sheet.at(second, id)}: the id {shown(again.as_py())} stands in row {sheet.row(first)} already")


def _pack(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def unpack(data: bytes) -> pa.Table:
    """The table behind the bytes of a chunk."""
    table = pa.ipc.open_stream(pa.py_buffer(bytes(data))).read_all()
    return pa.table([plain(column) for column in table.columns], names=table.column_names)


def all_ids(parts: Iterable[bytes]) -> pa.Array:
    """Ids of all candidates in their order."""
    return pa.chunked_array([c for part in parts for c in unpack(part).column(0).chunks], pa.string()).combine_chunks()


def encode(table: pa.Table, columns: Sequence[dict[str, Any]]) -> NDArray[np.float32]:  # (rows, width)
    """Standardised features of some candidates."""
    width = sum(len(c.get("levels", [0])) for c in columns if c["kind"] != "ignored")
    out = np.zeros((table.num_rows, width), np.float32)
    at = 0
    for column in columns:
        if column["kind"] == "number":
            out[:, at] = (table.column(column["name"]).to_numpy() - column["shift"]) / column["scale"]
            at += 1
        elif column["kind"] == "category":
            code = pc.index_in(table.column(column["name"]), pa.array(column["levels"])).to_numpy()
            out[np.arange(len(code)), at + code] = 1
            stop = at + len(column["levels"])
            out[:, at:stop] = (out[:, at:stop] - np.array(column["shift"])) / column["scale"]
            at = stop
    return out


def feature_names(columns: Sequence[dict[str, Any]]) -> list[str]:
    """What the columns of `encode` are called."""
    names: list[str] = []
    for column in columns:
        if column["kind"] == "number":
            names.append(column["name"])
        elif column["kind"] == "category":
            names.extend(f"{column['name']}={level}" for level in column["levels"])
    return names
