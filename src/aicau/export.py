"""A campaign as plain files, for whoever comes after: nothing in it needs aicau to be read."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aicau import candidates, tables
from aicau.errors import InputError
from aicau.files import write_whole
from aicau.store import Session, Store, schema


def export(store: Store, folder: Path) -> list[Path]:
    """candidates, proposals, measurements and events as CSV, settings as JSON, every model as safetensors."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"cannot export to {folder}: it is not a folder")
    written = []
    with store.reading() as session:
        ids = candidates.all_ids(session.ids())
        name = store.settings["id"]
        streams: dict[str, Callable[[], Iterator[pa.Table]]] = {
            "candidates.csv": lambda: _candidates(session, name),
            "proposals.csv": lambda: _rows(session, schema.proposals, ids, name),
            "measurements.csv": lambda: _measurements(session, ids, store.settings),
            "events.csv": lambda: _rows(session, schema.events, ids, name),
        }
        for file, stream in streams.items():
            written.append(write_whole(folder / file, partial(_table, stream())))
        words = json.dumps(store.settings, indent=1, sort_keys=True)
        written.append(write_whole(folder / "settings.json", lambda path: path.write_text(words, encoding="utf-8")))
        for basis, round, _ in session.model_infos():
            if (row := session.model(basis)) is None:
                continue  # dropped by compact, or damaged
            stem = folder / "models" / f"round-{round}-tell-{basis}"
            for suffix, data in ((".safetensors", bytes(row.tensors)), (".json", row.info.encode())):
                written.append(write_whole(stem.with_suffix(suffix), partial(_bytes, data)))
    return written


def _table(stream: Iterator[pa.Table], path: Path) -> None:
    tables.write(stream, path)


def _bytes(data: bytes, path: Path) -> None:
    path.write_bytes(data)


def _candidates(session: Session, id: str) -> Iterator[pa.Table]:
    for _, ids, features in session.features():
        yield candidates.unpack(features).add_column(0, id, candidates.unpack(ids).column(0))


def _columns(table: Any, rows: Any) -> dict[str, pa.Array]:
    kinds = {"INTEGER": pa.int64(), "TEXT": pa.string(), "DOUBLE": pa.float64()}
    values = list(zip(*rows, strict=True)) if rows else [()] * len(table.columns)
    return {c.name: pa.array(v, kinds[str(c.type)]) for c, v in zip(table.columns, values, strict=True)}


def _rows(session: Session, table: Any, ids: pa.Array, id: str) -> Iterator[pa.Table]:
    columns = _columns(table, session.table(table))
    if "candidate" in columns:
        columns["candidate"] = pc.take(ids, columns["candidate"])
        columns = {id if name == "candidate" else name: column for name, column in columns.items()}
    yield pa.table(columns)


def _measurements(session: Session, ids: pa.Array, settings: dict[str, Any]) -> Iterator[pa.Table]:
    """With the campaign's own column names, and when and by whom each row was told and superseded."""
    columns = _columns(schema.measurements, session.measurements(current=False))
    said = {row.reference: (row.time, row.author) for row in session.table(schema.events) if row.kind == "tell"}
    result = "label" if settings.get("task") == "classification" else "value"
    place = {"value": result}  # whatever it is stands there
    columns = {place.get(name, name): columns[place.get(name, name)] for name in columns if name != "label"}
    own = {"candidate": settings["id"], result: settings["target"], "batch": settings["batch"] or "batch"}
    taken = set(own.values())

    def free(name: str) -> str:
        return f"aicau_{name}" if name in taken else name

    ours = {"id": free("measurement"), "repeats": free("count")}
    out = {own.get(name) or ours.get(name) or free(name): column for name, column in columns.items()}
    out[settings["id"]] = pc.take(ids, columns["candidate"])
    for prefix, column in (("", "tell"), ("superseded_", "superseded_by")):
        for at, word in enumerate(("time", "author")):
            told = [None if t is None else said[t][at] for t in columns[column].to_pylist()]
            out[free(f"{prefix}{word}")] = pa.array(told, pa.string())
    yield pa.table(out)
