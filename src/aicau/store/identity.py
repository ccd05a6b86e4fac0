"""Which rows of a file are known already. A measurement is known by its id, target, batch, replicate and value.

Status, standard error and count are part of the value; a number is compared by its first 15 digits, as many as a
spreadsheet keeps. Rows without a replicate number are compared as a set: two equal ones in a file are two measurements,
and the same file again, or one that has grown, adds only what is more. What could be a new measurement or a changed
value is new where a proposed point waits for it, and refused otherwise.
"""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from aicau.core.errors import InputError

FAILED = "failed"
MOST_CLASSES = 50


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
    target: str = ""  # which, in a campaign with several

    @property
    def status(self) -> str:
        return FAILED if self.value is None and self.label is None else "ok"

    @property
    def waits(self) -> tuple[int, str]:
        """What a pending point waits for: a result of a candidate and target."""
        return self.candidate, self.target


@dataclass(frozen=True)
class Compared:
    """What a file adds to a store."""

    new: list[Measurement] = field(default_factory=list)
    matched: list[Any] = field(default_factory=list)  # rows of the store that stand in the file again
    replaced: list[Any] = field(default_factory=list)  # rows of the store that give way
    doubtful: list[tuple[Measurement, str]] = field(default_factory=list)  # new where a point waits, else refused


def known(rows: Sequence[Measurement], stored: Iterable[Any], waiting: Counter[tuple[int, str]]) -> Compared:
    """Rows that are new beside all that is stored; `waiting` counts pending points by `Measurement.waits`."""
    found, groups = Compared(), _groups(stored)
    for key, some in _groups(rows).items():
        some = _once(some)
        if key[1] and (loose := groups.get((key[0], "", key[2]))):
            some = _place(found, some, groups.get(key, []), loose)
        if key in groups:
            _compare(found, some, groups[key])
        else:
            found.new.extend(some)
    left = Counter(waiting)
    for row in found.new:
        left[row.waits] -= row.repeats
    for old in found.replaced:
        left[old.candidate, old.target] += old.repeats
    for row, words in found.doubtful:
        if left[row.waits] <= 0:
            raise InputError(words)
        left[row.waits] -= row.repeats
        found.new.append(row)
    found.new.sort(key=attrgetter("line"))
    return found


def _place(
    found: Compared,
    rows: list[Measurement],
    stored: list[Any],  # of the same id and batch
    loose: list[Any],  # of the same id, told before the campaign had batches
) -> list[Measurement]:
    """Give stored rows without a batch the batch of equal new rows; returns the new rows that equal none."""
    known = Counter(map(_value, stored))
    pool = sorted(loose, key=lambda one: one.superseded_by is not None)  # current ones are taken first
    rest = []
    for row in rows:
        numbers = (None, row.replicate) if row.replicate is not None else {one.replicate for one in pool}
        same = next((one for one in pool if _value(one) == _value(row) and one.replicate in numbers), None)
        if same is None or known[_value(row)] > 0:
            known[_value(row)] -= 1
            rest.append(row)
            continue
        pool.remove(same)
        if same.superseded_by is None:
            found.new.append(row._replace(replicate=row.replicate or same.replicate))
            found.replaced.append(same)
        else:
            found.matched.append(same)
    return rest


def _compare(found: Compared, rows: list[Measurement], stored: list[Any]) -> None:
    """The rows of one id and batch."""
    # By value and number; current rows are taken first.
    pool = _grouped(sorted(stored, key=lambda one: one.superseded_by is None), lambda one: (_value(one), one.replicate))
    keyed = _grouped(list(pool), lambda key: key[0])  # keys of the pool by value
    taken: list[Any] = []
    count = sum(one.replicate is None for one in stored)
    for wild in (False, True):  # the same number first; then a row without a number is any row of its value
        left = []
        for row in rows:
            value = _value(row)
            keys = [(value, row.replicate)]
            if wild and row.replicate is None:
                keys = sorted(keyed[value], key=str)
            elif wild:
                keys = [] if (row.replicate or 0) > count and by_chance(row) else [(value, None)]
            place = next((pool[key] for key in keys if pool[key]), None)
            if place is None:
                left.append(row)
            else:
                taken.append(place.pop())
        rows = left
    found.matched.extend(taken)
    since = {one.superseded_by for one in taken}  # what replaced a row that stands in the file is no other value
    rest = [one for some in pool.values() for one in some if one.superseded_by is None and one.tell not in since]
    nameless = [one for one in rest if one.replicate is None and one.status != FAILED]
    current = [one for one in stored if one.superseded_by is None]
    number = 1 + max([len(current), *(one.replicate or 0 for one in current)])
    numbered = _grouped(rest, attrgetter("replicate"))
    for row in rows:
        others = rest if row.replicate is None else numbered[row.replicate]
        if row.replicate is not None and not others and row.replicate <= len(nameless):
            raise InputError(
                f"{_says(row, nameless[0])} without a replicate number; a new measurement? number it {number};"
                " or leave the numbers out to correct it with --correct"
            )
        if not others:
            found.new.append(row)
            continue
        words = f"{_says(row, others[0])}; meant as a correction? use --correct; a new measurement?"
        words += f" give it the number {number} in a column 'replicate'"
        if row.replicate is not None and any(one.status != FAILED for one in others):
            raise InputError(words)
        found.doubtful.append((row, words))


