"""A campaign at one moment: all that the next batch depends on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aicau.store.changes import barred, last_change
from aicau.store.schema import asks, tells
from aicau.store.session import PENDING, Session


@dataclass(frozen=True)
class Moment:
    last_ask: int  # how many asks there were
    basis: int  # how many tells there were
    round: int  # of the next ask: a new one begins when something was told since the last
    rows: Sequence[Any]  # current measurements that did not fail, in the order they were told
    pending: list[int]  # candidates
    barred: list[int]  # candidates excluded, or given up and not measured since
    turn: int = 0  # asks in this round so far
    history: Sequence[Any] = ()  # `rows`, and those that were superseded
    change: int = 0  # number of the last change
    asked: tuple[tuple[int, int], ...] = ()  # (round, tells before it) of the asks of earlier rounds

    @classmethod
    def read(cls, session: Session) -> "Moment":
        last = session.last_ask()
        basis = session.number(tells.c.id)
        round = 1 if last is None else last.round + (basis > last.basis)
        told, asked = _past(session, basis, round)
        rows = [row for row in told if row.superseded_by is None]
        closed = sorted(barred(session, {row.candidate for row in rows}))
        turn, number = (0, 0) if last is None else (session.count(asks, round=round), last.id)
        pending, change = session.candidates(PENDING), last_change(session)
        return cls(number, basis, round, rows, pending, closed, turn, told, change, asked)

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
