"""The way back from an export: the same campaign in a new file or database, row for row."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from aicau import tables
from aicau.campaign.export import FORMAT, MANIFEST, ROWS, STRUCTURE
from aicau.core.errors import InputError
from aicau.core.files import digest, reason
from aicau.store import Session, Store, restore_store, schema
from aicau.store.session import model_digest
from aicau.tables import candidates


def restore(folder: Path, url: str | Path) -> Store:
    """A new campaign from the files of an export; those that were changed since are refused."""
    files = _manifest(folder)
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


def _manifest(folder: Path) -> dict[str, str]:
    """The files of an export, each as it was written."""
    try:
        files: dict[str, str] = json.loads((folder / MANIFEST).read_bytes())[FORMAT]
    except (OSError, ValueError, LookupError, TypeError):
        raise InputError(f"{folder} is no export of a campaign; name the folder that 'aicau export' wrote") from None
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
    """A table as it was written: an empty cell is a missing one, quotes with nothing inside are an empty text."""
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
    start = 0
    for number, size in enumerate(structure["chunks"]):
        piece = candidates.chunk(ids.slice(start, size), pool.slice(start, size).remove_column(0))
        session.insert(schema.chunks, [(number, piece.count, piece.digest, piece.ids, piece.features)])
        start += size
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
            info = (folder / name).read_bytes().decode()
            weights = folder / name.replace(".json", ".safetensors")
            tensors = weights.read_bytes() if name.replace(".json", ".safetensors") in files else b""
            round, basis = (int(part) for part in Path(name).stem.removeprefix("round-").split("-tell-"))
            session.insert(schema.models, [(basis, round, tensors, info, model_digest(tensors, info))])
