"""What several test files share: commands of `aicau` in this process, a small pool for them, what a store holds."""

import hashlib
import io
import sys
from contextlib import redirect_stderr, redirect_stdout

from aicau.cli import main
from aicau.store import schema

POOL = "compound,dose,solvent\n" + "".join(f"c{i},{i / 7:.3f},{'water' if i % 2 else 'oil'}\n" for i in range(12))


def fingerprint(store):
    """A hash of every row of every table: two stores with the same one hold the same."""
    digest = hashlib.sha256()
    with store.reading() as session:
        for table in schema.metadata.sorted_tables:
            digest.update(table.name.encode())
            for row in session.table(table):
                digest.update(repr(tuple(bytes(v) if isinstance(v, memoryview) else v for v in row)).encode())
    return digest.hexdigest()


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
