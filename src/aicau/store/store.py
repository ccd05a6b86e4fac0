"""Where a campaign lives: made whole or not at all, opened only when it can be understood."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, inspect

from aicau.core.errors import InputError, StoreError
from aicau.store.engine import SQLITE_HEADER, WAIT, connect, explained, fault, label, locate, transaction
from aicau.store.schema import FORMAT, MIGRATIONS, chunks, metadata
from aicau.store.session import Session


@dataclass(frozen=True)
class Chunk:
    """Some thousand candidates, as bytes."""

    count: int
    ids: bytes
    features: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.ids + self.features).hexdigest()


@dataclass(frozen=True)
class Store:
    """A database with one campaign in it."""

    engine: Engine = field(repr=False)
    where: str
    settings: dict[str, Any] = field(repr=False)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One moment of the campaign."""
        with transaction(self.engine, self.where, writing=False) as connection:
            yield Session(connection)

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """The only writer, until the block ends; an error inside leaves everything as it was."""
        with transaction(self.engine, self.where, writing=True) as connection:
            yield Session(connection)

    def close(self) -> None:
        self.engine.dispose()

    def fingerprint(self) -> str:
        """A hash of every row of every table: two stores with the same one hold the same."""
        digest = hashlib.sha256()
        with self.reading() as session:
            for table in metadata.sorted_tables:
                digest.update(table.name.encode())
                for row in session.table(table):
                    digest.update(repr(tuple(bytes(v) if isinstance(v, memoryview) else v for v in row)).encode())
        return digest.hexdigest()


def create_store(
    name: str | Path, settings: dict[str, Any], pool: Iterable[Chunk], author: str, wait: float = WAIT
) -> Store:
    """A new campaign. A database that holds one already is left alone."""
    url = locate(name)
    if url.get_backend_name() != "sqlite":
        engine = connect(url, wait)
        try:
            _fill(engine, label(url), settings, pool, author)
        finally:
            engine.dispose()
        return open_store(name, wait)
    path = Path(str(url.database))
    if path.exists():
        raise InputError(f"{path} exists already; a new campaign needs a new file")
    if not path.parent.is_dir():
        raise InputError(f"cannot make {path}: its folder does not exist")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            partial.touch(exist_ok=False)
        except OSError as error:
            raise StoreError(f"cannot make {path}: {error.strerror}") from error
        with explained(str(path)), closing(sqlite3.connect(partial)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")  # kept in the file
        engine = connect(URL.create("sqlite", database=str(partial)), wait)
        _fill(engine, str(path), settings, pool, author)
        engine.dispose()  # the last connection moves the log into the file
        try:
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            os.link(partial, path)  # unlike a rename, it fails where another was faster
            _sync_folder(path.parent)
        except FileExistsError:
            raise InputError(f"{path} exists already; a new campaign needs a new file") from None
        except OSError as error:
            raise StoreError(f"cannot make {path}: {error.strerror}") from error
    finally:
        for leftover in (partial, Path(f"{partial}-wal"), Path(f"{partial}-shm")):
            leftover.unlink(missing_ok=True)
    return open_store(name, wait)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _fill(engine: Engine, where: str, settings: dict[str, Any], pool: Iterable[Chunk], author: str) -> None:
    with explained(where), engine.connect() as connection:
        connection = connection.execution_options(writing=True)
        with connection.begin():
            if engine.dialect.name == "postgresql":  # two stations that create at once: one waits and is refused
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(4716067)")
            if inspect(connection).has_table("meta"):
                raise InputError(f"{where} holds a campaign (or another table 'meta') already; use an empty database")
            session = Session(connection)
            for step in MIGRATIONS:
                step(connection)
            session.set_meta("format", FORMAT)
            session.set_meta("version", str(len(MIGRATIONS)))
            session.set_meta("settings", json.dumps(settings, sort_keys=True))
            total = 0
            for number, chunk in enumerate(pool):
                session.insert(chunks, [(number, chunk.count, chunk.digest, chunk.ids, chunk.features)])
                total += chunk.count
            session.event("create", author, None, candidates=total)


def open_store(name: str | Path, wait: float = WAIT) -> Store:
    """An existing campaign; older versions are brought up to date, anything else is refused and left alone."""
    url = locate(name)
    where = label(url)
    if url.get_backend_name() == "sqlite":
        _check_file(Path(str(url.database)))
    engine = connect(url, wait)
    try:
        try:
            meta = _meta(engine, where)
        except StoreError:
            if not _frozen(url):
                raise
            engine = connect(url, wait, read_only=True)
            meta = _meta(engine, where)
        if _version(meta, where) < len(MIGRATIONS):
            _migrate(engine, where)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, where, json.loads(meta["settings"]))


def _frozen(url: URL) -> bool:
    """A file in a folder where nobody can write, with no log beside it: it can be read as it is."""
    if url.get_backend_name() != "sqlite":
        return False
    path = Path(str(url.database))
    return not os.access(path.absolute().parent, os.W_OK) and not Path(f"{path}-wal").exists()


def _migrate(engine: Engine, where: str) -> None:
    with transaction(engine, where, writing=True) as connection:
        session = Session(connection)
        for step in MIGRATIONS[_version(session.meta(), where) :]:  # another may have been faster
            step(connection)
        session.set_meta("version", str(len(MIGRATIONS)))


def _check_file(path: Path) -> None:
    if not path.exists():
        raise InputError(f"there is no campaign at {path}; make one with 'aicau init'")
    try:
        with path.open("rb") as file:
            header = file.read(len(SQLITE_HEADER))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    if header != SQLITE_HEADER:
        raise InputError(f"{path} is not a campaign: it is not an SQLite file; nothing was changed")


def _meta(engine: Engine, where: str) -> dict[str, str]:
    with transaction(engine, where, writing=False) as connection:
        columns = (
            {column["name"] for column in inspect(connection).get_columns("meta")}
            if inspect(connection).has_table("meta")
            else set()
        )
        meta = Session(connection).meta() if columns == {"key", "value"} else {}
    if meta.get("format") != FORMAT:
        raise InputError(f"{where} is a database, but holds no campaign of aicau; nothing was changed")
    return meta


def _version(meta: dict[str, str], where: str) -> int:
    version = meta.get("version", "")
    if not version.isdecimal() or "settings" not in meta:
        raise fault(where, ValueError("malformed version or settings"))
    if int(version) > len(MIGRATIONS):
        raise InputError(
            f"{where} was written by a newer aicau (version {version} of its tables, this one knows"
            f" {len(MIGRATIONS)}); install a newer aicau; nothing was changed"
        )
    return int(version)
