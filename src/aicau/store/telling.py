"""Storing a table of results: its new rows, the proposed points that they answer, and warnings."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, func, or_, select

from aicau.store import identity, outliers
from aicau.store.changes import Answers, answers, renamed, void
from aicau.store.identity import Measurement
from aicau.store.schema import measurements, tells
from aicau.store.session import COMPLETED, FAILED, PENDING, Session


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
    placed: int = 0  # of these, told before without a batch, which they have now
    pending: int = 0  # points that are left
    already: bool = False  # all rows were known: nothing was changed
    warnings: tuple[str, ...] = ()


def add_tell(
    session: Session,
    rows: Sequence[Measurement],
    digest: str,
    correct: bool,
    author: str,
    source: str | None = None,
    distinct: Collection[str] = (),  # names that are new ones, though they look like known ones
) -> Told:
    """Store the new rows of a file (see `aicau.store.identity`); the same rows again change nothing."""
    asked, answered = session.proposals(status=PENDING), answers(session)
    waiting = Counter(
        (row.candidate, target)
        for row in asked
        for target in session.targets
        if target not in answered.get((row.ask, row.position), ())
    )
    gone = void(session)
    since = max(gone, default=0)  # what was taken back may be told again
    known = select(func.max(tells.c.id)).where(tells.c.digest == digest, tells.c.id > since)
    earlier = session.connection.scalar(known)
    if correct:
        found = identity.correction(rows, [row for row in _beside(session, rows, gone) if row.superseded_by is None])
    elif earlier is None:
        found = identity.known(rows, _beside(session, rows, gone), waiting)
    else:
        found = identity.Compared()
    warnings = _warnings(rows, found, waiting) + (_fewer(found) if correct else [])
    if not found.new:
        tell = earlier or max(row.tell for row in found.matched)
        return Told(tell, len(rows), known=len(rows), pending=len(asked), already=True, warnings=tuple(warnings))
    tell = session.next_tell()
    session.supersede([row.id for row in found.replaced], tell)
    current = session.measurements()
    identity.check_names("batch", found.new, current, renamed(session), distinct)
    identity.check_names("label", found.new, current, {}, distinct)
    suspects = [one for target in session.targets for one in outliers.find(found.new, current, asked, target)]
    first = session.add_rows(tell, digest, int(correct), found.new)
    now = _settle(asked, found, answered, session.targets)
    done: dict[tuple[int, int], str] = {}  # points that have an answer for every target
    for key, own in now.items():
        if len(states := answered.get(key, {}) | own) == len(session.targets):
            done[key] = COMPLETED if COMPLETED in states.values() else FAILED
    for state in (COMPLETED, FAILED):
        session.move([key for key, new in done.items() if new == state], state)
    ended = Counter(done.values())
    placed = [] if correct else found.replaced
    new = len(found.new) - len(placed)
    strange = 0 if correct else sum(row.waits not in waiting for row in found.new)
    strange -= sum((row.candidate, row.target) not in waiting for row in placed)
    said = (*warnings, *outliers.sentences(suspects))
    counts = ended[COMPLETED], ended[FAILED], strange, len(found.replaced), len(placed), len(asked) - len(done)
    told = Told(tell, len(rows), new, len(rows) - new, *counts, warnings=said)
    detail: dict[str, Any] = {name: getattr(told, name) for name in ("completed", "failed", "superseded")}
    if len(session.targets) > 1:  # pending again when the tell is taken back
        detail["answers"] = [[*key, target, state] for key, own in now.items() for target, state in own.items()]
    elif done:
        detail["answered"] = list(done)
    if suspects:  # listed until they are corrected
        detail["suspects"] = [[first + one.place, one.expected] for one in suspects]
    session.event("tell", author, tell, source=source, rows=len(found.new), **detail)
    return told


def _beside(session: Session, rows: Sequence[Measurement], gone: Collection[int]) -> Sequence[Row[Any]]:
    """Stored rows of the same batches and candidates, without those that were taken back."""
    numbers = [row.candidate for row in rows]
    batches = {row.batch for row in rows} - {None}
    query = select(measurements).order_by(measurements.c.id)
    query = query.where(measurements.c.candidate.between(min(numbers), max(numbers)))
    if 0 < len(batches) <= 500:  # more are more than some databases take
        query = query.where(or_(func.trim(measurements.c.batch).in_(batches), measurements.c.batch.is_(None)))
    return [row for row in session.connection.execute(query) if row.superseded_by not in gone]


def _warnings(rows: Sequence[Measurement], found: identity.Compared, waiting: Counter[tuple[int, str]]) -> list[str]:
    """Warnings about rows that were not stored."""
    words = []
    if old := sum(row.superseded_by is not None for row in found.matched):
        words.append(f"{old} of the known rows {'was' if old == 1 else 'were'} corrected since; corrections stay")
    added = {row.line for row in found.new}
    same = {
        row.candidate
        for row in rows
        if row.line not in added and waiting[row.waits] and row.replicate is None and identity.by_chance(row)
    }
    if same:
        words.append(
            f"{len(same)} pending {'point has' if len(same) == 1 else 'points have'} rows that equal known ones and"
            " were not stored again; are they new measurements? number them in a column 'replicate'"
        )
    return words


def _fewer(found: identity.Compared) -> list[str]:
    """Corrections with fewer values than gave way: one of two replicates may be meant."""
    left = Counter[tuple[int, str, str]]()
    for sign, some in ((1, found.replaced), (-1, found.new)):
        for row in some:
            left[row.candidate, (row.batch or "").strip(), row.target] += sign * row.repeats
    if not (count := sum(number > 0 for number in left.values())):
        return []
    return [
        f"{count} corrected {'candidate has' if count == 1 else 'candidates have'} fewer values than before: all of its"
        " id and batch gave way; if one of them was meant, take this tell back with 'aicau untell' and number it in a"
        " column 'replicate'"
    ]


def _settle(asked: Sequence[Any], found: identity.Compared, answered: Answers, targets: Sequence[str]) -> Answers:
    """Pending proposals that new rows answer, target by target: one for each good value, then one for each failed well.

    What replaces a row answers nothing.
    """
    left, good = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for row in found.new:
        left[row.waits] += row.repeats
        good[row.waits] += row.repeats if row.status != FAILED else 0
    for row in found.replaced:
        left[row.candidate, row.target] -= row.repeats
    now: Answers = {}
    for proposal in asked:
        key = (proposal.ask, proposal.position)
        for target in targets:
            at = (proposal.candidate, target)
            if left[at] > 0 and target not in answered.get(key, ()):
                now.setdefault(key, {})[target] = COMPLETED if good[at] > 0 else FAILED
                left[at] -= 1
                good[at] -= 1
    return now
