"""Connections: which database a name means, how it is opened, and its faults in one sentence each."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, exc, make_url, text

from aicau.core.errors import InputError, StoreError

WAIT = 120.0  # seconds for another writer to finish
SQLITE_HEADER = b"SQLite format 3\x00"


def locate(name: str | Path) -> URL:
    """A file name, `sqlite:///FILE`, or `postgresql://user@host/database`."""
    words = str(name)
    if "://" not in words:
        if not words.strip() or "\x00" in words:
            raise InputError(f"a campaign lives in a file or at a postgresql:// address; got {words!r}")
        return URL.create("sqlite", database=words)
    try:
        url = make_url(words)
    except (exc.ArgumentError, ValueError):
        raise InputError("a campaign's address looks like postgresql://user@host/database; this one does not") from None
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return URL.create("sqlite", database=url.database)
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    raise InputError(f"a campaign lives in an SQLite file or a PostgreSQL database; got {backend!r}")


def label(url: URL) -> str:
    """How messages call it: the file, or the address without its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return f"the database {url.database!r} on {url.host or url.query.get('host') or 'this machine'}"


def connect(url: URL, wait: float = WAIT, read_only: bool = False) -> Engine:
    """An engine whose transactions say themselves whether they will write."""
    if url.get_backend_name() == "postgresql":
        options = f"-c lock_timeout={int(wait * 1000)} -c client_min_messages=warning"
        arguments: dict[str, Any] = {"connect_timeout": 10, "options": options}
        try:
            return create_engine(url, connect_args=arguments, pool_size=1, max_overflow=4)
        except ImportError:
            raise StoreError("PostgreSQL needs a driver: pip install 'aicau[postgres]'") from None
    path = Path(str(url.database)).absolute()
    # A file that nobody can write to, in a folder that nobody can write to, has no room for SQLite's index of the log.
    mode = "mode=ro&immutable=1" if read_only else "mode=rw"
    address = f"{path.as_uri()}?{mode}"

    def opened() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)

    engine = create_engine("sqlite://", creator=opened, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def _settings(connection: sqlite3.Connection, _: Any) -> None:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A writer says so at once: it waits here, and never finds in the middle that another was faster.
        writing = connection.get_execution_options().get("writing", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


@contextmanager
def transaction(engine: Engine, where: str, writing: bool) -> Iterator[Connection]:
    """All or nothing, and short. A writer holds the only lock; a reader sees one moment."""
    with explained(where), engine.connect() as connection:
        if engine.dialect.name == "postgresql" and not writing:
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        connection = connection.execution_options(writing=writing)
        with connection.begin():
            if engine.dialect.name == "postgresql" and writing:
                connection.execute(text("SELECT value FROM meta WHERE key = 'format' FOR UPDATE"))
            yield connection


@contextmanager
def explained(where: str) -> Iterator[None]:
    """A database's complaint becomes one sentence that says what to do; what was begun is rolled back by then."""
    try:
        yield
    except (exc.DBAPIError, sqlite3.Error) as error:
        raise fault(where, error) from error


def fault(where: str, error: Exception) -> StoreError:
    """The sentence for one complaint."""
    cause = getattr(error, "orig", None) or error
    words = " ".join(str(cause).split())
    known = {
        ("is locked", "is busy", "lock timeout"): "is in use by another program; try again when it has finished",
        ("readonly", "read-only"): "cannot be written: the file, its folder or the server is read-only",
        ("disk is full", "disk I/O error", "No space left", "could not extend"): "could not be written: the disk is"
        " full or failing; make room and try again",
        ("malformed", "not a database", "corrupt"): "is damaged; restore it from a copy",
        ("unable to open",): "cannot be opened: look at its folder and at who may read and write there",
        ("Connection refused", "failed to resolve", "could not translate", "timeout expired"): "cannot be reached;"
        " is the server running, and is the address right?",
        ("authentication failed", "no password supplied", "role "): "refused the user or the password",
        ("does not exist",): "does not exist",
    }
    for signs, sentence in known.items():
        if any(sign in words for sign in signs):
            return StoreError(f"{where} {sentence}; nothing was changed")
    return StoreError(f"{where} could not be used ({type(cause).__name__}: {words[:200]}); nothing was changed")
