"""Queries and writes of a campaign's tables inside one transaction.

A kept model has a hash, and is not used if it does not fit; its tensors may be dropped to save room.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from safetensors import SafetensorError, deserialize
from safetensors.numpy import load, save
from sqlalchemy import Column, Connection, Row, Table, bindparam, delete, exc, func, select, update

from aicau.store import identity
from aicau.store.identity import Measurement
from aicau.store.schema import asks, chunks, events, measurements, meta, models, proposals, tells

TAB = "\t"  # between the names of a target and of its tensor
PENDING, COMPLETED, FAILED, ABANDONED = "pending", "completed", identity.FAILED, "abandoned"


def numbers_of(proposal: Any, target: str) -> dict[str, Any]:
    """The numbers behind a proposed point; of several targets with those of one."""
    found: dict[str, Any] = json.loads(proposal.numbers)
    return found | found.get("of", {}).get(target, {})


def only(settings: dict[str, Any], target: str) -> dict[str, Any]:
    """The settings of a campaign with this one of several targets."""
    return {name: value for name, value in settings.items() if name != "targets"} | {"target": target}


def model_digest(tensors: bytes, info: str) -> str:
    return hashlib.sha256(bytes(tensors) + info.encode()).hexdigest()


@dataclass(frozen=True)
class Session:
    """One transaction, which ends with the `with` that began it."""

    connection: Connection
    settings: dict[str, Any] = field(default_factory=dict)  # as they are now
    target: str = ""  # only measurements and models of this one of several targets; all where it is empty

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that measurements name: those of a campaign with several; "" where there is one."""
        return tuple(dict(self.settings.get("targets", ()))) or ("",)

    def of(self, target: str) -> "Session":
        """The same transaction, restricted to one of several targets."""
        return replace(self, settings=only(self.settings, target), target=target) if len(self.targets) > 1 else self

    def insert(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Whole rows in the order of the table's columns, by the driver's own executemany."""
        if rows:
            self.connection.exec_driver_sql(str(table.insert().compile(self.connection.engine)), list(rows))

    def number(self, column: Column[Any]) -> int:
        """The largest number given out so far; 0 for none."""
        return int(self.connection.scalar(select(func.max(column))) or 0)

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

    def add_chunks(self, pieces: Iterable[Any]) -> None:
        """Append candidates."""
        for number, piece in enumerate(pieces, len(self.sizes())):
            self.insert(chunks, [(number, piece.count, piece.digest, piece.ids, piece.features)])

    def ids(self) -> list[bytes]:
        """The ids of every chunk, in order."""
        return list(self.connection.scalars(select(chunks.c.ids).order_by(chunks.c.number)))

    def sizes(self) -> list[int]:
        """How many candidates every chunk has, in order."""
        return list(self.connection.scalars(select(chunks.c.size).order_by(chunks.c.number)))

    def features(self, numbers: Iterable[int] | None = None) -> Iterator[tuple[int, bytes, bytes]]:
        """Number, ids and columns of all chunks or of some, one at a time."""
        for number in range(len(self.sizes())) if numbers is None else sorted({int(number) for number in numbers}):
            query = select(chunks.c.ids, chunks.c.features).where(chunks.c.number == number)
            yield (number, *self.connection.execute(query).one())

    # Asking

    def ask_of(self, request: str) -> Row[Any] | None:
        """The ask that was made under this name."""
        return self.connection.execute(select(asks).filter_by(request=request)).first()

    def proposals(self, ask: int | None = None, status: str | None = None) -> Sequence[Row[Any]]:
        wanted = {"ask": ask, "status": status}
        return self.table(proposals, **{name: value for name, value in wanted.items() if value is not None})

    def candidates(self, status: str) -> list[int]:
        """Candidates with a proposal in that state."""
        return sorted(self.connection.scalars(select(proposals.c.candidate).filter_by(status=status).distinct()))

    def add_ask(
        self, rows: Sequence[Any], request: str | None, round: int, basis: int, strategy: str, author: str, **more: Any
    ) -> int:
        """Store an ask, whose rows are candidate, replicate, why, numbers as JSON; returns its number."""
        ask = self.number(asks.c.id) + 1
        self.insert(asks, [(ask, request, round, basis, len(rows), strategy)])
        self.insert(proposals, [(ask, at, row[0], row[1], PENDING, *row[2:]) for at, row in enumerate(rows)])
        self.event("ask", author, ask, request=request, round=round, size=len(rows), **more)
        return ask

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
        """Store a tell and its measurements; returns the number of the first."""
        first = self.number(measurements.c.id) + 1
        self.insert(tells, [(tell, digest, len(rows), correct)])
        places = enumerate(rows, first)  # row[1:6]: value, sem, repeats, batch, replicate
        kept = [(at, tell, r.candidate, r.status, *r[1:6], None, r.label, r.target) for at, r in places]
        self.insert(measurements, kept)
        return first

    def supersede(self, numbers: Sequence[int], tell: int) -> None:
        """Mark measurements as superseded by a tell."""
        if numbers:
            statement = update(measurements).where(measurements.c.id == bindparam("one")).values(superseded_by=tell)
            self.connection.execute(statement, [{"one": number} for number in sorted(numbers)])

    def measurements(self, current: bool = True) -> Sequence[Row[Any]]:
        """In the order they were told; `current` leaves superseded rows out."""
        own = {"target": self.target} if self.target else {}
        return self.table(measurements, **own, **({"superseded_by": None} if current else {}))

    # All of it

    def table(self, table: Table, **equal: Any) -> Sequence[Row[Any]]:
        """Every row, or those with these values, by primary key."""
        return self.connection.execute(select(table).filter_by(**equal).order_by(*table.primary_key.columns)).all()

    # Models

    def model(self, basis: int) -> Row[Any] | None:
        """The kept model; None if there is none, its tensors were dropped, or it is damaged."""
        if (row := self._model(basis)) is None or not row.tensors:
            return None
        return row if not self.target else _part(row, self.target)

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

    def model_texts(self) -> list[tuple[int, int, str]]:
        """(basis, round, info as it is kept) of every model that can be read, oldest first."""
        rows = [self._model(basis) for basis, _, _ in self.model_rounds()]
        return [(row.basis, row.round, row.info) for row in rows if row is not None]

    def model_figures(self) -> list[tuple[int, int, dict[str, Any]]]:
        """(basis, round, figures for reports) of every model that was fitted and can be read, without tensors."""
        found = []
        for basis, round, _ in self.model_rounds():
            try:
                info = json.loads(self.connection.scalars(select(models.c.info).where(models.c.basis == basis)).one())
                own = info["targets"].get(self.target, {}) if self.target else info
                found.append((basis, round, own.get("figures", {})))
            except (exc.DBAPIError, AttributeError, LookupError, TypeError, ValueError):
                continue  # damaged: it is fitted again when needed
        return found

    def add_model(self, basis: int, round: int, tensors: bytes, info: str) -> None:
        """Keep a model, unless one of the same format is kept: a model depends on the history only."""
        kept = self.model(basis)
        if kept is None or json.loads(kept.info).get("format") != json.loads(info).get("format"):
            if self.target:
                tensors, info = _beside(self._model(basis), self.target, tensors, info)
            self.connection.execute(delete(models).where(models.c.basis == basis))
            self.insert(models, [(basis, round, tensors, info, model_digest(tensors, info))])

    def drop_models(self, keep: Collection[int]) -> tuple[int, int]:
        """Drop damaged models, and the tensors of all but `keep`; returns how many, and their bytes."""
        dropped = []
        for basis, _, size in self.model_rounds():
            if (row := self._model(basis)) is None:
                self.connection.execute(delete(models).filter_by(basis=basis))
            elif size and basis not in keep:
                left = {"tensors": b"", "digest": model_digest(b"", row.info)}
                self.connection.execute(update(models).filter_by(basis=basis).values(**left))
            else:
                continue
            dropped.append(size)
        return len(dropped), sum(dropped)


def _part(row: Row[Any], target: str) -> Any:
    """The model of one of several targets; None if it was not fitted."""
    info = json.loads(row.info)["targets"].get(target)
    names = ((name.rpartition(TAB), part) for name, part in load(bytes(row.tensors)).items())
    own = {name: part for (whose, _, name), part in names if whose == target}
    return None if info is None else SimpleNamespace(tensors=save(own), info=json.dumps(info, sort_keys=True))


def _beside(row: Row[Any] | None, target: str, tensors: bytes, info: str) -> tuple[bytes, str]:
    """Tensors and info of a model, joined with those of other targets after the same tells."""
    parts = {f"{target}{TAB}{name}": part for name, part in load(tensors).items()}
    infos = {target: json.loads(info)}
    if row is not None and row.tensors:
        old = load(bytes(row.tensors)).items()
        parts |= {name: part for name, part in old if name.rpartition(TAB)[0] != target}
        infos = json.loads(row.info)["targets"] | infos
    return save(parts), json.dumps({"targets": infos}, sort_keys=True)
