"""What can be asked of and written to a campaign's tables inside one transaction."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from safetensors import SafetensorError, deserialize
from sqlalchemy import Column, Connection, Row, Table, delete, exc, func, select, update

from aicau.core.errors import InputError, shown
from aicau.store import identity
from aicau.store.identity import Measurement
from aicau.store.schema import asks, chunks, events, measurements, meta, models, proposals, tells

PENDING, COMPLETED, FAILED, ABANDONED = "pending", "completed", identity.FAILED, "abandoned"


@dataclass(frozen=True)
class Told:
    """What a tell changed."""

    tell: int
    rows: int  # of the file
    new: int = 0  # of these, measurements that were not known
    known: int = 0
    completed: int = 0  # pending points
    failed: int = 0  # pending points
    unrequested: int = 0  # new measurements of candidates that were not pending
    superseded: int = 0
    pending: int = 0  # points that are left
    already: bool = False  # all rows were known: nothing was changed
    warnings: tuple[str, ...] = ()


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
                raise InputError(f"{shown(name)} is not pending, so there is nothing to abandon; nothing was changed")
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
        """What is new of a file (`aicau.store.identity`); the same rows again change nothing."""
        waiting = Counter(row.candidate for row in self.proposals(status=PENDING))
        earlier = self.connection.scalar(select(func.max(tells.c.id)).where(tells.c.digest == digest))
        if correct:
            found = identity.correction(rows, [row for row in self._beside(rows) if row.superseded_by is None])
        elif earlier is None:
            found = identity.known(rows, self._beside(rows), waiting)
        else:
            found = identity.Compared([], [], [])
        warnings = self._warnings(rows, found, waiting)
        if not found.new:
            tell = earlier or max(row.tell for row in found.matched)
            left = waiting.total()
            return Told(tell, len(rows), known=len(rows), pending=left, already=True, warnings=tuple(warnings))
        tell, first = self.number(tells.c.id) + 1, self.number(measurements.c.id) + 1
        self._supersede([row.id for row in found.replaced], tell)
        identity.check_labels(found.new, self.labels())
        self.insert(tells, [(tell, digest, len(found.new), int(correct))])
        self.insert(
            measurements,
            [
                (first + i, tell, r.candidate, r.status, r.value, r.sem, r.repeats, r.batch, r.replicate, None, r.label)
                for i, r in enumerate(found.new)
            ],
        )
        completed, failed = self._settle(found)
        self._move(completed, COMPLETED)
        self._move(failed, FAILED)
        told = Told(
            tell,
            len(rows),
            len(found.new),
            len(rows) - len(found.new),
            len(completed),
            len(failed),
            0 if correct else sum(row.candidate not in waiting for row in found.new),
            len(found.replaced),
            waiting.total() - len(completed) - len(failed),
            warnings=tuple(warnings),
        )
        detail = {name: getattr(told, name) for name in ("completed", "failed", "superseded")}
        self.event("tell", author, tell, source=source, rows=told.new, **detail)
        return told

    def _beside(self, rows: Sequence[Measurement]) -> Sequence[Row[Any]]:
        """All that was told for the batches and about the candidates of these rows."""
        numbers = [row.candidate for row in rows]
        batches = {row.batch for row in rows} - {None}
        query = select(measurements).order_by(measurements.c.id)
        query = query.where(measurements.c.candidate.between(min(numbers), max(numbers)))
        if 0 < len(batches) <= 500:  # more are more than some databases take
            query = query.where(func.trim(measurements.c.batch).in_(batches))
        return self.connection.execute(query).all()

    def _warnings(self, rows: Sequence[Measurement], found: identity.Compared, waiting: Counter[int]) -> list[str]:
        """What was stored or left out and may not be meant so."""
        words = []
        for kind, column in (("batch", measurements.c.batch), ("label", measurements.c.label)):
            names = {name: None for row in found.new if (name := getattr(row, kind)) is not None}
            there = set(self.connection.scalars(select(column).distinct())) - {None} if names else set()
            words += [
                f"{kind} {name!r} looks like {other!r}, and they count as two; if they are one, set the rows of"
                f" {name!r} to failed with --correct and tell them as {other!r}"
                for name, other in identity.look_alikes((n for n in names if n not in there), sorted(there))
            ]
        if old := sum(row.superseded_by is not None for row in found.matched):
            words.append(f"{old} of the known rows {'was' if old == 1 else 'were'} corrected since; corrections stay")
        added = {row.line for row in found.new}
        same = {
            row.candidate
            for row in rows
            if row.line not in added and waiting[row.candidate] and row.replicate is None and identity.by_chance(row)
        }
        if same:
            words.append(
                f"{len(same)} pending {'point has' if len(same) == 1 else 'points have'} rows that equal known ones and"
                " were not stored again; are they new measurements? number them in a column 'replicate'"
            )
        return words

    def _settle(self, found: identity.Compared) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Pending proposals that new rows answer: one for each good value, then one for each failed well.

        What replaces a row answers nothing.
        """
        good, bad, some = Counter[int](), Counter[int](), Counter[int]()
        for row in found.new:
            (bad if row.status == FAILED else good)[row.candidate] += row.repeats
            some[row.candidate] += row.repeats
        for row in found.replaced:
            some[row.candidate] -= row.repeats
        completed: list[tuple[int, int]] = []
        failed: list[tuple[int, int]] = []
        for proposal in self.proposals(status=PENDING):
            at = proposal.candidate
            for left, answered in ((good, completed), (bad, failed)):
                if left[at] > 0 and some[at] > 0:
                    left[at] -= 1
                    some[at] -= 1
                    answered.append((proposal.ask, proposal.position))
                    break
        return completed, failed

    def _supersede(self, numbers: Sequence[int], tell: int) -> None:
        mark = "?" if self.connection.dialect.name == "sqlite" else "%s"
        statement = f"UPDATE measurements SET superseded_by = {mark} WHERE id = {mark}"
        if numbers:
            self.connection.exec_driver_sql(statement, [(tell, number) for number in sorted(numbers)])

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

    def model_figures(self) -> list[tuple[int, int, dict[str, Any]]]:
        """(basis, round, what a report says of it) of every model that was fitted, oldest first, without tensors."""
        rows = self.connection.execute(select(models.c.basis, models.c.round, models.c.info).order_by(models.c.basis))
        return [(row.basis, row.round, json.loads(row.info).get("figures", {})) for row in rows]

    def add_model(self, basis: int, round: int, tensors: bytes, info: str) -> None:
        """Kept once: the model of a history is a function of it. One of another format is replaced."""
        kept = self.model(basis)
        if kept is None or json.loads(kept.info).get("format") != json.loads(info).get("format"):
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
