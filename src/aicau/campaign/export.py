"""A campaign as plain files, which can be read without aicau.

`restore` makes the same campaign of them in a new file or database, row for row.
"""

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from aicau import tables
from aicau.core.errors import InputError
from aicau.core.files import digest, reason, write_whole
from aicau.store import Session, Store, restore_store, schema
from aicau.store.session import model_digest
from aicau.tables import candidates

FORMAT = "aicau export"
STRUCTURE = "structure.json"  # what CSV does not say: types, chunks, settings of the beginning
ROWS = ("candidates", "asks", "proposals", "tells", "events", "measurements")
KINDS = {"INTEGER": pa.int64(), "TEXT": pa.string(), "DOUBLE": pa.float64()}
SAID = ("time", "author", "superseded_time", "superseded_author")  # of a measurement, from the history
MANIFEST = "manifest.json"  # what an export wrote, with hashes: the next one replaces only that


def export(store: Store, folder: Path, force: bool = False) -> list[Path]:
    """Every table as CSV, settings as JSON, every model as safetensors; `restore` reads it back."""
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise InputError(f"cannot export to {folder}: it is not a folder; choose another name")
    with store.reading() as session:
        ids = candidates.all_ids(session.ids())
        rows = {name: _rows(name, session, ids) for name in ROWS[1:]}
        schemas = {name: table.schema for name, table in (("candidates", next(_candidates(session))), *rows.items())}
        structure = {
            "settings": json.loads(session.meta()["settings"]),  # of the beginning; events hold what was changed since
            "chunks": session.sizes(),
            "columns": {name: [(field.name, str(field.type)) for field in own] for name, own in schemas.items()},
            "measurements": _names(session.settings),
        }
        files: dict[str, Callable[[Path], object]] = {
            "candidates.csv": partial(tables.write, _candidates(session)),
            **{f"{name}.csv": partial(tables.write, [table]) for name, table in rows.items()},
            "settings.json": _json(session.settings),
            STRUCTURE: _json(structure),
        }
        for basis, round, info in session.model_texts():
            if session.model(basis) is not None:  # not dropped by compact
                files[f"models/round-{round}-tell-{basis}.safetensors"] = partial(_tensors, session, basis)
            files[f"models/round-{round}-tell-{basis}.json"] = partial(Path.write_bytes, data=info.encode())
        if not force:
            _check_folder(folder, [*files, MANIFEST])
        for file, write in files.items():
            write_whole(folder / file, write)
    write_whole(folder / MANIFEST, _json({FORMAT: {file: digest(folder / file) for file in files}}))
    return [folder / file for file in (*files, MANIFEST)]


def _check_folder(folder: Path, files: list[str]) -> None:
    """Refuse to replace files other than those of an earlier export that nobody changed."""
    known = _listed(folder)
    for path in (folder / file for file in files if os.path.lexists(folder / file)):
        same = path.is_file() and (path.name == MANIFEST or known.get(str(path.relative_to(folder))) == digest(path))
        if not (known and same):
            raise InputError(
                f"{path} is no file of an earlier export, or was changed since; choose another folder,"
                " or replace it with --force (Python: force=True)"
            )


def _json(data: dict[str, Any]) -> Callable[[Path], object]:
    return partial(Path.write_bytes, data=json.dumps(data, indent=1, sort_keys=True).encode())


def _listed(folder: Path) -> dict[str, str]:
    """The files that an export wrote, with their hashes; none where there is no export."""
    try:
        return dict(json.loads((folder / MANIFEST).read_bytes())[FORMAT])
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def _tensors(session: Session, basis: int, path: Path) -> None:
    row = session.model(basis)
    path.write_bytes(b"" if row is None else bytes(row.tensors))


def _candidates(session: Session) -> Iterator[pa.Table]:
    for _, ids, features in session.features():
        yield candidates.unpack(features).add_column(0, session.settings["id"], candidates.unpack(ids).column(0))


def _rows(name: str, session: Session, ids: pa.Array) -> pa.Table:
    """A table of the store with candidates by their ids; measurements also with their time and author."""
    table, settings = schema.metadata.tables[name], session.settings
    rows = session.table(table)
    values = list(zip(*rows, strict=True)) if rows else [()] * len(table.columns)
    found = {c.name: pa.array(v, KINDS[str(c.type)]) for c, v in zip(table.columns, values, strict=True)}
    if "candidate" in found:
        found["candidate"] = pc.take(ids, found["candidate"])
    if name != "measurements":
        return pa.table({settings["id"] if own == "candidate" else own: column for own, column in found.items()})
    said = {row.reference: (row.time, row.author) for row in session.table(schema.events) if row.kind != "ask"}
    for at, word in enumerate(SAID):
        told = found["tell" if at < 2 else "superseded_by"].to_pylist()
        found[word] = pa.array([None if t is None else said[t][at % 2] for t in told], pa.string())
    return pa.table({outside: found[stored] for stored, outside in _names(settings).items()})


