"""A table as people gave it: columns as text, numbers or labels, with the row and the column of the first thing that
cannot be meant.

A row is called by the number a spreadsheet shows: the header is row 1.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aicau.core.errors import InputError

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True)
class Sheet:
    """A table as it came; `first` is what people call its first row."""

    table: pa.Table
    name: str
    first: int = 2

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def has(self, column: str) -> bool:
        return column in self.table.column_names

    def at(self, row: int, column: str) -> str:
        """How a message begins."""
        return f"{self.name}, row {row + self.first}, column {column!r}"

    def array(self, column: str) -> pa.Array:
        if not self.has(column):
            names = self.table.column_names
            shown = ", ".join(repr(n) for n in names[:8]) + (" and more" if len(names) > 8 else "")
            raise InputError(f"{self.name} has no column {column!r}; it has {shown}")
        whole = self.table.column(column).combine_chunks()
        if pa.types.is_dictionary(whole.type):
            whole = whole.cast(whole.type.value_type)
        return whole

    def texts(self, column: str, empty: bool = False) -> pa.Array:
        """Text, or whole numbers written as text; nothing missing unless `empty`."""
        array = self.array(column)
        kind = array.type
        if pa.types.is_null(kind):
            array = pa.nulls(len(array), pa.string())
        elif pa.types.is_integer(kind) or is_text(kind):
            array = array.cast(pa.string())
        else:
            raise InputError(f"{self.name}, column {column!r}: expected text or whole numbers, got {kind}")
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
        elif pa.types.is_floating(array.type) or pa.types.is_integer(array.type) or pa.types.is_decimal(array.type):
            values = _floats(array)
        elif pa.types.is_boolean(array.type):
            values = _floats(array.cast(pa.int8()))
        elif pa.types.is_null(array.type):
            values = np.full(len(array), np.nan)
        else:
            raise InputError(f"{self.name}, column {column!r}: expected numbers, got {array.type}")
        bad = ~np.isfinite(values)
        if skip is not None:
            bad &= ~skip
            values = np.where(skip, np.nan, values)
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(f"{self.at(row, column)}: expected a finite number, got {_shown(array[row].as_py())}")
        return values

    def labels(self, column: str, skip: NDArray[np.bool_]) -> list[str | None]:
        """Names of classes as text without blanks around; None where `skip` (what stands there is not read)."""
        array = self.array(column)
        if pa.types.is_floating(array.type):  # whole numbers beside a missing one
            whole = np.nan_to_num(_floats(array), posinf=0.5)
            if (wrong := (whole != np.floor(whole)) & ~skip).any():
                row = int(np.argmax(wrong))
                raise InputError(f"{self.at(row, column)}: expected a label, got {_shown(array[row].as_py())}")
            array = pc.if_else(pc.is_null(array, nan_is_null=True), None, array).cast(pa.int64(), safe=False)
        if pa.types.is_boolean(array.type) or pa.types.is_integer(array.type):
            array = array.cast(pa.string())
        if not is_text(array.type) and not pa.types.is_null(array.type):
            raise InputError(f"{self.name}, column {column!r}: expected labels, got {array.type}")
        found: list[str | None] = []
        for row, text in enumerate(array.to_pylist()):
            label = None if skip[row] else (text or "").strip()
            if label is not None and (not label or label.lower() == "nan" or "\x00" in label or len(label) > 100):
                got = _shown(text) if label else "an empty cell"
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
                got = "an empty cell" if text == "" else _shown(text)
                raise InputError(f"{self.at(row, column)}: expected a number, got {got}{hint}")
            values[row] = float(text)
        return values


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _floats(array: pa.Array) -> NDArray[np.float64]:
    return np.array(pc.fill_null(array.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False), dtype=np.float64)


def _number(text: str) -> bool:
    return _NUMBER.fullmatch(text.strip()) is not None


def _decimal_comma(text: str) -> bool:
    return text.count(",") == 1 and _number(text.replace(",", "."))


def _shown(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 60 else words[:57] + "..."
