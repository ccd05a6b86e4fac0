"""A campaign that changes. Every change is a row of the history that is replayed on reading; nothing is overwritten.

What changes the model also takes the number of a tell (with as many rows as it writes), so that the model is fitted
again: `add`, `change`, `rename`, `untell`. `exclude` and `include` only say what may be proposed.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from sqlalchemy import Row, func, select

from aicau.core.errors import InputError, shown
from aicau.store import identity
from aicau.store.identity import Measurement
from aicau.store.schema import asks, events, tells
from aicau.store.session import ABANDONED, COMPLETED, FAILED, PENDING, Session

NUMBERED = ("add", "change", "rename", "untell")  # those that take the number of a tell
KINDS = (*NUMBERED, "exclude", "include")
Answers = dict[tuple[int, int], dict[str, str]]  # of a proposed point (ask, position): states by target
CHANGED = 2  # in the column `correct` of a tell that is a change


def changes(session: Session, *kinds: str) -> list[tuple[Row[Any], dict[str, Any]]]:
    """Events of these kinds and what they say, oldest first."""
    query = select(events).where(events.c.kind.in_(kinds or KINDS)).order_by(events.c.id)
    return [(row, json.loads(row.detail)) for row in session.connection.execute(query)]


def last_change(session: Session) -> int:
    """The number of the last event that changed the campaign; 0 for none."""
    return int(session.connection.scalar(select(func.max(events.c.id)).where(events.c.kind.in_(KINDS))) or 0)


def void(session: Session) -> set[int]:
    """Tells that were taken back, and those that took them back: what they superseded does not count as known."""
    return {number for row, detail in changes(session, "untell") for number in (row.reference, detail["tell"])}


def _standing(session: Session, kind: str) -> list[dict[str, Any]]:
    """What events of a kind say that were not taken back, oldest first."""
    gone = void(session)
    return [detail for row, detail in changes(session, kind) if row.reference not in gone]


def answers(session: Session) -> Answers:
    """What was told of each proposed point, target by target; nothing where there is one target."""
    found: Answers = defaultdict(dict)
    for detail in _standing(session, "tell") if len(session.targets) > 1 else ():
        for ask, position, target, status in detail.get("answers", ()):
            found[ask, position][target] = status
    return found


def renamed(session: Session) -> dict[str, str]:
    """Names of batches that are no longer used, and what each is called now."""
    found: dict[str, str] = {}
    for detail in _standing(session, "rename"):
        found = {old: detail["new"] if now == detail["old"] else now for old, now in found.items()}
        found = {old: now for old, now in found.items() if old != now} | {detail["old"]: detail["new"]}
        found.pop(detail["new"], None)
    return found


def barred(session: Session, measured: Iterable[int]) -> dict[int, str]:
    """Candidates that are not proposed, and why: excluded, or abandoned and not measured since."""
    given_up, measured = "abandoned", set(measured)
    found = dict.fromkeys(session.candidates(ABANDONED), given_up)
    for row, detail in changes(session, "exclude", "include", "abandon"):
        for candidate in detail.get("candidates", ()):
            found[candidate] = f"excluded: {detail['reason']}" if row.kind == "exclude" else given_up
            if row.kind == "include":
                del found[candidate]
    return {candidate: why for candidate, why in found.items() if why != given_up or candidate not in measured}


def abandon(session: Session, candidates: dict[int, str], author: str) -> int:
    """Give up the pending points of these candidates, all or none; returns how many points."""
    pending = set(session.candidates(PENDING))
    known = pending.union(session.candidates(ABANDONED))
    if unknown := [name for candidate, name in candidates.items() if candidate not in known]:
        raise InputError(f"{shown(unknown[0])} is not pending, so there is nothing to abandon; nothing was changed")
    return _give_up(session, "abandon", candidates, author) if pending & set(candidates) else 0


def exclude(session: Session, candidates: dict[int, str], reason: str, author: str) -> tuple[int, int]:
    """Exclude candidates from proposals; returns how many, and how many pending points were given up with them."""
    already = barred(session, ())
    new = {c: name for c, name in candidates.items() if not already.get(c, "").startswith("excluded")}
    return len(new), _give_up(session, "exclude", new, author, reason=reason) if new else 0


def _give_up(session: Session, kind: str, candidates: dict[int, str], author: str, **detail: Any) -> int:
    """Abandon the pending points of these candidates, and record it; returns how many points."""
    pending = [(row.ask, row.position) for row in session.proposals(status=PENDING) if row.candidate in candidates]
    session.move(pending, ABANDONED)
    detail |= {"candidates": sorted(candidates), "ids": sorted(candidates.values()), "proposals": len(pending)}
    session.event(kind, author, None, **detail)
    return len(pending)


def include(session: Session, candidates: dict[int, str], reason: str, author: str) -> int:
    """Let excluded or abandoned candidates be proposed again, all or none; returns how many."""
    already = barred(session, ())
    if free := [name for candidate, name in candidates.items() if candidate not in already]:
        raise InputError(f"{shown(free[0])} is neither excluded nor abandoned: it can be proposed; nothing was changed")
    names = {"candidates": sorted(candidates), "ids": sorted(candidates.values())}
    session.event("include", author, None, reason=reason, **names)
    return len(candidates)


def suspects(session: Session) -> dict[int, tuple[float, int]]:
    """Measurements far from what was known that nobody confirmed: what was expected, and the tell of each."""
    found: dict[int, tuple[float, int]] = {}
    for row, detail in changes(session, "tell", "confirm"):
        found |= {number: (expected, row.reference) for number, expected in detail.get("suspects", ())}
        for number in detail.get("confirmed", ()):
            found.pop(number, None)
    return found


def confirm(session: Session, candidates: dict[int, str], author: str) -> int:
    """Confirm values that were pointed out as unusual; returns how many."""
    far = suspects(session)
    rows = [row for row in session.measurements() if row.id in far and row.candidate in candidates]
    if usual := [candidates[candidate] for candidate in candidates.keys() - {row.candidate for row in rows}]:
        raise InputError(f"no value of {shown(min(usual))} is pointed out as unusual; nothing was changed")
    session.event("confirm", author, None, ids=sorted(candidates.values()), confirmed=[row.id for row in rows])
    return len(rows)


def rename(session: Session, old: str, new: str, author: str) -> int:
    """Give a batch another name: new rows replace its rows; returns how many."""
    rows = session.measurements()
    moved = [row for row in rows if (row.batch or "").strip() == old]
    names = sorted({row.batch.strip() for row in rows if row.batch is not None})
    if not moved:
        near = identity.twin(old, names) or next(iter(get_close_matches(old, names, 1)), None)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names[:8]) or 'none'}"
        raise InputError(f"no measurement is of a batch {old!r}; {hint}")
    other = identity.twin(new, [name for name in names if name != old])
    if other and new not in names:
        words = f"rename it to {other!r} if they are one, or to a name that differs by more; nothing was changed"
        raise InputError(f"the batch {new!r} looks like {other!r}; {words}")
    # Rows of the other name that say the same are the same: one plate was told under two names.
    there = [row for row in rows if (row.batch or "").strip() == new]
    again = [_again(row)._replace(batch=new) for row in moved]
    try:
        found = identity.known(again, there, Counter({row.waits: len(rows) * row.repeats for row in again}))
    except InputError:
        words = "with different values; correct or take back one of them first; nothing was changed"
        raise InputError(f"{old!r} and {new!r} both have a replicate of one number and candidate, {words}") from None
    tell = numbered(session, "rename", author, found.new, old=old, new=new, moved=len(moved))
    session.supersede([row.id for row in moved], tell)
    return len(moved)


def untell(session: Session, tell: int, author: str) -> tuple[int, int, int]:
    """Take back a tell, correction or renaming; returns how many rows go, count again, and points are pending again."""
    told = [detail for row, detail in changes(session, "tell", "rename") if row.reference == tell]
    gone = void(session)
    if not told or tell in gone:
        words = "was taken back already" if tell in gone else "is no tell that can be taken back"
        raise InputError(f"{tell} {words}; 'aicau history' lists tells with their numbers; nothing was changed")
    rows = session.measurements(current=False)
    taken = {detail["tell"]: row.reference for row, detail in changes(session, "untell")}
    own = [_now(row, rows, taken) for row in rows if row.tell == tell]
    if later := {row.superseded_by for row in own} - {None}:
        raise InputError(f"tell {tell} was changed by tell {max(later)}; take back {max(later)} first, then {tell}")
    back = [row for row in rows if row.superseded_by == tell]
    number = numbered(session, "untell", author, [_again(row) for row in back], tell=tell, gone=len(own))
    session.supersede([row.id for row in own], number)
    closed, waiting = barred(session, ()), {row.candidate: row.ask for row in session.proposals(status=PENDING)}
    answered = {(ask, position) for ask, position, *_ in told[0].get("answers", told[0].get("answered", ()))}
    points = [row for row in session.proposals() if row.status in (COMPLETED, FAILED) and row.candidate not in closed]
    points = [row for row in points if waiting.get(row.candidate, row.ask) == row.ask]  # in no other batch
    keys = [key for row in points if (key := (row.ask, row.position)) in answered]
    session.move(keys, PENDING)
    return len(own), len(back), len(keys)


def _now(row: Any, rows: Sequence[Any], taken: dict[int, int]) -> Any:
    """A row, or its copy that counts again because what superseded the row was taken back."""
    while row.superseded_by in taken:
        place = [one.id for one in rows if one.superseded_by == row.superseded_by].index(row.id)
        row = [one for one in rows if one.tell == taken[row.superseded_by]][place]
    return row


def _again(row: Any) -> Measurement:
    return Measurement(**{name: getattr(row, name) for name in Measurement._fields if name != "line"}, line=row.id)


def numbered(session: Session, kind: str, author: str, rows: Sequence[Measurement], **detail: Any) -> int:
    """Record a change under the number of a tell, with the rows it writes."""
    tell = session.next_tell()
    session.add_rows(tell, f"{kind} {tell}", CHANGED, rows)
    session.event(kind, author, tell, **detail)
    return tell


@dataclass(frozen=True)
class Moment:
    """A campaign at one moment: all that the next batch depends on."""

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

    @property
    def measured(self) -> int:
        """The same for the same measurements: a file may be replaced by an earlier copy, and go on from there."""
        return hash((self.basis, *map(tuple, self.rows)))

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
