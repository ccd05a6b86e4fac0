"""A campaign at one moment: all that the next batch depends on."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aicau.store.changes import barred, last_change
from aicau.store.schema import asks, tells
from aicau.store.session import PENDING, Session


@dataclass(frozen=True)
class Moment:
    basis: int  # how many tells there were
    round: int  # of the next ask: a new one begins when something was told since the last
    rows: Sequence[Any]  # current measurements that did not fail, in the order they were told
    history: Sequence[Any]  # `rows`, and those that were superseded
    asked: tuple[tuple[int, int], ...]  # (round, tells before it) of the asks of earlier rounds
    last_ask: int = 0  # how many asks there were
    turn: int = 0  # asks in this round so far
    pending: list[int] = field(default_factory=list)  # candidates
    barred: list[int] = field(default_factory=list)  # candidates excluded, or given up and not measured since
    change: int = 0  # number of the last change

    @classmethod
    def read(cls, session: Session) -> "Moment":
        made, basis = session.table(asks), session.number(tells.c.id)
        round = made[-1].round + (basis > made[-1].basis) if made else 1
        now = cls.past(session, basis, round)
        return replace(
            now,
            last_ask=len(made),
            turn=sum(row.round == round for row in made),
            pending=session.candidates(PENDING),
            barred=sorted(barred(session, {row.candidate for row in now.rows})),
            change=last_change(session),
        )

    @classmethod
    def past(cls, session: Session, basis: int, round: int) -> "Moment":
        """What the model of an earlier round was fitted to: measurements as they stood after so many tells."""
        told = [row for row in session.measurements(current=False) if row.status == "ok" and row.tell <= basis]
        rows = [row for row in told if row.superseded_by is None or row.superseded_by > basis]
        asked = tuple((row.round, row.basis) for row in session.table(asks) if row.round < round)
        return cls(basis, round, rows, told, asked)
