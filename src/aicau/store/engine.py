"""Connections: which database a name means, how it is opened, and its errors in one sentence each.

Only SQLite opens an SQLite file. When any other descriptor of it is closed, POSIX drops all locks of the process, those
of other threads included: two writers would then destroy the file.
"""

import json
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, exc, make_url, text

from aicau.core.errors import AicauError, InputError, StoreError, secretive, shown, without_password
from aicau.core.files import reason

WAIT = 120.0  # seconds for another writer to finish
ADDRESS = "a campaign's address looks like postgresql://user@host/database; in a password write @ as %40, / as %2F"

FOREIGN = "file is not a database"
FAULTS = {  # what a database error says, and what it means for a user
    FOREIGN: "is not an SQLite file, or its beginning is damaged; name a campaign's file, or restore it from a copy",
    "is locked|is busy|lock timeout|QueuePool limit": "is in use by another program; try again when it has finished",
    "readonly|read-only|permission denied for": "cannot be written: for this user the file, the -wal and -shm files"
    " beside it, its folder or the server are read-only; ask the owner for the right to write",
    "disk is full|disk I/O error|No space left|could not extend": "could not be written: the disk is full or failing;"
    " make room and try again",
    "malformed|corrupt": "is damaged; restore it from a copy",
    "unable to open": "cannot be opened: look at its folder and at who may read and write there",
    "Connection refused|failed to resolve|could not translate|timeout expired": "cannot be reached; is the server"
    " running, and is the address right?",
    "authentication failed|no password supplied|role ": "refused the user or the password",
    "does not exist": "does not exist",
}


def locate(name: str | Path) -> URL:
    """A file name, `sqlite:///FILE`, or `postgresql://user@host/database`."""
    if not isinstance(name, str | Path):
        raise InputError(f"a campaign is a file such as screen.db or a postgresql:// address; got {shown(name)}")
    words = str(name)
    if "://" not in words:
        if secretive(words if "\x00" in words or not Path(words).parent.is_dir() else Path(words).name):
            raise InputError(f"this is no name of a file, and no address: {ADDRESS}")
        if not words.strip() or "\x00" in words:
            raise InputError(f"a campaign lives in a file or at a postgresql:// address; got {words!r}")
        return URL.create("sqlite", database=words)
    wrong = InputError(f"this is no address: {ADDRESS}")
    try:
        url = make_url(words)
    except (exc.ArgumentError, ValueError):
        raise wrong from None
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return URL.create("sqlite", database=url.database)
    if backend != "postgresql":
        raise InputError(f"a campaign lives in an SQLite file or a PostgreSQL database; got {backend!r}")
    if "@" in f"{url.host}{url.database}":  # the end of a password
        raise wrong
    return url.set(drivername="postgresql+psycopg")


def label(url: URL) -> str:
    """The name used in messages: the file, or the address without its password."""
    server = f"the database {url.database!r} on {url.host or url.query.get('host') or 'this machine'}"
    return without_password(str(url.database) if url.get_backend_name() == "sqlite" else server)


def writable(path: Path) -> bool:
    """Whether this user may write the file, and the log beside it (or make one)."""
    log = _log(path)
    for _ in range(5):  # a log comes and goes with the first and the last user: one look may fall in between
        if os.access(log, os.W_OK) or not log.exists():
            return os.access(path, os.W_OK) and (os.access(log, os.W_OK) or os.access(path.parent, os.W_OK))
    return False


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def connect(url: URL, wait: float = WAIT) -> Engine:
    """An engine whose transactions begin as readers or as writers."""
    if url.get_backend_name() == "postgresql":
        options = f"-c lock_timeout={int(wait * 1000)} -c client_min_messages=warning"
        # An engine hides the password after the user when it is printed, but not those among the parameters.
        secret = {name: word for name, word in url.query.items() if secretive(f"{name}={word}")}
        how: dict[str, Any] = {"paramstyle": "format", "pool_size": 1, "max_overflow": 4, "pool_timeout": wait}
        how["connect_args"] = {"connect_timeout": 10, "options": options, **secret}
        try:
            return create_engine(url.difference_update_query(list(secret)), **how)  # rows are tuples
        except ImportError:
            raise StoreError("PostgreSQL needs a driver: pip install 'aicau[postgres]'") from None
    path = Path(str(url.database)).resolve()

    def opened() -> sqlite3.Connection:
        # Who may only read must not make -wal and -shm: they would be that user's, and the owner could not write them.
        mode = "mode=ro&readonly_shm=1" if _log(path).exists() else "mode=ro&immutable=1"
        address = f"{path.as_uri()}?{'mode=rw' if writable(path) else mode}"
        made = sqlite3.connect(address, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)
        made.execute("PRAGMA synchronous=FULL")
        return made

    engine = create_engine(URL.create("sqlite", database=str(path)), creator=opened, poolclass=NullPool)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A writer says so at once: it waits here, and never finds in the middle that another was faster.
        writing = connection.get_execution_options().get("writing", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


@contextmanager
def transaction(engine: Engine, where: str, writing: bool) -> Iterator[Connection]:
    """All or nothing, and short. A writer holds the only lock; a reader sees one moment."""
    with _unchanged(engine, where), explained(where), engine.connect() as connection:
        if engine.dialect.name == "postgresql" and not writing:
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        connection = connection.execution_options(writing=writing)
        with connection.begin():
            if engine.dialect.name == "postgresql" and writing:
                connection.execute(text("SELECT value FROM meta WHERE key = 'format' FOR UPDATE"))
            yield connection


@contextmanager
def _unchanged(engine: Engine, where: str) -> Iterator[None]:
    """A user who may only read a file without a log takes no lock: refuse what was read while its owner wrote."""
    path = Path(str(engine.url.database))
    if engine.dialect.name != "sqlite" or writable(path) or _log(path).exists() or not path.exists():
        yield
        return
    before = path.stat()
    try:
        yield
    finally:
        after = path.stat()
        if _log(path).exists() or (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size):
            raise StoreError(f"{where} was written by another user while it was read; try again; nothing was changed")


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn a database error into one sentence that says what to do; the transaction is rolled back by then."""
    try:
        yield
    except (exc.DBAPIError, exc.TimeoutError, sqlite3.Error) as error:
        raise fault(where, error) from error
    except (json.JSONDecodeError, pa.ArrowInvalid) as error:
        raise StoreError(f"{where} is damaged ({reason(error)}): see 'aicau doctor'; nothing was changed") from error
    except OverflowError as error:  # of SQLite
        raise InputError(f"{where} keeps no whole numbers of more than 64 bits; nothing was changed") from error


def fault(where: str, error: Exception) -> AicauError:
    """Our error for one of a database."""
    cause = getattr(error, "orig", None) or error
    words = without_password(" ".join(str(cause).split()))
    for signs, sentence in FAULTS.items():
        if re.search(signs, words):
            return (InputError if signs == FOREIGN else StoreError)(f"{where} {sentence}; nothing was changed")
    return StoreError(f"{where} could not be used ({type(cause).__name__}: {words[:200]}); nothing was changed")
