"""What a verb hands out: files that replace nothing by accident, JSON, CSV or a sentence on the standard output."""

import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aicau.core.errors import InputError, StoreError, without_password
from aicau.core.files import check_new, reason, short, write_whole

TABLES = (".csv", ".xlsx", ".parquet", ".pq")


def say(as_json: bool, data: Any, words: str) -> None:
    print(json.dumps(data, allow_nan=False) if as_json else without_password(words))


def plain(frame: Any) -> list[dict[str, Any]]:
    """Rows for JSON; a missing number is null."""
    rows: Iterable[dict[str, Any]] = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{k: _json(v) for k, v in row.items()} for row in rows]


def _json(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if type(value).__name__ == "NAType" else value  # a missing whole number


def check_out(campaign: str, out: Path | None, force: bool = False, kinds: tuple[str, ...] = TABLES) -> None:
    """Before anything is done: a file that cannot be written is found out now."""
    if out is None:
        return
    if out.suffix.lower() not in kinds or not os.path.isdir(out.parent) or not os.access(out.parent, os.W_OK):
        words = f"name a {' or '.join(kinds)} file in a folder that exists and that you can write to"
        raise InputError(f"cannot write {short(out)}: {words}")
    check_new(out, force, campaign)


def written(out: Path | None, write: Any) -> Any:
    try:
        return write()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"cannot write {out or 'the output'}: {reason(error)}; choose another place") from error


def many(count: int, noun: str) -> str:
    """A number and its noun: "1 point", "2 points"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def hand_out(frame: Any, out: Path | None, force: bool, as_json: bool, words: str, blank: Sequence[str] = ()) -> None:
    """A table: into a file, with empty columns to be filled in, and as JSON, CSV or a sentence on the output."""
    import pyarrow as pa

    from aicau import tables

    table = pa.Table.from_pandas(frame, preserve_index=False)
    at = table.column_names.index("replicate") + 1 if blank else 0
    for name in reversed(blank):
        table = table.add_column(at, name, pa.nulls(table.num_rows, pa.string()))
    if out is not None:
        write_whole(out, lambda partial: tables.write([table], partial), force)
    if as_json:
        print(json.dumps(plain(frame), allow_nan=False))
    elif out is None:
        show(table)
    else:
        print(without_password(words))


@contextmanager
def busy(words: str) -> Iterator[None]:
    """On a terminal: say what takes so long, and for how many seconds, once two of them have passed."""
    if not sys.stderr.isatty():
        yield
        return
    begin, done = time.monotonic(), threading.Event()
    compiled = any(Path(__file__).parents[1].glob("ensembles/kernels/__pycache__/*.nbi"))
    text = words if compiled else f"{words}; the first time, kernels are compiled (some 20 s)"

    def count() -> None:
        wait = 2.0
        while not done.wait(wait):
            print(f"\r{text} ... {time.monotonic() - begin:.0f} s", end="", file=sys.stderr, flush=True)
            wait = 1.0
        print("\r\033[K" if wait == 1.0 else "", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def show(table: Any, header: bool = True) -> None:
    """CSV on the standard output, safe to paste into a spreadsheet."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    from aicau import tables

    if not isinstance(table, pa.Table):
        table = pa.Table.from_pandas(table, preserve_index=False)
    sys.stdout.flush()
    pa_csv.write_csv(tables.guarded(table), sys.stdout.buffer, pa_csv.WriteOptions(include_header=header))
    sys.stdout.buffer.flush()
