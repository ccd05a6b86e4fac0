"""What can be asked of and written to a campaign's tables inside one transaction."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from safetensors import SafetensorError, deserialize
from sqlalchemy import Column, Connection, Row, Table, delete, exc, func, select, update

from aicau.errors import InputError
from aicau.store.schema import asks, chunks, events, measurements, meta, models, proposals, tells

PENDING, COMPLETED, FAILED, ABANDONED = "pending", "completed", "failed", "abandoned"


class Measurement(NamedTuple):
    """One row of a file that came back; `line` is where it stood, for messages."""

    candidate: int
    value: float | None  # None: the well failed, or it has a label
    sem: float | None = None
    repeats: int = 1  # values behind a mean
    batch: str | None = None
    replicate: int | None = None
    line: int = 0
    label: str | None = None  # the class, where classes are measured

    @property
    def status(self) -> str:
        return FAILED if self.value is None and self.label is None else "ok"


@dataclass(frozen=True)
class Told:
    """What a tell changed."""

    tell: int
    rows: int
    completed: int = 0
    failed: int = 0
    superseded: int = 0
    already: bool = False  # the same rows had been told before: nothing was changed


def model_digest(tensors: bytes, info: str) -> str:
    return hashlib.sha256(bytes(tensors) + info.encode()).hexdigest()


@dataclass(frozen=True)
class Session:
    """The verbs of one transaction. It ends with the `with` that gave it."""

    connection: Connection

    def number(self, column: Column[Any]) -> int:
        """The largest number given out so far; 0 for none."""
        return int(self.connection.scalar(select(func.coalesce(func.max(column), 0))) or 0)

    def insert(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Whole rows in the order of the table's columns, by the driver's own executemany."""
        if rows:
            mark = "?" if self.connection.dialect.name == "sqlite" else "%s"
            columns = ", ".join(table.columns.keys())
            marks = ", ".join([mark] * len(table.columns))
            self.connection.exec_driver_sql(f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", list(rows))

    def event(self, kind: str, author: str, reference: int | None, **detail: Any) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        row = (self.number(events.c.id) + 1, time, author, kind, reference, json.dumps(detail, sort_keys=True))
        self.insert(events, [row])

    # Candidates

    def meta(self) -> dict[str, str]:
        return {row.key: row.value for row in self.connection.execute(select(meta))}

    def set_meta(self, key: str, value: str) -> None:
        if self.connection.execute(update(meta).where(meta.c.key == key).values(value=value)).rowcount == 0:
            self.insert(meta, [(key, value)])

    def ids(self) -> list[bytes]:
        """The ids of every chunk, in order."""
        return list(self.connection.scalars(select(chunks.c.ids).order_by(chunks.c.number)))

    def features(self, numbers: Iterable[int] | None = None) -> Iterator[tuple[int, bytes, bytes]]:
        """Number, ids and columns of all chunks or of some, one at a time."""
        wanted = select(chunks.c.number).order_by(chunks.c.number)
        if numbers is not None:
            wanted = wanted.where(chunks.c.number.in_(sorted({int(number) for number in numbers})))
        for number in self.connection.scalars(wanted).all():
            where = chunks.c.number == number
            ids, columns = self.connection.execute(select(chunks.c.ids, chunks.c.features).where(where)).one()
            yield number, ids, columns

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
    ) -> int:
        ask = self.number(asks.c.id) + 1
        self.insert(asks, [(ask, request, round, basis, len(rows), strategy)])
        self.insert(proposals, [(ask, at, row[0], row[1], PENDING, *row[2:]) for at, row in enumerate(rows)])
        self.event("ask", author, ask, request=request, round=round, size=len(rows))
        return ask

    def abandon(self, candidates: dict[int, str], author: str) -> int:
        """Pending proposals of these candidates are given up; all of them or none."""
        state: dict[int, set[str]] = {}
        for row in self.proposals():
            state.setdefault(row.candidate, set()).add(row.status)
        for candidate, name in candidates.items():
            if not state.get(candidate, set()) & {PENDING, ABANDONED}:
                raise InputError(f"{name!r} is not pending, so there is nothing to abandon; nothing was changed")
        pending = [(r.ask, r.position) for r in self.proposals(status=PENDING) if r.candidate in candidates]
        if pending:
            self._move(pending, ABANDONED)
            self.event("abandon", author, None, ids=sorted(candidates.values()), proposals=len(pending))
        return len(pending)

    def _move(self, keys: Sequence[tuple[int, int]], status: str) -> None:
        mark = "?" if self.connection.dialect.name == "sqlite" else "%s"
        statement = f"UPDATE proposals SET status = {mark} WHERE ask = {mark} AND position = {mark}"
        if keys:
            self.connection.exec_driver_sql(statement, [(status, *key) for key in keys])

    # Telling

    def add_tell(
        self, rows: Sequence[Measurement], digest: str, correct: bool, author: str, source: str | None = None
    ) -> Told:
        """All rows of a file; the same rows again change nothing."""
        earlier = self.connection.scalar(select(func.max(tells.c.id)).where(tells.c.digest == digest))
        if earlier is not None:
            lost = select(func.count()).where(measurements.c.tell == earlier, measurements.c.superseded_by.is_not(None))
            if not correct or not self.connection.scalar(lost):
                return Told(earlier, len(rows), already=True)
        tell, first = self.number(tells.c.id) + 1, self.number(measurements.c.id) + 1
        superseded = self._supersede(rows, tell) if correct else 0
        self.insert(tells, [(tell, digest, len(rows), int(correct))])
        self.insert(
            measurements,
            [
                (first + i, tell, r.candidate, r.status, r.value, r.sem, r.repeats, r.batch, r.replicate, None, r.label)
                for i, r in enumerate(rows)
            ],
        )
        completed, failed = self._settle(rows)
        self._move(completed, COMPLETED)
        self._move(failed, FAILED)
        told = Told(tell, len(rows), len(completed), len(failed), superseded)
        detail = {"rows": told.rows, "completed": told.completed, "failed": told.failed, "superseded": superseded}
        self.event("tell", author, tell, source=source, **detail)
        return told

    def _settle(self, rows: Sequence[Measurement]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Pending proposals that these rows answer: one for each good value, then one for each failed well."""
        good: Counter[int] = Counter()
        bad: Counter[int] = Counter()
        for row in rows:
            (bad if row.status == FAILED else good)[row.candidate] += row.repeats
        completed: list[tuple[int, int]] = []
        failed: list[tuple[int, int]] = []
        for proposal in self.proposals(status=PENDING):
            for left, answered in ((good, completed), (bad, failed)):
                if left[proposal.candidate] > 0:
                    left[proposal.candidate] -= 1
                    answered.append((proposal.ask, proposal.position))
                    break
        return completed, failed

    def _supersede(self, rows: Sequence[Measurement], tell: int) -> int:
        """Current rows of the same candidate and batch (and replicate, where the new row names one) give way."""
        current: dict[tuple[int, str | None], list[Row[Any]]] = {}
        for row in self.measurements():
            current.setdefault((row.candidate, row.batch), []).append(row)
        replaced: set[int] = set()
        for new in rows:
            old = current.get((new.candidate, new.batch), [])
            old = [row for row in old if new.replicate is None or row.replicate == new.replicate]
            if not old:
                raise InputError(
                    f"row {new.line} corrects nothing: no such measurement was told before"
                    " (same id, batch and, where given, replicate); nothing was changed"
                )
            replaced.update(row.id for row in old)
        mark = "?" if self.connection.dialect.name == "sqlite" else "%s"
        statement = f"UPDATE measurements SET superseded_by = {mark} WHERE id = {mark}"
        self.connection.exec_driver_sql(statement, [(tell, number) for number in sorted(replaced)])
        return len(replaced)

    def measurements(self, current: bool = True) -> Sequence[Row[Any]]:
        """In the order they were told; `current` leaves superseded rows out."""
        query = select(measurements).order_by(measurements.c.id)
        if current:
            query = query.where(measurements.c.superseded_by.is_(None))
        return self.connection.execute(query).all()

    def labels(self) -> list[str]:
        """Classes among current measurements, sorted."""
        query = select(measurements.c.label).where(measurements.c.superseded_by.is_(None)).distinct()
        return sorted(label for label in self.connection.scalars(query) if label is not None)

    # Models

    def model(self, basis: int) -> Row[Any] | None:
        """None where none was kept, its tensors were dropped, or it is not what was kept."""
        row = self._model(basis)
        return row if row is not None and row.tensors else None

    def _model(self, basis: int) -> Row[Any] | None:
        try:
            row = self.connection.execute(select(models).where(models.c.basis == basis)).first()
            if row is None or row.digest not in (None, model_digest(row.tensors, row.info)):
                return None
            if row.digest is None:  # kept by an earlier version
                deserialize(bytes(row.tensors))
            return row if isinstance(json.loads(row.info), dict) else None
        except (exc.DBAPIError, SafetensorError, AttributeError, TypeError, ValueError):  # no text, tensors or JSON
            return None

    def model_rounds(self) -> list[tuple[int, int, int]]:
        """(basis, round, bytes) of every model, oldest first; 0 bytes are left of those that were dropped."""
        query = select(models.c.basis, models.c.round, func.length(models.c.tensors)).order_by(models.c.basis)
        return [tuple(row) for row in self.connection.execute(query)]

    def model_infos(self) -> list[tuple[int, int, dict[str, Any]]]:
        """(basis, round, info) of every model that can be read, oldest first."""
        rows = [self._model(basis) for basis, _, _ in self.model_rounds()]
        return [(row.basis, row.round, json.loads(row.info)) for row in rows if row is not None]

    def add_model(self, basis: int, round: int, tensors: bytes, info: str) -> None:
        """Kept once: the model of a history is a function of it."""
        if self.model(basis) is None:
            self.connection.execute(delete(models).where(models.c.basis == basis))
            self.insert(models, [(basis, round, tensors, info, model_digest(tensors, info))])

    def drop_models(self, keep: Collection[int]) -> tuple[int, int]:
        """All but these lose their tensors, and those that cannot be read go: how many, and how many bytes."""
        dropped = freed = 0
        for basis, _, size in self.model_rounds():
            one, row = models.c.basis == basis, self._model(basis)
            if row is None:
                self.connection.execute(delete(models).where(one))
            elif size and basis not in keep:
                left = {"tensors": b"", "digest": model_digest(b"", row.info)}
                self.connection.execute(update(models).where(one).values(**left))
            else:
                continue
            dropped, freed = dropped + 1, freed + size
        return dropped, freed

    # All of it

    def table(self, table: Table) -> Sequence[Row[Any]]:
        """Every row, by primary key."""
        return self.connection.execute(select(table).order_by(*table.primary_key.columns)).all()

    def count(self, table: Table, **equal: Any) -> int:
        query = select(func.count()).select_from(table)
        for name, value in equal.items():
            query = query.where(table.c[name] == value if value is not None else table.c[name].is_(None))
        return int(self.connection.scalar(query) or 0)
