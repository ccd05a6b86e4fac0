"""A table as people gave it: columns as text, numbers or labels, with the row and the column of the first thing that
cannot be meant.

A row is called by the number a spreadsheet shows: the header is row 1.
"""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aicau.core.errors import InputError, shown
from aicau.core.files import short

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
EXACT = 2**53  # every whole number below is a float of its own
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Sheet:
    """A table as it came; `first` is what people call its first row, `lines` what they call each one, if blank lines
    stand between them."""

    table: pa.Table
    name: str
    first: int = 2
    lines: NDArray[np.int64] | None = None

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def has(self, column: str) -> bool:
        return column in self.table.column_names

    def row(self, index: int) -> int:
        """What a spreadsheet calls a row."""
        return index + self.first if self.lines is None else int(self.lines[index])

    def at(self, row: int, column: str) -> str:
        """How a message begins."""
        return f"{self.name}, row {self.row(row)}, column {column!r}"

    def array(self, column: str) -> pa.Array:
        if not self.has(column):
            names = self.table.column_names
            some = ", ".join(shown(n) for n in names[:8]) + (" and more" if len(names) > 8 else "")
            raise InputError(f"{self.name} has no column {column!r}; it has {some}")
        return _simple(self.table.column(column).combine_chunks())

    def texts(self, column: str, empty: bool = False) -> pa.Array:
        """Text, or whole numbers written as text; nothing missing unless `empty`."""
        array = self.array(column)
        kind = array.type
        if pa.types.is_null(kind):
            array = pa.nulls(len(array), pa.string())
        elif pa.types.is_integer(kind) or is_text(kind):
            array = array.cast(pa.string())
        else:
            raise self._kind(column, "text or whole numbers", kind)
        array = pc.fill_null(array, "")
        for words, bad in (("is empty", pc.equal(array, "")), ("holds a zero byte", pc.match_substring(array, "\x00"))):
            where = pc.index(bad, True).as_py()
            if where >= 0 and not (empty and words == "is empty"):
                raise InputError(f"{self.at(where, column)}: {words}; expected a text or a number")
        return array

    def numbers(self, column: str, skip: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
        """Finite numbers; NaN where `skip` (what stands there is not read)."""
        array = self.array(column)
        if is_text(array.type):
            values = self._parse(array, column, skip)
        elif is_numeric(array.type) or pa.types.is_decimal(array.type) or pa.types.is_null(array.type):
            values = _floats(array)
        else:
            raise self._kind(column, "numbers", array.type)
        bad = ~np.isfinite(values)
        if skip is not None:
            bad &= ~skip
            values = np.where(skip, np.nan, values)
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(f"{self.at(row, column)}: expected a finite number, got {shown(array[row].as_py())}")
        if pa.types.is_integer(array.type) and (huge := np.abs(np.nan_to_num(values)) >= EXACT).any():
            row = int(np.argmax(huge))
            raise InputError(
                f"{self.at(row, column)}: {array[row].as_py()} has more digits than a number can keep;"
                " write it as text, or with fewer digits"
            )
        return values

    def labels(self, column: str, skip: NDArray[np.bool_]) -> list[str | None]:
        """Names of classes as text without blanks around; None where `skip` (what stands there is not read)."""
        array = self.array(column)
        if pa.types.is_floating(array.type):  # whole numbers beside a missing one
            value = np.where(skip, np.nan, _floats(array))
            whole = np.nan_to_num(value, nan=0, posinf=np.inf, neginf=-np.inf)
            if (wrong := (whole != np.floor(whole)) | (np.abs(whole) >= EXACT)).any():
                row = int(np.argmax(wrong))
                raise InputError(f"{self.at(row, column)}: expected a label, got {value[row]:g}")
            array = pa.array(whole.astype(np.int64), mask=np.isnan(value))
        if pa.types.is_boolean(array.type) or pa.types.is_integer(array.type):
            array = array.cast(pa.string())
        if not is_text(array.type) and not pa.types.is_null(array.type):
            raise self._kind(column, "labels", array.type)
        found: list[str | None] = []
        for row, text in enumerate(array.to_pylist()):
            label = None if skip[row] else (text or "").strip()
            if label is not None and (not label or label.lower() == "nan" or "\x00" in label or len(label) > 100):
                got = shown(text) if label else "an empty cell"
                raise InputError(f"{self.at(row, column)}: expected a label, a word or a number, got {got}")
            found.append(label)
        return found

    def blank(self, column: str) -> NDArray[np.bool_]:
        """Where nothing stands: an empty cell, a null or a NaN."""
        array = self.array(column)
        if is_text(array.type):
            array = pc.equal(pc.utf8_trim_whitespace(pc.fill_null(array, "")), "")
        else:
            array = pc.is_null(array, nan_is_null=True)
        return np.asarray(array.to_numpy(zero_copy_only=False), dtype=bool)

    def looks_numeric(self, column: str) -> bool:
        """Numbers, or text of which at least half reads as numbers (the rest is then an error to point at)."""
        array = self.array(column)
        if not is_text(array.type):
            return not pa.types.is_null(array.type)
        filled = [v for v in pc.fill_null(array[:1000], "").to_pylist() if v.strip()]
        likely = [v for v in filled if _number(v) or _NOT_FINITE.fullmatch(v.strip()) or _decimal_comma(v)]
        return 2 * len(likely) >= len(filled) and bool(filled)

    def _kind(self, column: str, expected: str, kind: pa.DataType) -> InputError:
        return InputError(
            f"{self.name}, column {column!r}: expected {expected}, got {short(kind, 60)};"
            " write it so, or leave the column out"
        )

    def _parse(self, array: pa.Array, column: str, skip: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        array = pc.utf8_trim_whitespace(pc.fill_null(array, ""))
        if skip is not None:
            array = pc.if_else(pa.array(skip), pa.scalar("0"), array)
        try:
            return _floats(array.cast(pa.float64()))
        except pa.ArrowInvalid:
            pass
        values = np.empty(len(array))
        for row, text in enumerate(array.to_pylist()):
            if not _number(text):
                hint = "; write numbers with a decimal point" if _decimal_comma(text) else ""
                got = "an empty cell" if text == "" else shown(text)
                raise InputError(f"{self.at(row, column)}: expected a number, got {got}{hint}")
            values[row] = float(text)
        return values


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Numbers and text as they are, anything else (dates, lists, bytes ...) as text: every kind of file can hold it."""
    array = _simple(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)
    kind = array.type
    if pa.types.is_float16(kind):
        return array.cast(pa.float32())
    if is_text(kind) or pa.types.is_null(kind) or (is_numeric(kind) and not pa.types.is_uint64(kind)):
        return array  # a DataFrame with an empty cell loses digits of uint64
    # A cast knows more dates than Python has, but not what a list, a duration or an extension means.
    by_value = pa.types.is_nested(kind) or pa.types.is_duration(kind) or isinstance(kind, pa.BaseExtensionType)
    for way in (_written, _cast) if by_value else (_cast, _written):
        try:
            return way(array)
        except (pa.ArrowException, ValueError, OverflowError):
            continue
    raise InputError(f"cells of type {short(kind, 60)} cannot be written as text")


def _cast(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


def _written(array: pa.Array) -> pa.Array:
    values = array.to_pylist()
    return pa.array([None if v is None else v.hex() if isinstance(v, bytes) else str(v) for v in values], pa.string())


def _simple(array: pa.Array) -> pa.Array:
    """The values behind dictionaries, runs and views."""
    while True:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        elif pa.types.is_string_view(array.type):
            array = array.cast(pa.string())
        else:
            return array


def _floats(array: pa.Array) -> NDArray[np.float64]:
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.float64)


def _number(text: str) -> bool:
    return _NUMBER.fullmatch(text.strip()) is not None


def _decimal_comma(text: str) -> bool:
    return text.count(",") == 1 and _number(text.replace(",", "."))
