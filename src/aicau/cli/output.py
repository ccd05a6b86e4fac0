"""What a verb hands out: files that replace nothing by accident, JSON, CSV or a sentence on the standard output."""

import json
import math
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aicau.core.errors import InputError, StoreError
from aicau.core.files import check_new, reason, short, write_whole


def say(as_json: bool, data: Any, words: str) -> None:
    print(json.dumps(data, allow_nan=False) if as_json else words)


def plain(frame: Any) -> list[dict[str, Any]]:
    """Rows for JSON; a missing number is null."""
    rows: Iterable[dict[str, Any]] = frame.to_dict("records")
    return [{k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()} for row in rows]


def check_out(
    campaign: str, out: Path | None, force: bool = False, kinds: tuple[str, ...] = (".csv", ".parquet", ".pq")
) -> None:
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


def hand_out(frame: Any, out: Path | None, force: bool, as_json: bool) -> None:
    """A batch: into a file, and as JSON, CSV or a sentence on the standard output."""
    if out is not None:
        import pyarrow as pa

        from aicau import tables

        table = pa.Table.from_pandas(frame, preserve_index=False)
        write_whole(out, lambda partial: tables.write([table], partial), force)
    if as_json:
        print(json.dumps(plain(frame), allow_nan=False))
    elif out is None:
        show(frame)
    else:
        repeats = int((frame["replicate"] > 1).sum())
        print(f"{out}: {len(frame)} points, {repeats} of them repeats")


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
