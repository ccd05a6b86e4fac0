"""A campaign as plain files, for whoever comes after: nothing in it needs aicau to be read."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aicau import tables
from aicau.core.errors import InputError
from aicau.core.files import write_whole
from aicau.store import Session, Store, schema
from aicau.tables import candidates

FORMAT = "aicau export"
MANIFEST = "manifest.json"  # what an export wrote, with hashes: the next one replaces only that


def export(store: Store, folder: Path, force: bool = False) -> list[Path]:
    """candidates, proposals, measurements and events as CSV, settings as JSON, every model as safetensors."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InputError(f"cannot export to {folder}: it is not a folder; choose another name")
    with store.reading() as session:
        ids = candidates.all_ids(session.ids())
        name = store.settings["id"]
        files: dict[str, Callable[[Path], object]] = {
            "candidates.csv": lambda path: tables.write(_candidates(session, name), path),
            "proposals.csv": lambda path: tables.write(_rows(session, schema.proposals, ids, name), path),
            "measurements.csv": lambda path: tables.write(_measurements(session, ids, store.settings), path),
            "events.csv": lambda path: tables.write(_rows(session, schema.events, ids, name), path),
            "settings.json": partial(_json, store.settings),
        }
        for basis, round, _ in session.model_infos():
            if session.model(basis) is None:
                continue  # dropped by compact, or damaged
            files[f"models/round-{round}-tell-{basis}.safetensors"] = partial(_model, session, basis, "tensors")
            files[f"models/round-{round}-tell-{basis}.json"] = partial(_model, session, basis, "info")
        if not force:
            _check_folder(folder, [*files, MANIFEST])
        for file, write in files.items():
            write_whole(folder / file, write)
    write_whole(folder / MANIFEST, partial(_json, {FORMAT: {file: _hash(folder / file) for file in files}}))
    return [folder / file for file in (*files, MANIFEST)]


def _check_folder(folder: Path, files: list[str]) -> None:
    """Only what an earlier export wrote, and nobody changed since, may be replaced."""
    try:
        known = {**json.loads((folder / MANIFEST).read_bytes())[FORMAT], MANIFEST: _hash(folder / MANIFEST)}
    except (OSError, ValueError, LookupError, TypeError):
        known = {}
    for path in (folder / file for file in files):
        if os.path.lexists(path) and not (path.is_file() and known.get(str(path.relative_to(folder))) == _hash(path)):
            raise InputError(
                f"{path} is no file of an earlier export, or was changed since; choose another folder,"
                " or replace it with --force (Python: force=True)"
            )


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json(data: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(data, indent=1, sort_keys=True), encoding="utf-8")


def _model(session: Session, basis: int, part: str, path: Path) -> None:
    data = getattr(session.model(basis), part)
    path.write_bytes(data.encode() if isinstance(data, str) else bytes(data))


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