def correction(rows: Sequence[Measurement], current: Iterable[Any]) -> Compared:
    """Rows that replace current ones of the same id and batch (and replicate, where they name one)."""
    found, groups = Compared(), _groups(current)
    for key, some in _groups(rows).items():
        some = _once(some)
        whole = any(row.replicate is None for row in some)  # then all numbers of the id and batch give way
        by = (lambda row: None) if whole else attrgetter("replicate")
        there = _grouped(groups.get(key, []), by)
        for number, told in _grouped(some, by).items():
            old = there[number]
            if not old:
                raise InputError(
                    f"row {told[0].line} corrects nothing: no such measurement was told before"
                    " (same id, batch and, where given, replicate); nothing was changed"
                )
            if Counter(map(_value, old)) == Counter(map(_value, told)):
                found.matched.extend(old)
            else:
                found.replaced.extend(old)
                found.new.extend(told)
    found.new.sort(key=attrgetter("line"))
    return found


def by_chance(row: Measurement) -> bool:
    """Whether another measurement may well have the same value: labels, whole numbers, failed wells."""
    return row.value is None or row.value % 1 == 0


def _groups(rows: Iterable[Any]) -> dict[tuple[int, str, str], list[Any]]:
    """By candidate, batch and target."""
    return _grouped(rows, lambda row: (row.candidate, (row.batch or "").strip(), row.target))


def _grouped(rows: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found = defaultdict[Any, list[Any]](list)
    for row in rows:
        found[key(row)].append(row)
    return found


def _value(row: Any) -> tuple[Any, ...]:
    value, sem = (None if part is None else f"{part + 0.0:.15g}" for part in (row.value, row.sem))
    return row.status, value, sem, row.repeats, row.label


def _once(rows: list[Measurement]) -> list[Measurement]:
    """A numbered replicate counts once, and has one value; it may have failed before."""
    numbered: dict[tuple[int, str], Measurement] = {}
    for row in (row for row in rows if row.replicate is not None):
        other = numbered.setdefault((row.replicate, row.status), row)  # type: ignore[arg-type]
        if _value(other) != _value(row):
            raise InputError(
                f"rows {other.line} and {row.line} are both replicate {row.replicate} of one id and batch, with"
                " different values; give each a number of its own, or leave the column 'replicate' out"
            )
    return [row for row in rows if row.replicate is None or numbered[row.replicate, row.status] is row]


def _says(row: Measurement, old: Any) -> str:
    where = f", {row.target}," if row.target else ""
    return f"row {row.line}{where} says {_shown(row)}, and {_shown(old)} is known for the same id and batch"


def _shown(row: Any) -> str:
    if row.status == FAILED:
        return FAILED
    words = repr(row.label) if row.label is not None else f"{row.value:.15g}"
    words += f" ± {row.sem:.15g}" if row.sem is not None else ""
    return words + (f" ({row.repeats} times)" if row.repeats > 1 else "")


def check_names(
    kind: str,  # batch or label
    rows: Iterable[Measurement],
    current: Iterable[Any],
    renamed: Mapping[str, str],
    distinct: Collection[str],  # names that are meant as new ones
) -> None:
    """A new name that differs from a known one only by case, blanks, unicode form or the way a number is written, or
    that was renamed, needs a decision; hundreds of different texts cannot be meant as classes."""
    noun = "class" if kind == "label" else kind
    there = {getattr(row, kind) for row in current} - {None}
    seen = {alike(name): name for name in sorted(there, reverse=True)}
    for row in rows:
        name = getattr(row, kind)
        if name is None or name in there:
            continue
        there.add(name)
        if kind == "label" and len(there) > MOST_CLASSES:
            words = f"class number {len(there)}, and there can be {MOST_CLASSES}; is the target one of a few classes?"
            raise InputError(f"row {row.line}: this is {words}")
        other = name if name in distinct else renamed.get(name) or seen.setdefault(alike(name), name)
        if other != name:
            words = "was renamed to" if name in renamed else "looks like"
            raise InputError(
                f"row {row.line}: the {noun} {name!r} {words} {other!r}; write {other!r}, or add --new {name!r} if it"
                f" is another {noun} (Python: new=[{name!r}])"
            )


def twin(name: str, names: Iterable[str]) -> str | None:
    """The first of some names that looks like this one."""
    return next((other for other in names if alike(other) == alike(name)), None)


def alike(name: str) -> float | str:
    """A key that is equal for names that look alike: `P1` and `p 1`, `1` and `1.0`."""
    text = folded(name)
    try:
        return float(text) if "_" not in text and math.isfinite(float(text)) else text
    except ValueError:
        return text


def folded(name: str) -> str:
    """The name without case, blanks and invisible characters, in one Unicode form."""
    words = "".join(unicodedata.normalize("NFKC", name).casefold().split())
    return "".join(letter for letter in words if unicodedata.category(letter) != "Cf")
