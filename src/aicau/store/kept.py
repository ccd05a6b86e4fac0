"""Fitted models in a campaign's tables: kept with a hash, dropped when room is needed, never trusted blindly."""

import hashlib
import json
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

from safetensors import SafetensorError, deserialize
from safetensors.numpy import load, save
from sqlalchemy import Connection, Row, Table, delete, exc, func, select, update

from aicau.store.schema import models

TAB = "\t"  # between the names of a target and of its tensor


def model_digest(tensors: bytes, info: str) -> str:
    return hashlib.sha256(bytes(tensors) + info.encode()).hexdigest()


class Kept:
    """The verbs of a session that are about models."""

    connection: Connection
    target: str

    def insert(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Whole rows in the order of the table's columns, by the driver's own executemany."""
        if rows:
            self.connection.exec_driver_sql(str(table.insert().compile(self.connection.engine)), list(rows))

    def model(self, basis: int) -> Row[Any] | None:
        """None where none was kept, its tensors were dropped, or it is not what was kept."""
        row = self._model(basis)
        if row is None or not row.tensors:
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

    def model_infos(self) -> list[tuple[int, int, dict[str, Any]]]:
        """(basis, round, info) of every model that can be read, oldest first."""
        return [(basis, round, json.loads(info)) for basis, round, info in self.model_texts()]

    def model_texts(self) -> list[tuple[int, int, str]]:
        """(basis, round, info as it is kept) of every model that can be read, oldest first."""
        rows = [self._model(basis) for basis, _, _ in self.model_rounds()]
        return [(row.basis, row.round, row.info) for row in rows if row is not None]

    def model_figures(self) -> list[tuple[int, int, dict[str, Any]]]:
        """(basis, round, what a report says of it) of every model that was fitted and can be read, without tensors."""
        found = []
        for basis, round, _ in self.model_rounds():
            try:
                info = self.connection.execute(select(models.c.info).where(models.c.basis == basis)).scalar_one()
                own = json.loads(info) if not self.target else json.loads(info)["targets"].get(self.target, {})
                found.append((basis, round, own.get("figures", {})))
            except (
                exc.DBAPIError,
                AttributeError,
                LookupError,
                TypeError,
                ValueError,
            ):  # damaged: it is fitted again when needed
                continue
        return found

    def add_model(self, basis: int, round: int, tensors: bytes, info: str) -> None:
        """Kept once: the model of a history is a function of it. One of another format is replaced."""
        kept = self.model(basis)
        if kept is None or json.loads(kept.info).get("format") != json.loads(info).get("format"):
            if self.target:
                tensors, info = _beside(self._model(basis), self.target, tensors, info)
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


def _part(row: Row[Any], target: str) -> Any:
    """The model of one of several targets; None where it was not fitted."""
    info = json.loads(row.info)["targets"].get(target)
    names = ((name.rpartition(TAB), part) for name, part in load(bytes(row.tensors)).items())
    own = {name: part for (whose, _, name), part in names if whose == target}
    return None if info is None else SimpleNamespace(tensors=save(own), info=json.dumps(info, sort_keys=True))


def _beside(row: Row[Any] | None, target: str, tensors: bytes, info: str) -> tuple[bytes, str]:
    """A model beside those of other targets that were kept after the same tells."""
    parts = {f"{target}{TAB}{name}": part for name, part in load(tensors).items()}
    infos = {target: json.loads(info)}
    if row is not None and row.tensors:
        old = load(bytes(row.tensors)).items()
        parts |= {name: part for name, part in old if name.rpartition(TAB)[0] != target}
        infos = json.loads(row.info)["targets"] | infos
    return save(parts), json.dumps({"targets": infos}, sort_keys=True)
