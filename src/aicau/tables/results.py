"""What came back from the laboratory: rows of a table become measurements, or one sentence says why not."""

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aicau.core.errors import InputError, shown
from aicau.store import Measurement
from aicau.store.identity import alike, folded
from aicau.tables.kinds import plain
from aicau.tables.sheet import Sheet, flags

OPTIONAL = ("status", "sem", "count", "replicate")
LARGEST = 1e60  # its square is still a number, and so is that of 1 / LARGEST
LARGEST_COUNT = 1e15  # every whole number below is a number of its own
LARGEST_SEM = 1e6  # times the largest value beside it
MOST_REPEATS = 1_000_000  # of `count` and `replicate`
LONGEST = 100  # characters of a batch or a label
_BATCH = re.compile(r"(plate|batch|day|run)([ _-]?(id|no|nr|number|name|barcode))?")  # columns that are often one
GOOD, BAD = ("", "ok", "completed"), ("failed",)
INSTEAD = "; if the well failed, write failed into the column 'status'; if it is not measured yet, leave the row out"


def parse(
    sheet: Sheet,
    id: str,
    targets: Sequence[str],
    batch: str | None,
    ids: pa.Array,  # of all candidates, in their order
    task: str = "regression",
    own: Collection[str] = (),  # columns of the pool: `ask` handed them out, and they are no results
) -> tuple[list[Measurement], list[str]]:
    """The measurements of a table, and notes about it.

    For regression a row has a value, or a mean with `sem` and `count`; for classification a label, or `count` equal
    ones; for counts a whole number. A well whose `status` is failed has no result. A row whose status, result and batch
    are all empty is not measured yet. With several targets an empty cell is not measured yet, and a failed well failed
    for every target.
    """
    sheet = _renamed(sheet, [id, *targets, *filter(None, [batch]), *OPTIONAL], own)
    notes, rows = list[str](), list[Measurement]()
    likely = (c for c in sheet.columns if _BATCH.fullmatch(c.strip().casefold()) and c not in own)
    if batch is None and (column := next(likely, None)):
        notes.append(
            f"the column {column!r} is not used; if what it names shares a shift (a plate, a day), run 'aicau change"
            f" CAMPAIGN --batch {column}' and tell the file again"
        )
    there = [name for name in targets if sheet.has(name)]
    given, mean = set(filter(sheet.has, OPTIONAL)), {"sem", "count"}
    if len(there) > 1 and (column := max(given & mean, default="")):
        raise InputError(f"{sheet.name}: {column!r} belongs to one target; tell each target in a file of its own")
    if task == "regression" and len(given & mean) == 1:
        (column,), (other,) = given & mean, mean - given
        raise InputError(f"{sheet.name} has a column {column!r} but no column {other!r}; a mean needs both")
    for target in there or targets[:1]:
        filled = np.ones(sheet.rows, dtype=bool)
        if there and len(targets) > 1:
            filled = _failed(sheet) | ~sheet.blank(target)
        elif there and "status" in given:
            roles = ("status", "sem", target, *filter(None, [batch]))
            filled = ~np.logical_and.reduce([sheet.blank(name) for name in roles])
        if filled.any():
            found = _measurements(sheet.where(filled), id, target, batch, ids, task)
            rows += [row._replace(target=target) for row in found] if len(targets) > 1 else found
    if not rows:
        columns = ", ".join(map(repr, targets))
        raise InputError(f"{sheet.name}: no row is filled in; write the results into the column {columns}")
    if single := sum(bool(row.sem) and row.repeats == 1 for row in rows):
        some = "1 row has" if single == 1 else f"{single} rows have"
        notes.append(f"{some} a standard error beside count 1, which is not used: write how many values a mean is of")
    if left := sheet.rows - len({row.line for row in rows}):
        notes.append(f"{left} {'row is' if left == 1 else 'rows are'} not filled in yet, and left out")
    return rows, notes


