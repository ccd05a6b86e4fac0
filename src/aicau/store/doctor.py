"""Checks of what must hold in every campaign; nothing is repaired."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import inspect, select

from aicau.core.errors import AicauError
from aicau.store import inplace
from aicau.store.changes import NUMBERED
from aicau.store.engine import explained
from aicau.store.schema import asks, chunks, events, metadata, tells
from aicau.store.session import ABANDONED, COMPLETED, FAILED, PENDING, Session
from aicau.store.store import Chunk, Store


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; `problem` is empty where it is in order."""

    name: str
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem


def examine(store: Store) -> list[Check]:
    """All checks in order, each with the first problem it found; a check that fails is a problem, too."""
    found = []
    for check in (_file, _tables, _candidates, _asks, _tells, _events, _models):
        name = check.__name__.lstrip("_")
        try:
            with store.reading() as session, explained(store.where):
                found.append(Check(name, next(check(session), "")))
        except (AicauError, ValueError, TypeError, KeyError) as error:
            found.append(Check(name, str(error)))
    return found


def _file(session: Session) -> Iterator[str]:
    if session.connection.dialect.name == "sqlite":
        words = session.connection.exec_driver_sql("PRAGMA integrity_check").scalar()
        if words != "ok":
            yield f"the file is damaged: {words}"


def _tables(session: Session) -> Iterator[str]:
    look = inspect(session.connection)
    for table in metadata.sorted_tables:
        there = {c["name"] for c in look.get_columns(table.name)} if look.has_table(table.name) else set()
        if there != set(table.columns.keys()):
            yield f"table {table.name} has columns {sorted(there)}"


def _candidates(session: Session) -> Iterator[str]:
    if (there := sum(session.sizes())) != (said := session.settings["candidates"]):
        yield f"{there} candidates are there, {said} were put in"
    known = {row.number: row.digest for row in session.connection.execute(select(chunks.c.number, chunks.c.digest))}
    for number, ids, features in session.features():
        if Chunk(0, bytes(ids), bytes(features)).digest != known[number]:
            yield f"candidates of chunk {number} have changed"
        inplace.check(features, thoroughly=True)


def _asks(session: Session) -> Iterator[str]:
    places, waiting = defaultdict[int, list[int]](list), defaultdict[int, set[int]](set)
    for row in session.proposals():
        places[row.ask].append(row.position)
        if row.status == PENDING:
            waiting[row.candidate].add(row.ask)
        if row.status not in (PENDING, COMPLETED, FAILED, ABANDONED):
            yield f"ask {row.ask} has a point in the unknown state {row.status!r}"
        if not 0 <= row.candidate < session.settings["candidates"]:
            yield f"ask {row.ask} points at candidate {row.candidate}, which does not exist"
    sizes = {row.id: row.size for row in session.table(asks)}
    for ask in sorted(set(sizes) | set(places)):
        if sorted(places[ask]) != list(range(sizes.get(ask, -1))):
            yield f"ask {ask} has {len(places[ask])} of its {sizes.get(ask)} points"
    if doubled := [candidate for candidate, asked in waiting.items() if len(asked) > 1]:
        yield f"candidate {doubled[0]} is pending in two asks"


def _tells(session: Session) -> Iterator[str]:
    sizes = {row.id: row.rows for row in session.table(tells)}
    rows = session.measurements(current=False)
    there = Counter(row.tell for row in rows)
    for tell in sorted(set(sizes) | set(there)):
        if there[tell] != sizes.get(tell):
            yield f"tell {tell} has {there[tell]} of its {sizes.get(tell)} rows"
    for row in rows:
        found = [part for part in (row.value, row.label) if part is not None]
        fits = len(found) == (row.status == "ok") and row.target in session.targets
        if not 0 <= row.candidate < session.settings["candidates"] or not fits:
            result = " and ".join(map(repr, found)) or "no result"
            yield f"measurement {row.id} cannot be: candidate {row.candidate}, {row.status}, {result}"
        if row.superseded_by is not None and not row.tell < row.superseded_by <= len(sizes):
            yield f"measurement {row.id} is superseded by tell {row.superseded_by}, which does not exist"


def _events(session: Session) -> Iterator[str]:
    same = dict.fromkeys(NUMBERED, "tell") | {"ask": "ask", "tell": "tell"}
    kinds = Counter((same[row.kind], row.reference) for row in session.table(events) if row.kind in same)
    expected = [("ask", row.id) for row in session.table(asks)] + [("tell", row.id) for row in session.table(tells)]
    if kinds != Counter(expected):
        yield "the history does not name every ask and every tell once"


def _models(session: Session) -> Iterator[str]:
    last = session.number(tells.c.id)
    readable = {basis for basis, _, _ in session.model_texts()}
    for basis, _, _ in session.model_rounds():
        if basis not in readable:
            words = "run 'aicau compact' to drop it: it is fitted again when it is needed"
            yield f"the model kept after tell {basis} cannot be read; {words}"
        if not 0 < basis <= last:
            yield f"a model of {basis} tells is kept, and there were {last}"
