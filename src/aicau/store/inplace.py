"""Candidates that stay in their Parquet files: a chunk says where its rows are; they are read when they are wanted.

A chunk is one row group. Its bytes in the store are a small JSON text in place of the rows, with the content hash of
the file: a file that changed is refused, since results in the campaign would belong to other candidates.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from aicau.core.errors import StoreError
from aicau.core.files import digest

MARK = b'{"in_place"'  # what such bytes begin with
TYPES = {"number": pa.float64(), "category": pa.string(), "id": pa.string()}  # ignored columns stay as they are


def refer(path: Path, ids: dict[str, str], columns: dict[str, str]) -> Iterator[tuple[int, bytes, bytes]]:
    """Rows of every row group that has any, and where its ids and its columns (name to kind) are."""
    import pyarrow.parquet as pq  # late: it brings network file systems with it

    path = path.resolve()
    found = path.stat()
    about = {"in_place": str(path), "sha256": digest(path), "size": found.st_size, "changed": found.st_mtime_ns}
    layout = pq.read_metadata(path)
    for group in range(layout.num_row_groups):
        if rows := layout.row_group(group).num_rows:
            ends = (json.dumps(about | {"group": group, "columns": part}).encode() for part in (ids, columns))
            yield rows, *ends


def refers(blob: bytes) -> bool:
    """Whether bytes say where rows are, in place of the rows."""
    return bytes(blob[: len(MARK)]) == MARK


def resolved(blob: bytes) -> bytes:
    """The rows of a chunk as Arrow bytes, wherever they are."""
    if not refers(blob):
        return blob
    import pyarrow.parquet as pq

    said = json.loads(bytes(blob))
    check(blob)
    try:
        with pq.ParquetFile(said["in_place"]) as file:
            table = file.read_row_group(said["group"], columns=list(said["columns"]))
    except (OSError, pa.ArrowException) as error:
        raise _missing(said["in_place"], error) from error
    arrays = {
        "id" if kind == "id" else name: table.column(name).cast(TYPES[kind]) if kind in TYPES else table.column(name)
        for name, kind in said["columns"].items()
    }
    sink = pa.BufferOutputStream()
    whole = pa.table(arrays)
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    return sink.getvalue().to_pybytes()


def check(blob: bytes, thoroughly: bool = False) -> None:
    """Refuse a file that is not what it was: by size and time, by its content where these differ or it is asked for."""
    if not refers(blob):
        return
    said = json.loads(bytes(blob))
    path = Path(said["in_place"])
    try:
        now = path.stat()
        same = (now.st_size, now.st_mtime_ns) == (said["size"], said["changed"])
        if not same or thoroughly:
            same = _content(path, now.st_size, now.st_mtime_ns) == said["sha256"]
    except OSError as error:
        raise _missing(str(path), error) from error
    if not same:
        raise StoreError(
            f"{path} holds the candidates of this campaign and has changed since it was made; put the old file back, or"
            " make a new campaign with the new one"
        )


@lru_cache(maxsize=1024)
def _content(path: Path, size: int, changed: int) -> str:
    return digest(path)


def _missing(path: str, error: Exception) -> StoreError:
    cause = getattr(error, "strerror", None) or type(error).__name__
    return StoreError(f"{path} holds the candidates of this campaign and cannot be read ({cause}); put it back there")
