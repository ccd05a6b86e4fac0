"""Making and opening the database of a campaign. It is made whole or not at all."""

import hashlib
import json
import os
import re
import secrets
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, inspect

from aicau.core.errors import AicauError, InputError, StoreError
from aicau.store import changes
from aicau.store.engine import WAIT, connect, explained, fault, label, locate, transaction, writable
from aicau.store.schema import FORMAT, MIGRATIONS, metadata, version
from aicau.store.session import Session, only

# What settings must hold, and how each kind of column is encoded.
SETTINGS = {"candidates": int, "columns": list, "id": str, "target": str, "strategy": str, "batch": str | None}
LATER = {"seed": int, "task": str, "ensemble": str}  # a campaign of an earlier version has none of some
NUMBER: dict[str, Any] = {"shift": int | float, "scale": int | float}
COLUMNS = {"number": NUMBER, "category": NUMBER | {"levels": list, "shift": list}, "ignored": {}}


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
    seen: dict[str, int] = field(default_factory=dict, repr=False)  # the last change that `settings` hold
    target: str = ""  # the only one that is read, of several

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One moment of the campaign."""
        with transaction(self.engine, self.where, writing=False) as connection:
            yield self._session(connection)

    @contextmanager
    def writing(self, model: bool = False) -> Iterator[Session]:
        """The only writer, until the block ends; an error inside leaves everything as it was."""
        if self.target and not model:
            raise InputError(f"{self.target!r} is one of several targets and is only read; use the whole campaign")
        with transaction(self.engine, self.where, writing=True) as connection:
            yield self._session(connection)

    def _session(self, connection: Connection) -> Session:
        """With the settings as they are now: another station may have changed them."""
        session = Session(connection, self.settings, self.target)
        if (last := changes.last_change(session)) != self.seen.get("change", 0):
            now = _settings(session.meta(), self.where)  # of the beginning
            for _, detail in changes.changes(session, "add", "change"):
                now |= detail["settings"]
            self.settings.update(only(now, self.target) if self.target else now)
            self.seen["change"] = last
        return session

    def of(self, target: str) -> "Store":
        """The same database, restricted to one of several targets."""
        return replace(self, settings=only(self.settings, target), seen=dict(self.seen), target=target)

    @property
    def read_only(self) -> bool:
        """Whether this user may only read the file."""
        return self.engine.dialect.name == "sqlite" and not writable(Path(str(self.engine.url.database)))

    def compact(self, rounds: int, author: str) -> tuple[int, int]:
        """Drop all kept models but the newest of so many rounds, and give the room back: how many, and their bytes."""
        with self.writing() as session:
            newest = {round: basis for basis, round, _ in session.model_rounds()}
            dropped, freed = session.drop_models([newest[round] for round in sorted(newest)[-rounds:]])
            if dropped:
                session.event("compact", author, None, models=dropped, bytes=freed)
        if self.engine.dialect.name == "sqlite":
            try:
                with explained(self.where), closing(self.engine.raw_connection()) as connection:
                    connection.cursor().execute("VACUUM")
            except AicauError as error:
                raise StoreError(f"{dropped} old models were dropped, but the file did not shrink: {error}") from error
        return dropped, freed

    def close(self) -> None:
        self.engine.dispose()


@contextmanager
def making(path: Path) -> Iterator[int]:
    """The folder with a shared lock, which ends with the process. If no other process makes a campaign there, remove
    what a killed one left of this name."""
    import fcntl

    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # another makes a campaign here now, or the file system knows no locks
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]+\.partial(-wal|-shm|-journal)?")
            if found := [file for file in path.absolute().parent.iterdir() if ours.fullmatch(file.name)]:
                if path.exists() and path.stat().st_size == 0:  # it died inside give_name
                    path.unlink()
                for file in found:
                    file.unlink()
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_SH)
        yield folder
    finally:
        os.close(folder)


def give_name(partial: Path, path: Path) -> None:
    """Move the finished file to its place, unless another was faster: a plain rename would overwrite that one."""
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:  # no hard links here: an empty file takes the name, and only who made it may replace it
        path.touch(exist_ok=False)
        try:
            partial.rename(path)
        except OSError:
            path.unlink()
            raise


def create_store(name: str | Path, settings: dict[str, Any], pool: Iterable[Chunk], author: str) -> Store:
    """A new campaign. A database that holds one already is left alone."""

    def fill(session: Session) -> None:
        session.set_meta("settings", json.dumps(settings, sort_keys=True))
        session.add_chunks(pool)
        session.event("create", author, None, candidates=settings["candidates"])

    return restore_store(name, fill)


def restore_store(name: str | Path, fill: Callable[[Session], None]) -> Store:
    """A new database that holds what `fill` puts into it, whole or not at all."""
    url = locate(name)
    path, where = Path(str(url.database)), label(url)
    if url.get_backend_name() != "sqlite":
        _fill(url, where, fill)
        return open_store(name)
    if not path.parent.is_dir():
        raise InputError(f"cannot make {where}: its folder does not exist; make the folder first")
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        with making(path) as folder:
            if path.exists():
                raise FileExistsError
            try:
                partial.touch(exist_ok=False)
                with explained(where), closing(sqlite3.connect(partial)) as connection:
                    connection.execute("PRAGMA journal_mode=WAL")  # kept in the file
                _fill(URL.create("sqlite", database=str(partial)), where, fill)
                give_name(partial, path)
                os.fsync(folder)
            finally:
                for leftover in (partial, Path(f"{partial}-wal"), Path(f"{partial}-shm")):
                    leftover.unlink(missing_ok=True)
    except FileExistsError:
        raise InputError(f"{where} exists already; a new campaign needs a new file") from None
    except OSError as error:
        raise StoreError(f"cannot make {where}: {error.strerror}; nothing was changed") from error
    return open_store(name)


def _fill(url: URL, where: str, fill: Callable[[Session], None]) -> None:
    """All tables and what `fill` puts into them, in one transaction."""
    engine = connect(url)
    try:
        with explained(where), engine.execution_options(writing=True).begin() as connection:
            if engine.dialect.name == "postgresql":  # two stations that create at once: one waits and is refused
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(4716067)")
            if inspect(connection).has_table("meta"):
                raise InputError(f"{where} holds a campaign (or another table 'meta') already; use an empty database")
            metadata.create_all(connection, checkfirst=False)
            session = Session(connection)
            session.set_meta("format", FORMAT)
            session.set_meta("version", str(version()))
            fill(session)
    finally:
        engine.dispose()  # the last connection to an SQLite file moves the log into the file and syncs it


def open_store(name: str | Path, wait: float = WAIT) -> Store:
    """An existing campaign; one of an older version is migrated, anything else is refused and left as it is."""
    url = locate(name)
    where = label(url)
    if url.get_backend_name() == "sqlite":
        _look(Path(str(url.database)), where)
    engine = connect(url, wait)
    try:
        meta = _meta(engine, where)
        store = Store(engine, where, _settings(meta, where))
        if _version(meta, where) < version():
            if store.read_only:
                raise StoreError(
                    f"{where} was made by an older aicau, and you may only read it; ask its owner to open it once with"
                    " this version, or open a copy of it; nothing was changed"
                )
            with transaction(engine, where, writing=True) as connection:
                session = Session(connection)
                for step in MIGRATIONS[_version(session.meta(), where) - 1 :]:  # another may have been faster
                    connection.exec_driver_sql(step)
                session.set_meta("version", str(version()))
    except BaseException:
        engine.dispose()
        raise
    return store


def _look(path: Path, where: str) -> None:
    """Refuse what cannot be a campaign, without opening it."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"there is no campaign at {where}; make one with 'aicau init'") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{where} cannot be a campaign: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe or a device"
        raise InputError(f"{where} is not a campaign but {kind}; name the file of a campaign, such as screen.db")
    if found.st_size < 512:  # SQLite takes an empty file for a new database
        raise InputError(f"{where} is empty or no SQLite file; name the file of a campaign, or make one: 'aicau init'")


