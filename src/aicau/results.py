"""What came back from the laboratory: rows of a table become measurements, or one sentence says why not."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aicau.errors import InputError, unknown
from aicau.sheet import Sheet, shown
from aicau.store import Measurement

TASKS = ("regression", "classification", "count")  # what a measurement is: a value, a label, a count
LARGEST = 1e100  # its square is still a number
LARGEST_COUNT = 1e15  # every whole number below is a number of its own
MOST_CLASSES = 50
GOOD, BAD = ("", "ok", "completed"), ("failed",)


def parse(
    sheet: Sheet,
    id: str,
    target: str,
    batch: str | None,
    ids: pa.Array,  # of all candidates, in their order
    task: str = "regression",
    known: Sequence[str] = (),  # labels told before
) -> list[Measurement]:
    """One measurement per row: a value, or a mean with `sem` and `count`, or a well whose `status` is failed.

    For classification a label, or `count` equal ones; for counts a whole number.
    """
    rows = sheet.rows
    candidate = find(sheet, id, ids)
    batches = sheet.texts(batch).to_pylist() if batch is not None else [None] * rows
    failed = _failed(sheet)
    if not failed.all():
        sheet.array(target)
    value = np.full(rows, np.nan)
    labels: list[str | None] = [None] * rows
    if sheet.has(target):
        if task == "classification":
            labels = _labels(sheet, target, failed, known)
        else:
            value = _values(sheet, target, failed, task)
    sem, count = _summaries(sheet, failed) if task == "regression" else _equal(sheet, failed, task)
    replicate = _whole(sheet, "replicate", sheet.blank("replicate")) if sheet.has("replicate") else np.zeros(rows)
    optional = [[None if np.isnan(v) else v for v in column.tolist()] for column in (value, sem)]
    numbers = [int(v) or None for v in np.nan_to_num(replicate).tolist()]
    counts = count.astype(int).tolist()
    lines = map(sheet.row, range(rows))
    return list(map(Measurement, candidate, *optional, counts, batches, numbers, lines, labels))


def check_task(task: str) -> str:
    """One of the three, or one sentence."""
    if task not in TASKS:
        raise unknown("task", task, list(TASKS))
    return task


def _values(sheet: Sheet, target: str, failed: NDArray[np.bool_], task: str) -> NDArray[np.float64]:
    value = sheet.numbers(target, failed)
    largest = LARGEST_COUNT if task == "count" else LARGEST
    if (huge := np.abs(np.nan_to_num(value)) > largest).any():
        row = int(np.argmax(huge))
        raise InputError(f"{sheet.at(row, target)}: {value[row]:.3g} is too large; expected at most {largest:.0e}")
    if task == "count" and (wrong := ~failed & ((value < 0) | (value != np.floor(value)))).any():
        row = int(np.argmax(wrong))
        raise InputError(f"{sheet.at(row, target)}: expected a count, a whole number from 0, got {value[row]:g}")
    return value


def _labels(sheet: Sheet, target: str, failed: NDArray[np.bool_], known: Sequence[str]) -> list[str | None]:
    """The text of every cell; one number written in two ways, or hundreds of different texts, cannot be meant."""
    labels = sheet.labels(target, failed)
    seen = {_as_number(label): label for label in known}
    for row, label in enumerate(labels):
        if label is None:
            continue
        other = seen.setdefault(_as_number(label), label)
        if other != label:
            raise InputError(f"{sheet.at(row, target)}: {label!r} and {other!r} are one number; write it in one way")
        if len(seen) > MOST_CLASSES:
            raise InputError(
                f"{sheet.at(row, target)}: this is class number {len(seen)}, and there can be {MOST_CLASSES};"
                " is the target one of a few classes?"
            )
    return labels


def _as_number(label: str) -> float | str:
    try:
        return float(label)
    except ValueError:
        return label


def _equal(sheet: Sheet, failed: NDArray[np.bool_], task: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """No standard errors; `count` equal labels behind a row of classification."""
    none, ones = np.full(sheet.rows, np.nan), np.ones(sheet.rows)
    what = "a label" if task == "classification" else "a count"
    for column in ("sem", "count"):
        if not sheet.has(column) or (column == "count" and task == "classification"):
            continue
        if (given := ~sheet.blank(column) & ~failed).any():
            words = f"{what} has no {column!r}; tell every measurement in a row of its own"
            raise InputError(f"{sheet.at(int(np.argmax(given)), column)}: {words}")
    if task != "classification" or not sheet.has("count"):
        return none, ones
    skip = sheet.blank("count") | failed
    return none, np.where(skip, 1.0, _whole(sheet, "count", skip))


def find(sheet: Sheet, id: str, ids: pa.Array) -> list[int]:
    """The place of every id among the candidates."""
    texts = sheet.texts(id)
    found = pc.index_in(texts, value_set=ids)
    if found.null_count:
        row = pc.index(pc.is_null(found), True).as_py()
        raise InputError(f"{sheet.at(row, id)}: {shown(texts[row].as_py())} is not the id of a candidate")
    return list(found.to_pylist())


def _failed(sheet: Sheet) -> NDArray[np.bool_]:
    if not sheet.has("status"):
        return np.zeros(sheet.rows, dtype=bool)
    words = pc.utf8_lower(pc.utf8_trim_whitespace(sheet.texts("status", empty=True)))
    bad = pc.is_in(words, pa.array(BAD))
    known = pc.or_(bad, pc.is_in(words, pa.array(GOOD)))
    if (row := pc.index(known, False).as_py()) >= 0:
        raise InputError(f"{sheet.at(row, 'status')}: expected ok or failed, got {shown(words[row].as_py())}")
    return np.asarray(bad.to_numpy(zero_copy_only=False), dtype=bool)


def _summaries(sheet: Sheet, failed: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Standard error and count of rows that are means; NaN and 1 of rows that are single values."""
    none, ones = np.full(sheet.rows, np.nan), np.ones(sheet.rows)
    if not sheet.has("sem") and not sheet.has("count"):
        return none, ones
    for column, other in (("sem", "count"), ("count", "sem")):
        if not sheet.has(column):
            raise InputError(f"{sheet.name} has a column {other!r} but no column {column!r}; a mean needs both")
    no_sem, no_count = sheet.blank("sem") | failed, sheet.blank("count") | failed
    sem, count = sheet.numbers("sem", no_sem), _whole(sheet, "count", no_count)
    checks = (
        (~no_sem & no_count, "count", "a mean with a standard error needs the count behind it"),
        (~no_count & no_sem & (count > 1), "sem", "a mean of several values needs its standard error"),
        (~no_sem & (sem < 0), "sem", "a standard error is at least 0"),
    )
    for wrong, column, words in checks:
        if wrong.any():
            raise InputError(f"{sheet.at(int(np.argmax(wrong)), column)}: {words}")
    return sem, np.where(no_count, 1.0, count)


def _whole(sheet: Sheet, column: str, skip: NDArray[np.bool_]) -> NDArray[np.float64]:
    values = sheet.numbers(column, skip)
    with np.errstate(invalid="ignore"):
        wrong = ~skip & ((values != np.floor(values)) | (values < 1) | (values > 2**31 - 1))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"{sheet.at(row, column)}: expected a whole number of at least 1, got {values[row]:g}")
    return values


def digest(rows: Sequence[Measurement], correct: bool) -> str:
    """A hash of what the rows say, whatever their order."""
    # The first six fields as ever: a table told to an older aicau is known again.
    lines = sorted(str((*row[:6], *([] if row.label is None else [row.label]))) for row in rows)
    return hashlib.sha256("\n".join([f"correct={correct}", *lines]).encode()).hexdigest()
