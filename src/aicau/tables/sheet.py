"""A table as people gave it: its columns as text, numbers or labels.

An error names the first wrong row and its column. Rows have the numbers a spreadsheet shows: the header is row 1.
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
_NO_LABEL = r"(?is)^(nan)?$|\x00|.{101}"  # empty, not a number, with a zero byte, or longer than 100 characters
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Sheet:
    """A table as it was read; `lines` are the numbers of its rows where they are not 2, 3, 4 ..."""

    table: pa.Table
    name: str
    lines: NDArray[np.int64] | None = None
    notes: tuple[str, ...] = ()  # what the reader guessed

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def has(self, column: str) -> bool:
        return column in self.table.column_names

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.table.column_names)

    def parts(self) -> "Iterator[Sheet]":
        """The whole table, so that it can be read as `Parts` are."""
        yield self

    def called(self, column: str | None) -> str | None:
        """The name of a column in this table, which may differ in case and blanks; None if there is none."""
        return next((name for name in self.columns if column and folded(name) == folded(column)), None)

    def row(self, index: int) -> int:
        """The number that a spreadsheet shows for a row."""
        return index + 2 if self.lines is None else int(self.lines[index])

    def where(self, keep: NDArray[np.bool_]) -> "Sheet":
        """Some of the rows, with the numbers they have here."""
        lines = np.arange(self.rows) + 2 if self.lines is None else self.lines
        return replace(self, table=self.table.filter(pa.array(keep)), lines=lines[keep])

    def at(self, row: int, column: str) -> str:
        """The beginning of a message about a cell."""
        return f"{self.name}, row {self.row(row)}, column {column!r}"

    def refuse(self, column: str, wrong: NDArray[np.bool_], words: str | Callable[[int], str]) -> None:
        """Raise an error about the first wrong row, if there is one; `words` may depend on the row."""
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InputError(f"{self.at(row, column)}: {words if isinstance(words, str) else words(row)}")

    def array(
        self, column: str, instead: str = "; rename the column that is meant", optional: bool = False
    ) -> pa.Array:
        """The cells of a column; where it is missing an error (`instead` says what to do), or nulls if `optional`."""
        if self.has(column):
            return simple(self.table.column(column).combine_chunks())
        if optional:
            return pa.nulls(self.rows)
        some = ", ".join(map(shown, self.columns[:8])) + (" and more" if len(self.columns) > 8 else "")
        raise InputError(f"{self.name} has no column {column!r}; it has {some}{self._hint(str(column)) or instead}")

    def _hint(self, column: str) -> str:
        """Which column, or which row with column names, may be meant by a name that is missing."""
        bare = {_bare(name): name for name in self.columns}
        if near := bare.get(_bare(column)) or next(iter(get_close_matches(column, self.columns, 1)), None):
            return f"; did you mean {near!r}? name it so, or rename the column"
        for at, row in enumerate(self.table.slice(0, 40).to_pylist()):
            if _bare(column) in {_bare(str(cell)) for cell in row.values()}:
                return f"; row {self.row(at)} holds {column!r}: use --skip {self.row(at) - 1}"
        return ""

    def texts(self, column: str, empty: bool = False) -> pa.Array:
        """Text, or whole numbers written as text. With `empty` cells, or the whole column, may be missing."""
        array = self.array(column, optional=empty)
        kind = array.type
        if pa.types.is_null(kind) or pa.types.is_integer(kind) or is_text(kind):
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
        """Finite numbers; NaN in rows to `skip`. `instead` says what to do about a cell without a number."""
        array = self.array(column, optional=skip is not None and bool(skip.all()))
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
        """Names of classes without blanks around; None in rows to `skip`."""
        array = self.array(column, optional=bool(skip.all()))
        if pa.types.is_floating(array.type):  # whole numbers beside a missing one
            value = np.where(skip, np.nan, _floats(array))
            wrong = ~(_whole(value) | np.isnan(value))
            self.refuse(column, wrong, lambda row: f"expected a label, got {value[row]:g}")
            array = pa.array(np.nan_to_num(value).astype(np.int64), mask=np.isnan(value))
        if not (is_text(array.type) or is_numeric(array.type) or pa.types.is_null(array.type)):
            raise self._kind(column, "labels", array.type)
        texts = _bare_texts(array.cast(pa.string()))
        wrong = ~skip & flags(pc.match_substring_regex(texts, _NO_LABEL))
        words = "expected a label, a word or a number, got"
        self.refuse(column, wrong, lambda row: f"{words} {_got(array[row].as_py())}{instead}")
        return [None if skipped else text for skipped, text in zip(skip.tolist(), texts.to_pylist(), strict=True)]

    def blank(self, column: str) -> NDArray[np.bool_]:
        """Which cells are empty, null or NaN: all of them where the column is missing."""
        return _empty(self.array(column, optional=True), nan=True)

    def looks_numeric(self, column: str) -> bool:
        """Whether a column holds numbers, or text of which at least half reads as numbers."""
        array = self.array(column)
        if not is_text(array.type):
            return not pa.types.is_null(array.type)
        filled = list(filter(None, _written(array[:1000]).to_pylist()))
        forms = (_NUMBER, _NOT_FINITE, _COMMA, _GROUPED)
        return 2 * sum(any(form.fullmatch(text) for form in forms) for text in filled) >= len(filled) > 0

    def _kind(self, column: str, expected: str, kind: pa.DataType) -> InputError:
        words = f"write it so, or leave the column out (of candidates: --ignore {column})"
        return InputError(f"{self.name}, column {column!r}: expected {expected}, got {in_words(kind)}; {words}")

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
        point = next((row for row, text in enumerate(texts) if "." in text and _NUMBER.fullmatch(text)), None)
        sure = any(map(_decimal_comma, texts)) or self._commas(column)
        values = np.empty(len(array))
        for row, text in enumerate(texts):
            number, hint = text, ""
            if _COMMA.fullmatch(text):
                number = text.replace(",", ".")
                if point is not None:
                    hint = f"; row {self.row(point)} has a decimal point: write all numbers alike"
                elif not sure:
                    hint = f"; it may be {number} or {text.replace(',', '')}: write it so"
            elif _GROUPED.fullmatch(text) and not _NUMBER.fullmatch(text):
                hint = "; write it without marks between thousands"
            if hint or not _NUMBER.fullmatch(number):
                alone = "; write the number alone, without a unit or another sign"
                hint = hint or (alone if any(map(str.isdigit, text)) else instead)
                raise InputError(f"{self.at(row, column)}: expected a number, got {_got(text)}{hint}")
            values[row] = float(number)
        return values

    def _commas(self, column: str) -> bool:
        """Whether other columns have decimal commas, and none has decimal points."""
        others = [self.array(name)[:1000] for name in self.columns if name != column]
        texts = [text for some in others if is_text(some.type) for text in _bare_texts(some).to_pylist()]
        return any(map(_decimal_comma, texts)) and not any("." in text and _NUMBER.fullmatch(text) for text in texts)


def checked(sheet: Sheet) -> Sheet:
    """The table without empty columns and rows; an error where a column has no name of its own, or no row is left."""
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
    """The table without the empty rows and the unnamed empty columns that spreadsheets add."""
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
    """Texts without blanks around; an empty text for a missing one."""
    return pc.utf8_trim_whitespace(pc.fill_null(array, ""))


def _written(array: pa.Array) -> Any:
    """Texts that may be numbers; a typeset minus is a minus."""
    return pc.replace_substring(_bare_texts(array), "\u2212", "-")


def _numbering(columns: Sequence[pa.ChunkedArray], at: int) -> bool:
    """Whether a column holds the numbers of the rows, which some programs put first, once for each time they write."""
    cells = (str(cell) for cell in columns[at].slice(0, 1000).to_pylist())
    return at < 4 and len(columns) > 1 and all(cell == str(row) for row, cell in enumerate(cells))


def flags(array: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Truth values as a NumPy array."""
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=bool)


def _floats(array: pa.Array) -> NDArray[np.float64]:
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.float64)


def _got(cell: object) -> str:
    return "an empty cell" if cell is None or not str(cell).strip() else shown(cell)


def _whole(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray((values == np.floor(values)) & (np.abs(values) < EXACT))


def _bare(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _decimal_comma(text: str) -> bool:
    """Whether a comma in a number can only be a decimal one: 1,5 but not 1,500."""
    return bool(_COMMA.fullmatch(text)) and not _THOUSANDS.fullmatch(text)