def _measurements(sheet: Sheet, id: str, target: str, batch: str | None, ids: pa.Array, task: str) -> list[Measurement]:
    """One measurement of one target per row."""
    candidate, failed = find(sheet.texts(id), ids, lambda row: f"{sheet.at(row, id)}: "), _failed(sheet)
    batches = [None] * sheet.rows if batch is None else _batches(sheet, batch)
    columns = {"candidate": candidate, "batch": batches, "line": [sheet.row(at) for at in range(sheet.rows)]}
    columns |= READERS[task](sheet, target, failed) | {"replicate": _listed(_whole(sheet, "replicate"), int)}
    return [Measurement(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def _renamed(sheet: Sheet, names: Sequence[str], own: Collection[str]) -> Sheet:
    """The table with `names` for the columns that differ from them only by case and blanks."""
    wanted = {folded(name): name for name in names}
    found: dict[str, str] = {}
    for column in sheet.table.column_names:
        name = column if column in names or column in own else wanted.get(folded(column), column)
        if name in found:
            raise InputError(f"{sheet.name}: columns {found[name]!r} and {column!r} both read as {name!r}; rename one")
        found[name] = column
    return replace(sheet, table=sheet.table.rename_columns(list(found)))


def _batches(sheet: Sheet, batch: str) -> list[str | None]:
    """Names without blanks around, of at most `LONGEST` characters."""
    if pa.types.is_temporal(sheet.array(batch).type):
        days = pc.replace_substring_regex(plain(sheet.array(batch)), r"([ T]00:00(:00)?)?(\.0*)?Z?$", "")
        place = sheet.columns.index(batch)
        sheet = replace(sheet, table=sheet.table.set_column(place, batch, days))
    names = pc.utf8_trim_whitespace(sheet.texts(batch))
    sheet.refuse(batch, flags(pc.equal(pc.utf8_lower(names), "nan")), "expected a name, got NaN")
    words = f"this name has more than {LONGEST} characters; shorten it"
    sheet.refuse(batch, flags(pc.greater(pc.utf8_length(names), LONGEST)), words)
    return list(names.to_pylist())


Column = NDArray[np.float64]
Read = dict[str, list[Any]]  # some fields of the measurements
Reader = Callable[[Sheet, str, NDArray[np.bool_]], Read]


def _listed(column: Column, kind: type = float, empty: int | None = None) -> list[Any]:
    return [empty if np.isnan(value) else kind(value) for value in column.tolist()]


def _regression(sheet: Sheet, target: str, failed: NDArray[np.bool_]) -> Read:
    """Numbers, or means with a standard error and a count."""
    value = values(sheet, target, failed, LARGEST)
    no_sem, no_count = sheet.blank("sem") | failed, sheet.blank("count") | failed
    sem, count = sheet.numbers("sem", no_sem), _whole(sheet, "count", failed)
    most = LARGEST_SEM * float(np.abs(np.nan_to_num(value)).max(initial=0.0)) or LARGEST
    sheet.refuse("count", ~no_sem & no_count, "a mean with a standard error needs the count behind it")
    sheet.refuse("sem", no_sem & (count > 1), "a mean of several values needs its standard error")
    sheet.refuse("sem", sem < 0, "a standard error is at least 0")
    sheet.refuse("sem", sem > most, f"a standard error above {most:.0e} cannot be of these values; check its unit")
    return {"value": _listed(value), "sem": _listed(sem), "repeats": _listed(count, int, 1)}


def _classification(sheet: Sheet, target: str, failed: NDArray[np.bool_]) -> Read:
    """Labels, or `count` equal ones in a row."""
    _refuse(sheet, failed, "a label", "sem")
    labels, count = sheet.labels(target, failed, INSTEAD), _whole(sheet, "count", failed)
    return {"value": [None] * sheet.rows, "label": labels, "repeats": _listed(count, int, 1)}


def _count(sheet: Sheet, target: str, failed: NDArray[np.bool_]) -> Read:
    """Whole numbers from 0."""
    value = values(sheet, target, failed, LARGEST_COUNT)
    wrong = ~failed & ((value < 0) | (value != np.floor(value)))
    sheet.refuse(target, wrong, lambda row: f"expected a count, a whole number from 0, got {value[row]:g}")
    _refuse(sheet, failed, "a count", "sem", "count")
    return {"value": _listed(value)}


READERS: dict[str, Reader] = {"regression": _regression, "classification": _classification, "count": _count}


def values(sheet: Sheet, target: str, failed: NDArray[np.bool_], largest: float) -> Column:
    """The numbers of a target that can be computed with; NaN in failed wells."""
    value = sheet.numbers(target, failed, INSTEAD)
    size = np.abs(np.nan_to_num(value))
    words = f"is too large; expected at most {largest:.0e}"
    sheet.refuse(target, size > largest, lambda row: f"{value[row]:.3g} {words}")
    small = (size > 0) & (size.max() < 1 / largest)
    sheet.refuse(target, small, lambda row: f"{value[row]:.3g} is too small; write the values in a smaller unit")
    return value


def _refuse(sheet: Sheet, failed: NDArray[np.bool_], what: str, *columns: str) -> None:
    """Columns that have no meaning beside this kind of result must be empty."""
    for column in columns:
        words = f"{what} has no {column!r}; tell every measurement in a row of its own"
        sheet.refuse(column, ~sheet.blank(column) & ~failed, words)


def places(texts: pa.Array, ids: pa.Array) -> pa.Array:
    """The place of every id among the candidates, null where it is none; blanks around an id do not count, nor does the
    way a letter is encoded (ü or u with two dots)."""
    found = pc.index_in(texts, value_set=ids)
    if found.null_count:
        bare, known = (pc.utf8_normalize(pc.utf8_trim_whitespace(some), "NFC") for some in (texts, ids))
        found = pc.coalesce(found, pc.index_in(bare, value_set=known))
    return found


def find(texts: pa.Array, ids: pa.Array, at: Callable[[int], str] = lambda row: "") -> list[int]:
    """The place of every id among the candidates; `at` says where an id stands that is none."""
    found = places(texts, ids)
    if found.null_count:
        row = pc.index(pc.is_null(found), True).as_py()
        text = texts[row].as_py()
        raise InputError(f"{at(row)}{shown(text)} is not the id of a candidate{_nearest(text, ids)}")
    return list(found.to_pylist())


def _nearest(text: str, ids: pa.Array) -> str:
    """Which candidate may be meant."""
    bare = text.strip().removesuffix(".0")
    zeros = pc.equal(pc.utf8_ltrim(ids, "0"), bare.lstrip("0"))
    if bare.isdecimal() and (at := pc.index(zeros, True).as_py()) >= 0:
        words = "a spreadsheet took its zeros away; format the column as text" if text.isdecimal() else "write it so"
        return f"; {shown(ids[at].as_py())} is one: {words}"
    same = pc.equal(pc.utf8_lower(ids), text.strip().lower())
    near = [ids[at].as_py()] if (at := pc.index(same, True).as_py()) >= 0 else []
    if not near and len(ids) <= 20_000 and len(text) < 100:  # 1.00E+05 is how a spreadsheet writes 1e5
        near = [one for one in ids.to_pylist() if alike(one) == alike(text)][:1]
        near = near or get_close_matches(text, ids.to_pylist(), 1, 0.7)
    otherwise = "; add it with 'aicau add' if it is a new one, else leave it out"
    return f"; did you mean {shown(near[0])}?" if near else otherwise


def _failed(sheet: Sheet) -> NDArray[np.bool_]:
    words = pc.utf8_lower(pc.utf8_trim_whitespace(sheet.texts("status", empty=True)))
    wrong = ~flags(pc.is_in(words, pa.array([*BAD, *GOOD])))
    sheet.refuse("status", wrong, lambda row: f"expected ok or failed, got {shown(words[row].as_py())}")
    return flags(pc.is_in(words, pa.array(BAD)))


def _whole(sheet: Sheet, column: str, failed: NDArray[np.bool_] | bool = False) -> Column:
    """Whole numbers from 1; NaN in empty cells and failed wells."""
    skip = sheet.blank(column) | failed
    values = sheet.numbers(column, skip)
    wrong = ~skip & ((values != np.floor(values)) | (values < 1) | (values > MOST_REPEATS))
    words = f"expected a whole number from 1 to {MOST_REPEATS:,}, got"
    sheet.refuse(column, wrong, lambda row: f"{words} {values[row]:g}")
    return values


def digest(rows: Sequence[Measurement], correct: bool) -> str:
    """A hash of what the rows say, whatever their order."""
    # The first six fields as ever: a table told to an older aicau is known again.
    lines = sorted(str((*row[:6], *filter(None, (row.label, row.target)))) for row in rows)
    return hashlib.sha256("\n".join([f"correct={correct}", *lines]).encode()).hexdigest()


def summary(told: dict[str, Any]) -> str:
    """What a tell changed, in words."""
    new, known, left = told["new"], told["known"], f"{told['pending']} still pending"
    if told["already"]:
        return f"nothing new: {'the row is' if known == 1 else f'all {known} rows are'} known already; {left}"
    done = told["completed"]
    parts = [f"{done} {'point' if done == 1 else 'points'} completed"] if done or told["failed"] else []
    words = {"failed": "failed", "unrequested": "not asked for", "placed": "got their batch", "replaced": "replaced"}
    counts = told | {"replaced": told["superseded"] - told["placed"]}
    parts += [f"{counts[name]} {word}" for name, word in words.items() if counts[name]]
    first = f"{new} new {'measurement' if new == 1 else 'measurements'}" + (f", {known} known already" if known else "")
    if told.get("controls"):
        parts.append(f"{told['controls']} new {'value' if told['controls'] == 1 else 'values'} of controls")
    return "; ".join([first, *([", ".join(parts)] if parts else []), left])
