"""Commands of `aicau` in this process, and a small pool to run them on; shared by several test files."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout

from aicau.cli import main

POOL = "compound,dose,solvent\n" + "".join(f"c{i},{i / 7:.3f},{'water' if i % 2 else 'oil'}\n" for i in range(12))


def run(*words, main=main, out=None):
    """One command in this process: exit code, standard output (`out` in its place), standard error."""
    out, err = out or io.StringIO(), io.StringIO()
    old, sys.argv = sys.argv, ["aicau", *map(str, words)]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv = old
    return code, out.getvalue() if isinstance(out, io.StringIO) else "", err.getvalue()
