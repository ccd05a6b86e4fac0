"""A table as people gave it: columns as text, numbers or labels, with the row and the column of the first thing that
cannot be meant.

A row is called by the number a spreadsheet shows: the header is row 1.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aicau.core.errors import InputError, shown
from aicau.store.identity import folded
from aicau.tables.kinds import in_words, is_numeric, is_text, simple

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # 1,234: a decimal comma, or a mark between thousands
_GROUPED = re.compile(r"[+-]?\d{1,3}([,.' \u00a0\u2009\u202f]\d{3})+([.,]\d+)?")  # 1.234,5 and 1,234,567
MOST_COLUMNS = 10_000
LONGEST_NAME = 500  # of a column
EXACT = 2**53  # every whole number below is a float of its own
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Sheet:
    """A table as it came; `lines` is what people call each row, where this is not 2, 3, 4 ..."""

    table: pa.Table
    name: str
    lines: NDArray[np.int64] | None = None
    notes: tuple[str, ...] = ()  # how it was read, where that was no matter of course

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def has(self, column: str) -> bool:
        return column in self.table.column_names

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.table.column_names)

    def parts(self) -> "Iterator[Sheet]":
        """All rows, as a table that is read in parts gives its own."""
        yield self

    def called(self, column: str | None) -> str | None:
        """What the sheet calls a column: case and blanks do not count; None where it has none."""
        return next((name for name in self.columns if column and folded(name) == folded(column)), None)

    def row(self, index: int) -> int:
        """What a spreadsheet calls a row."""
        return index + 2 if self.lines is None else int(self.lines[index])

    def where(self, keep: NDArray[np.bool_]) -> "Sheet":
        """Some of the rows, called as they are here."""
        lines = np.arange(self.rows) + 2 if self.lines is None else self.lines
        return replace(self, table=self.table.filter(pa.array(keep)), lines=lines[keep])

    def at(self, row: int, column: str) -> str:
        """How a message begins."""
        return f"{self.name}, row {self.row(row)}, column {column!r}"

    def refuse(self, column: str, wrong: NDArray[np.bool_], words: str | Callable[[int], str]) -> None:
        """An error that names the first row that is wrong; `words` may say what stands in it."""
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InputError(f"{self.at(row, column)}: {words if isinstance(words, str) else words(row)}")

    def array(self, column: str, instead: str = "; rename the column that is meant") -> pa.Array:
        """The cells of a column; `instead`: what to do where it is missing and no other looks like it."""
        if not self.has(column):
            some = ", ".join(map(shown, self.columns[:8])) + (" and more" if len(self.columns) > 8 else "")
            raise InputError(f"{self.name} has no column {column!r}; it has {some}{self._hint(str(column)) or instead}")
        return simple(self.table.column(column).combine_chunks())

    def _hint(self, column: str) -> str:
        """Where a column that is missing may be."""
        bare = {_bare(name): name for name in self.columns}
        if near := bare.get(_bare(column)) or next(iter(get_close_matches(column, self.columns, 1)), None):
            return f"; did you mean {near!r}? name it so, or rename the column"
        for at, row in enumerate(self.table.slice(0, 40).to_pylist()):
            if _bare(column) in {_bare(str(cell)) for cell in row.values()}:
                return f"; row {self.row(at)} holds {column!r}: use --skip {self.row(at) - 1}"
        return ""

    def texts(self, column: str, empty: bool = False) -> pa.Array:
        """Text, or whole numbers written as text; nothing missing unless `empty`."""
        array = self.array(column)
        kind = array.type
        if pa.types.is_null(kind):
            array = pa.nulls(len(array), pa.string())
        elif pa.types.is_integer(kind) or is_text(kind):
            array = array.cast(pa.string())
        elif pa.types.is_floating(kind) and array.null_count < len(array) and _whole(_floats(array.drop_null())).all():
            array = array.cast(pa.int64()).cast(pa.string())  # 1.0 beside an empty cell
        else:
            raise self._kind(column, "text or whole numbers", kind)
        array = pc.fill_null(array, "")
        if not empty:
            self.refuse(column, _empty(array), "is empty; expected a text or a number")
        self.refuse(column, flags(pc.match_substring(array, "\x00")), "holds a zero byte; expected a text or a number")
        return array

    def numbers(self, column: str, skip: NDArray[np.bool_] | None = None, instead: str = "") -> NDArray[np.float64]:
        """Finite numbers; NaN where `skip` (what stands there is not read). `instead`: what to do without a number."""
        array = self.array(column)
        if is_text(array.type):
            values = self._parse(array, column, skip, instead)
        elif is_numeric(array.type) or pa.types.is_decimal(array.type) or pa.types.is_null(array.type):
            values = _floats(array)
        else:
            raise self._kind(column, "numbers", array.type)
        bad = ~np.isfinite(values)
        if skip is not None:
            bad &= ~skip
            values = np.where(skip, np.nan, values)
        self.refuse(column, bad, lambda row: f"expected a finite number, got {_got(array[row].as_py())}{instead}")
        if pa.types.is_integer(array.type):
            words = "has more digits than a number can keep; write it as text, or with fewer digits"
            self.refuse(column, np.abs(np.nan_to_num(values)) >= EXACT, lambda row: f"{array[row].as_py()} {words}")
        return values

    def labels(self, column: str, skip: NDArray[np.bool_], instead: str = "") -> list[str | None]:
        """Names of classes as text without blanks around; the rest as for `numbers`."""
        array = self.array(column)
        if pa.types.is_floating(array.type):  # whole numbers beside a missing one
            value = np.where(skip, np.nan, _floats(array))
            wrong = ~(_whole(value) | np.isnan(value))
            self.refuse(column, wrong, lambda row: f"expected a label, got {value[row]:g}")
            array = pa.array(np.nan_to_num(value).astype(np.int64), mask=np.isnan(value))
        if pa.types.is_boolean(array.type) or pa.types.is_integer(array.type):
            array = array.cast(pa.string())
        if not is_text(array.type) and not pa.types.is_null(array.type):
            raise self._kind(column, "labels", array.type)
        found = [None if skip[row] else (text or "").strip() for row, text in enumerate(array.to_pylist())]
        for row, label in enumerate(found):
            if label is not None and (not label or label.lower() == "nan" or "\x00" in label or len(label) > 100):
                got = shown(array[row].as_py()) if label else f"an empty cell{instead}"
                raise InputError(f"{self.at(row, column)}: expected a label, a word or a number, got {got}")
        return found

    def blank(self, column: str) -> NDArray[np.bool_]:
        """Where nothing stands: an empty cell, a null or a NaN."""
        return _empty(self.array(column), nan=True)

    def looks_numeric(self, column: str) -> bool:
        """Numbers, or text of which at least half reads as numbers (the rest is then an error to point at)."""
        array = self.array(column)
        if not is_text(array.type):
            return not pa.types.is_null(array.type)
        filled = [v for v in _written(array[:1000]).to_pylist() if v]
        forms = (_NUMBER, _NOT_FINITE, _COMMA, _GROUPED)
        return 2 * sum(any(form.fullmatch(v) for form in forms) for v in filled) >= len(filled) > 0

    def _kind(self, column: str, expected: str, kind: pa.DataType) -> InputError:
        return InputError(
            f"{self.name}, column {column!r}: expected {expected}, got {in_words(kind)};"
            f" write it so, or leave the column out (of candidates: --ignore {column})"
        )

    def _parse(self, array: pa.Array, column: str, skip: NDArray[np.bool_] | None, instead: str) -> NDArray[np.float64]:
        array = _written(array)
        if skip is not None:
            array = pc.if_else(pa.array(skip), pa.scalar("0"), array)
        with suppress(pa.ArrowInvalid):
            values, head = _floats(array.cast(pa.float64())), array[:1000]
            doubtful = flags(pc.match_substring_regex(head, r"^[+-]?[1-9]\d{0,2}\.\d{3}$"))
            if doubtful.any() and (doubtful == flags(pc.match_substring(head, "."))).all() and self._commas(column):
                words = "it may be {:g} or {:g}, as other columns have decimal commas: write it so"
                self.refuse(column, doubtful, lambda row: words.format(values[row], 1000 * values[row]))
            return values
        texts = array.to_pylist()
        point = next((row for row, text in enumerate(texts) if "." in text and _number(text)), None)
        sure = any(_decimal_comma(text) and not _THOUSANDS.fullmatch(text) for text in texts)
        values = np.empty(len(array))
        for row, text in enumerate(texts):
            number, hint = text, ""
            if _decimal_comma(text):
                number = text.replace(",", ".")
                if point is not None:
                    hint = f"; row {self.row(point)} has a decimal point: write all numbers alike"
                elif _THOUSANDS.fullmatch(text) and not (sure or self._commas(column)):
                    hint = f"; it may be {number} or {text.replace(',', '')}: write it so"
            elif _GROUPED.fullmatch(text) and not _number(text):
                hint = "; write it without marks between thousands"
            if hint or not _number(number):
                alone = "; write the number alone, without a unit or another sign"
                hint = hint or (alone if any(map(str.isdigit, text)) else instead)
                raise InputError(f"{self.at(row, column)}: expected a number, got {_got(text)}{hint}")
            values[row] = float(number)
        return values

    def _commas(self, column: str) -> bool:
        """Whether other columns have decimal commas, and none has decimal points."""
        others = [self.array(name)[:1000] for name in self.columns if name != column]
        texts = [text for some in others if is_text(some.type) for text in _bare_texts(some).to_pylist()]
        if any("." in text and _number(text) for text in texts):
            return False
        return any(_decimal_comma(text) and not _THOUSANDS.fullmatch(text) for text in texts)


def checked(sheet: Sheet) -> Sheet:
    """A table with a distinct name for each column, and with rows. Columns and rows of nothing are left out."""
    sheet, name = _filled(sheet), sheet.name
    too_many(len(sheet.columns), name)
    seen: dict[str, int] = {}
    for at, column in enumerate(sheet.columns, 1):
        if not column:
            words = "name it, empty the whole column, or use --skip where the names stand in a lower row"
            raise InputError(f"{name}, row 1: column {at} has no name; {words}")
        if len(column) > LONGEST_NAME or "\x00" in column:
            words = "a zero byte" if "\x00" in column else f"more than {LONGEST_NAME} characters"
            raise InputError(f"{name}, row 1: the name of column {at} has {words}; choose a shorter one")
        if column in seen:
            raise InputError(f"{name}, row 1: columns {seen[column]} and {at} are both called {column!r}")
        seen[column] = at
    if sheet.rows == 0:
        raise InputError(f"{name} has column names but no rows; add one row per candidate or measurement")
    return sheet


def too_many(columns: int, name: str) -> None:
    if columns > MOST_COLUMNS:
        raise InputError(f"{name} has {columns:,} columns; at most {MOST_COLUMNS:,} can be read")


def _filled(sheet: Sheet) -> Sheet:
    """Without columns that have no name and no cell, and rows that have no cell: spreadsheets add both."""
    columns, names = sheet.table.columns, sheet.columns
    named = [bool(name) and not name.startswith("Unnamed: ") for name in names]  # as pandas calls such columns
    keep = [at for at, own in enumerate(named) if own or not (_empty(columns[at]).all() or _numbering(columns, at))]
    sheet = replace(sheet, table=sheet.table.select(keep))
    blank = np.full(sheet.rows, bool(keep))
    for column in sheet.table.columns:
        if blank.any():
            blank &= _empty(column)
    return sheet.where(~blank) if blank.any() else sheet


def _empty(column: pa.Array | pa.ChunkedArray, nan: bool = False) -> NDArray[np.bool_]:
    return flags(pc.equal(_bare_texts(column), "") if is_text(column.type) else pc.is_null(column, nan_is_null=nan))


def _bare_texts(array: pa.Array | pa.ChunkedArray) -> Any:
    """Texts without blanks around; nothing is missing."""
    return pc.utf8_trim_whitespace(pc.fill_null(array, ""))


def _written(array: pa.Array) -> Any:
    """Texts that may be numbers; a typeset minus is a minus."""
    return pc.replace_substring(_bare_texts(array), "\u2212", "-")


def _numbering(columns: Sequence[pa.ChunkedArray], at: int) -> bool:
    """Numbers of rows, which some programs put before the first column, once each time a table is written."""
    cells = (str(cell) for cell in columns[at].slice(0, 1000).to_pylist())
    return at < 4 and len(columns) > 1 and all(cell == str(row) for row, cell in enumerate(cells))


def flags(array: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Truth values as NumPy's."""
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=bool)


def _floats(array: pa.Array) -> NDArray[np.float64]:
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.float64)


def _got(cell: object) -> str:
    return "an empty cell" if cell in (None, "") else shown(cell)


def _number(text: str) -> bool:
    return _NUMBER.fullmatch(text.strip()) is not None


def _whole(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray((values == np.floor(values)) & (np.abs(values) < EXACT))


def _bare(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _decimal_comma(text: str) -> bool:
    return _COMMA.fullmatch(text.strip()) is not None
