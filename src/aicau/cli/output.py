"""The output of a verb: files that replace nothing by accident, JSON, CSV or a sentence on the standard output."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from aicau.cli.app import START
from aicau.core.errors import InputError, StoreError, without_password
from aicau.core.files import check_new, reason, short, write_whole

TABLES = (".csv", ".xlsx", ".parquet", ".pq")


def say(as_json: bool, data: Any, words: str) -> None:
    print(json.dumps(data, allow_nan=False) if as_json else without_password(words))


def check_out(campaign: str, out: Path | None, force: bool = False, kinds: tuple[str, ...] = TABLES) -> None:
    """Refuse a file that cannot be written, before anything is done."""
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
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def hand_out(frame: Any, out: Path | None, force: bool, as_json: bool, words: str, blank: Sequence[str] = ()) -> None:
    """A table: into a file, with empty columns to be filled in, and as JSON, CSV or a sentence on the output."""
    import pyarrow as pa

    from aicau import tables
    from aicau.web.plain import plain

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
def progress(words: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A line on a terminal that is erased at the end; gives `rich.progress.Progress.update` of it.

    It says how far the work is and how long it will take; without a `total`, how long it took so far.
    """
    from rich import progress as parts
    from rich.console import Console

    text, to = parts.TextColumn("{task.description}", markup=False), Console(stderr=True)
    time: tuple[parts.ProgressColumn, ...] = (parts.TimeElapsedColumn(),)
    if total is not None:
        time = (parts.MofNCompleteColumn(), parts.BarColumn(), parts.TimeRemainingColumn())
    own: dict[str, Any] = dict.fromkeys(("redirect_stdout", "redirect_stderr"), False)
    with parts.Progress(text, *time, console=to, transient=True, disable=not to.is_terminal, **own) as bar:
        yield partial(bar.update, bar.add_task(words, total=total))


@contextmanager
def busy(words: str) -> Iterator[None]:
    """On a terminal: say what is under way, and for how long."""
    if not sys.stderr.isatty():
        yield
        return
    compiled = any(Path(__file__).parents[1].glob("ensembles/kernels/__pycache__/*.nbi"))
    with progress(words if compiled else f"{words}; the first time, kernels are compiled (some 20 s)"):
        yield


def run_to_page(run: Callable[..., dict[str, Any]], page: Path, as_json: bool, name: str) -> None:
    """Long work that leaves a page of Markdown: its progress, the page and the time it took, or one JSON object."""
    if page.parent.exists() and not page.parent.is_dir():
        raise InputError(f"cannot write to {page.parent}: it is not a folder")
    if as_json:
        print(json.dumps(run(begin=START), allow_nan=False))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    with progress("starting", 100) as update:
        tell = lambda what, done, total: update(description=what, completed=done, total=total)  # noqa: E731
        summary = run(begin=START, report=tell)
    console, seconds = Console(), summary["seconds"]["total"]
    console.print(Markdown(page.read_text()))
    console.print(f"{name}: {summary['runs']} runs in {seconds:.0f} s; files in {page.parent}")


def show(table: Any, header: bool = True) -> None:
    """CSV on the standard output, safe to paste into a spreadsheet."""
    import pyarrow.csv as pa_csv

    from aicau import tables

    sys.stdout.flush()
    pa_csv.write_csv(tables.guarded(table), sys.stdout.buffer, pa_csv.WriteOptions(include_header=header))
    sys.stdout.buffer.flush()
