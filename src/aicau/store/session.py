"""What can be asked of and written to a campaign's tables inside one transaction."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Column, Connection, Row, Select, Table, bindparam, func, select, update

from aicau.core.errors import InputError, shown
from aicau.store import identity, inplace
from aicau.store.identity import Measurement
from aicau.store.kept import Kept
from aicau.store.schema import asks, chunks, events, measurements, meta, proposals, tells

PENDING, COMPLETED, FAILED, ABANDONED = "pending", "completed", identity.FAILED, "abandoned"


def numbers_of(proposal: Any, target: str) -> dict[str, Any]:
    """The numbers behind a proposed point; of several targets with those of one."""
    found: dict[str, Any] = json.loads(proposal.numbers)
    return found | found.get("of", {}).get(target, {})


@dataclass(frozen=True)
class Session(Kept):
    """The verbs of one transaction. It ends with the `with` that gave it."""

    connection: Connection
    target: str = ""  # only measurements and models of this one of several targets; all where it is empty
    targets: tuple[str, ...] = ("",)  # of the campaign: the names of several

    def number(self, column: Column[Any]) -> int:
        """The largest number given out so far; 0 for none."""
        return int(self.connection.scalar(select(func.coalesce(func.max(column), 0))) or 0)

    def event(self, kind: str, author: str, reference: int | None, **detail: Any) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        row = (self.number(events.c.id) + 1, time, author, kind, reference, json.dumps(detail, sort_keys=True))
        self.insert(events, [row])

    def last_time(self) -> str:
        """When the campaign last changed."""
        return str(self.connection.scalar(select(events.c.time).order_by(events.c.id.desc()).limit(1)) or "")

    # Candidates

    def meta(self) -> dict[str, str]:
        return {row.key: row.value for row in self.connection.execute(select(meta))}

    def set_meta(self, key: str, value: str) -> None:
        if self.connection.execute(update(meta).where(meta.c.key == key).values(value=value)).rowcount == 0:
            self.insert(meta, [(key, value)])

    def ids(self) -> list[bytes]:
        """The ids of every chunk, in order."""
        return [
            inplace.resolved(part) for part in self.connection.scalars(select(chunks.c.ids).order_by(chunks.c.number))
        ]

    def sizes(self) -> list[int]:
        """How many candidates every chunk has, in order."""
        return list(self.connection.scalars(select(chunks.c.size).order_by(chunks.c.number)))

    def features(
        self, numbers: Iterable[int] | None = None, as_kept: bool = False
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """Number, ids and columns of all chunks or of some, one at a time; `as_kept` gives the bytes of the store."""
        wanted = select(chunks.c.number).order_by(chunks.c.number)
        if numbers is not None:
            wanted = wanted.where(chunks.c.number.in_(sorted({int(number) for number in numbers})))
        for number in self.connection.scalars(wanted).all():
            where = chunks.c.number == number
            ids, columns = self.connection.execute(select(chunks.c.ids, chunks.c.features).where(where)).one()
            yield (number, ids, columns) if as_kept else (number, inplace.resolved(ids), inplace.resolved(columns))

    # Asking

    def ask_of(self, request: str) -> Row[Any] | None:
        """The ask that was made under this name."""
        return self.connection.execute(select(asks).where(asks.c.request == request)).first()

    def last_ask(self) -> Row[Any] | None:
        return self.connection.execute(select(asks).order_by(asks.c.id.desc()).limit(1)).first()

    def proposals(self, ask: int | None = None, status: str | None = None) -> Sequence[Row[Any]]:
        query = select(proposals).order_by(proposals.c.ask, proposals.c.position)
        if ask is not None:
            query = query.where(proposals.c.ask == ask)
        if status is not None:
            query = query.where(proposals.c.status == status)
        return self.connection.execute(query).all()

    def candidates(self, status: str) -> list[int]:
        """Candidates with a proposal in that state."""
        query = select(proposals.c.candidate).where(proposals.c.status == status).distinct()
        return sorted(self.connection.scalars(query))

    def add_ask(
        self,
        rows: Sequence[tuple[int, int, str, str]],  # candidate, replicate, why, numbers as JSON
        request: str | None,
        round: int,
        basis: int,
        strategy: str,
        author: str,
        **detail: Any,
    ) -> int:
        ask = self.number(asks.c.id) + 1
        self.insert(asks, [(ask, request, round, basis, len(rows), strategy)])
        self.insert(proposals, [(ask, at, row[0], row[1], PENDING, *row[2:]) for at, row in enumerate(rows)])
        self.event("ask", author, ask, request=request, round=round, size=len(rows), **detail)
        return ask

    def abandon(self, candidates: dict[int, str], author: str) -> int:
        """Pending proposals of these candidates are given up; all of them or none."""
        state: dict[int, set[str]] = {}
        for row in self.proposals():
            state.setdefault(row.candidate, set()).add(row.status)
        for candidate, name in candidates.items():
            if not state.get(candidate, set()) & {PENDING, ABANDONED}:
                raise InputError(f"{shown(name)} is not pending, so there is nothing to abandon; nothing was changed")
        pending = [(r.ask, r.position) for r in self.proposals(status=PENDING) if r.candidate in candidates]
        if pending:
            self.move(pending, ABANDONED)
            said = {"candidates": sorted(candidates), "ids": sorted(candidates.values())}
            self.event("abandon", author, None, **said, proposals=len(pending))
        return len(pending)

    def move(self, keys: Sequence[tuple[int, int]], status: str) -> None:
        """Proposals (ask, position) into another state."""
        one = (proposals.c.ask == bindparam("one")) & (proposals.c.position == bindparam("place"))
        if keys:
            statement = update(proposals).where(one).values(status=status)
            self.connection.execute(statement, [{"one": ask, "place": place} for ask, place in keys])

    # Telling

    def next_tell(self) -> int:
        return self.number(tells.c.id) + 1

    def add_rows(self, tell: int, digest: str, correct: int, rows: Sequence[Measurement]) -> int:
        """A tell and its measurements; gives the number of the first."""
        first = self.number(measurements.c.id) + 1
        self.insert(tells, [(tell, digest, len(rows), correct)])
        self.insert(
            measurements,
            [
                (
                    *(first + i, tell, r.candidate, r.status, r.value, r.sem, r.repeats, r.batch, r.replicate, None),
                    *(r.label, r.target),
                )
                for i, r in enumerate(rows)
            ],
        )
        return first

    def supersede(self, numbers: Sequence[int], tell: int) -> None:
        """Measurements give way to a tell."""
        if numbers:
            statement = update(measurements).where(measurements.c.id == bindparam("one")).values(superseded_by=tell)
            self.connection.execute(statement, [{"one": number} for number in sorted(numbers)])

    def measurements(self, current: bool = True) -> Sequence[Row[Any]]:
        """In the order they were told; `current` leaves superseded rows out."""
        query = self._own(select(measurements).order_by(measurements.c.id))
        if current:
            query = query.where(measurements.c.superseded_by.is_(None))
        return self.connection.execute(query).all()

    def labels(self) -> list[str]:
        """Classes among current measurements, sorted."""
        return self._names(measurements.c.label)

    def batches(self) -> list[str]:
        """Names of plates among current measurements, sorted."""
        return self._names(measurements.c.batch)

    def _names(self, column: Column[Any]) -> list[str]:
        query = self._own(select(column).where(measurements.c.superseded_by.is_(None)).distinct())
        return sorted(name for name in self.connection.scalars(query) if name is not None)

    def _own(self, query: Select[Any]) -> Select[Any]:
        return query.where(measurements.c.target == self.target) if self.target else query

    # All of it

    def table(self, table: Table) -> Sequence[Row[Any]]:
        """Every row, by primary key."""
        return self.connection.execute(select(table).order_by(*table.primary_key.columns)).all()

    def count(self, table: Table, **equal: Any) -> int:
        query = select(func.count()).select_from(table)
        for name, value in equal.items():
            query = query.where(table.c[name] == value if value is not None else table.c[name].is_(None))
        return int(self.connection.scalar(query) or 0)
