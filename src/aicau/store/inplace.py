"""Candidates that stay in their Parquet files, and are read from there when they are needed.

A chunk is one row group. In place of its rows the store has a small JSON text: the file, its content hash, the row
group and the columns. A file that changed is refused, since results in the campaign would belong to other candidates.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from aicau.core.errors import StoreError
from aicau.core.files import digest

MARK = b'{"in_place"'  # what such bytes begin with
TYPES = {"number": pa.float64(), "category": pa.string(), "id": pa.string()}  # ignored columns stay as they are


def about(path: Path) -> dict[str, Any]:
    """What the JSON text says of a file."""
    path = path.resolve()
    found = path.stat()
    return {"in_place": str(path), "sha256": digest(path), "size": found.st_size, "changed": found.st_mtime_ns}


def refers(blob: bytes) -> bool:
    """Whether the bytes of a chunk are such a JSON text, not the rows."""
    return bytes(blob[: len(MARK)]) == MARK


def read(blob: bytes) -> pa.Table | None:
    """The rows of a chunk that stay in their file; None where the chunk holds them itself."""
    if (said := check(blob)) is None:
        return None
    import pyarrow.parquet as pq  # late: it brings network file systems with it

    with _readable(said["in_place"]), pq.ParquetFile(said["in_place"]) as file:
        table = file.read_row_group(said["group"], columns=list(said["columns"]))
    return pa.table(
        {
            "id" if kind == "id" else name: table[name].cast(TYPES[kind]) if kind in TYPES else table[name]
            for name, kind in said["columns"].items()
        }
    )


def check(blob: bytes, thoroughly: bool = False) -> dict[str, Any] | None:
    """What the JSON text of a chunk says, or None where the chunk holds its rows itself.

    A changed file is refused. Its content is compared if its size or time has changed, or if it is done `thoroughly`.
    """
    if not refers(blob):
        return None
    said: dict[str, Any] = json.loads(bytes(blob))
    path = Path(said["in_place"])
    with _readable(path):
        now = path.stat()
        same = (now.st_size, now.st_mtime_ns) == (said["size"], said["changed"])
        if not same or thoroughly:
            same = _content(path, now.st_size, now.st_mtime_ns) == said["sha256"]
    if not same:
        raise StoreError(
            f"{path} holds the candidates of this campaign and has changed since it was made; put the old file back, or"
            " make a new campaign with the new one"
        )
    return said


@lru_cache(maxsize=1024)
def _content(path: Path, size: int, changed: int) -> str:
    return digest(path)


@contextmanager
def _readable(path: object) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        cause = getattr(error, "strerror", None) or type(error).__name__
        words = f"{path} holds the candidates of this campaign and cannot be read ({cause}); put it back there"
        raise StoreError(words) from error
