"""A campaign at one moment: all that the next batch depends on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aicau.store.schema import asks, tells
from aicau.store.session import ABANDONED, PENDING, Session


@dataclass(frozen=True)
class Moment:
    last_ask: int  # how many asks there were
    basis: int  # how many tells there were
    round: int  # of the next ask: a new one begins when something was told since the last
    rows: Sequence[Any]  # current measurements that did not fail, in the order they were told
    pending: list[int]  # candidates
    abandoned: list[int]  # candidates given up, and not measured since
    turn: int = 0  # asks in this round so far
    history: Sequence[Any] = ()  # `rows`, and those that were superseded
    asked: tuple[tuple[int, int], ...] = ()  # (round, tells before it) of the asks of earlier rounds

    @classmethod
    def read(cls, session: Session) -> "Moment":
        last = session.last_ask()
        basis = session.number(tells.c.id)
        round = 1 if last is None else last.round + (basis > last.basis)
        told, asked = _past(session, basis, round)
        rows = [row for row in told if row.superseded_by is None]
        measured = {row.candidate for row in rows}
        abandoned = [c for c in session.candidates(ABANDONED) if c not in measured]
        turn, number = (0, 0) if last is None else (session.count(asks, round=round), last.id)
        return cls(number, basis, round, rows, session.candidates(PENDING), abandoned, turn, told, asked)

    @classmethod
    def past(cls, session: Session, basis: int, round: int) -> "Moment":
        """What the model of an earlier round was fitted to: measurements as they stood after so many tells."""
        told, asked = _past(session, basis, round)
        rows = [row for row in told if row.superseded_by is None or row.superseded_by > basis]
        return cls(0, basis, round, rows, [], [], history=told, asked=asked)


def _past(session: Session, basis: int, round: int) -> tuple[list[Any], tuple[tuple[int, int], ...]]:
    """Measurements of the first tells that did not fail, and the asks of earlier rounds."""
    told = [row for row in session.measurements(current=False) if row.status == "ok" and row.tell <= basis]
    return told, tuple((row.round, row.basis) for row in session.table(asks) if row.round < round)