def _meta(engine: Engine, where: str) -> dict[str, str]:
    with transaction(engine, where, writing=False) as connection:
        look = inspect(connection)
        columns = {column["name"] for column in look.get_columns("meta")} if look.has_table("meta") else set()
        meta = Session(connection).meta() if columns == {"key", "value"} else {}
    if meta.get("format") != FORMAT:
        raise InputError(f"{where} is a database, but holds no campaign of aicau; nothing was changed")
    return meta


def _settings(meta: dict[str, str], where: str) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads(meta["settings"])
        kinds = SETTINGS | {name: kind for name, kind in LATER.items() if name in settings}
        parts = [(settings, kinds), *((c, {"name": str} | COLUMNS[c["kind"]]) for c in settings["columns"])]
        whole = all(isinstance(own[name], kind) for own, kinds in parts for name, kind in kinds.items())
        whole &= settings["candidates"] > 0
        whole &= all(len(c["levels"]) == len(c["shift"]) for c in settings["columns"] if c["kind"] == "category")
    except (AttributeError, KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise StoreError(f"the settings of {where} are damaged; restore it from a copy; nothing was changed")
    return settings


def _version(meta: dict[str, str], where: str) -> int:
    found = meta.get("version", "")
    if not found.isdecimal() or found == "0":
        raise fault(where, ValueError("malformed version"))
    if int(found) > version():
        raise InputError(
            f"{where} was written by a newer aicau (version {found} of its tables, this one knows {version()});"
            " install a newer aicau; nothing was changed"
        )
    return int(found)