def _names(settings: dict[str, Any]) -> dict[str, str]:
    """The names of the columns of measurements: the campaign's own, and ours where they are free."""
    label = settings.get("task") == "classification"  # the label takes the place of the value
    own = {"candidate": settings["id"], "batch": settings["batch"] or "batch"}
    several = "targets" in settings
    if not several:
        own["label" if label else "value"] = settings["target"]
    taken = set(own.values())
    order = [c.name for c in schema.measurements.columns if c.name not in ("label", *([] if several else ["target"]))]
    ours = {"id": "measurement", "repeats": "count"}
    names = ["label" if label and name == "value" else name for name in order]
    free = {name: ours.get(name, name) for name in [*names, *SAID]}
    return {name: own.get(name) or (f"aicau_{word}" if word in taken else word) for name, word in free.items()}


def restore(folder: Path, url: str | Path) -> Store:
    """A new campaign from the files of an export; changed files are refused."""
    files = _checked(folder)
    if STRUCTURE not in files:
        raise InputError(f"{folder} was written by an older aicau; export the campaign again with this one")
    try:
        structure = json.loads((folder / STRUCTURE).read_bytes())
        rows = {name: _read(folder / f"{name}.csv", structure["columns"][name]) for name in ROWS}
        return restore_store(url, lambda session: _fill(session, folder, structure, rows, sorted(files)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, pa.ArrowException) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{folder} cannot be read as an export ({reason(error)}); export the campaign again"
        ) from error


def _checked(folder: Path) -> dict[str, str]:
    """The files of an export and their hashes; a missing or changed file is refused."""
    if not (files := _listed(folder)):
        raise InputError(f"{folder} is no export of a campaign; name the folder that 'aicau export' wrote")
    for name, known in files.items():
        try:
            same = digest(folder / name) == known
        except OSError as error:
            raise InputError(f"{folder / name} is missing ({reason(error)}); export the campaign again") from error
        if not same:
            raise InputError(
                f"{folder / name} was changed since the export; import takes only what was exported: put the file back,"
                " and tell changed results with 'aicau tell --correct'"
            )
    return files


def _read(path: Path, kinds: list[tuple[str, str]]) -> pa.Table:
    """A table as it was written: an empty cell is missing, and "" is an empty text."""
    types = {name: pa.type_for_alias(kind) for name, kind in kinds}
    table = pa_csv.read_csv(
        path,
        pa_csv.ReadOptions(column_names=list(types), skip_rows=1, block_size=1 << 27),
        pa_csv.ParseOptions(newlines_in_values=True),
        pa_csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["true"],
            false_values=["false"],
        ),
    )
    return tables.unguarded(table)


def _fill(
    session: Session, folder: Path, structure: dict[str, Any], rows: dict[str, pa.Table], files: list[str]
) -> None:
    session.set_meta("settings", json.dumps(structure["settings"], sort_keys=True))
    pool = rows["candidates"]
    ids = pool.column(0)
    places = zip(accumulate(structure["chunks"], initial=0), structure["chunks"], strict=False)  # of each chunk
    session.add_chunks(candidates.chunk(ids.slice(*at), pool.slice(*at).remove_column(0)) for at in places)
    for name in ROWS[1:]:
        table: Any = schema.metadata.tables[name]
        names = structure["measurements"] if name == "measurements" else {"candidate": structure["settings"]["id"]}
        columns = []
        for column in table.columns:
            own = names.get(column.name, column.name)
            found = pa.nulls(rows[name].num_rows) if column.nullable else pa.array([""] * rows[name].num_rows)
            found = rows[name].column(own) if own in rows[name].column_names else found
            if column.name == "candidate":
                found = pc.index_in(found, value_set=ids.combine_chunks())
            columns.append(found.to_pylist())
        session.insert(table, list(zip(*columns, strict=True)))
    for name in files:
        if name.startswith("models/") and name.endswith(".json"):
            info, weights = (folder / name).read_bytes().decode(), name.replace(".json", ".safetensors")
            tensors = (folder / weights).read_bytes() if weights in files else b""
            round, basis = (int(part) for part in Path(name).stem.removeprefix("round-").split("-tell-"))
            session.insert(schema.models, [(basis, round, tensors, info, model_digest(tensors, info))])
