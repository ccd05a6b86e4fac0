"""What the scripts of this folder share: options, tables, data sets, processes, time."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from threadpoolctl import threadpool_limits

from aicau.core import engine
from aicau.core.statistics import Interval
from aicau.problems import replay


def command(main: Callable[..., None]) -> None:
    """Run `main`: its parameters are the options, the text of its script is the help."""
    text = "\b\n" + main.__globals__["__doc__"].replace("\n\n", "\n\n\b\n")  # \b: these lines stay as they are
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(help=text)(main)
    app()


def header(*names: str) -> None:
    """The first two lines of a table."""
    row(*names)
    print("|---" * len(names) + "|", flush=True)


def row(*cells: object) -> None:
    """One more line of it."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def ends(found: Interval, digits: int = 2) -> str:
    """A mean with its interval."""
    return f"{found.mean:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def numbers(text: str) -> list[int]:
    """Whole numbers between commas."""
    return [int(part) for part in text.split(",")]


def folders(data: Path, sets: str = "") -> list[Path]:
    """The data sets of a folder, or those of them whose names stand between commas."""
    return [one for one in replay.folders(data) if not sets or one.name in sets.split(",")]


def one_thread() -> None:
    """For PyTorch, Numba, and the libraries behind NumPy and scikit-learn."""
    engine.one_thread()
    threadpool_limits(1)


def best(work: Callable[[], object], repeats: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the fastest of some calls, after one to warm up."""
    work()
    times = []
    for _ in range(repeats):
        begin = clock()
        work()
        times.append(clock() - begin)
    return min(times)


def child(code: str, *arguments: object) -> dict[str, Any]:
    """What Python code prints as JSON in a process of its own."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))
