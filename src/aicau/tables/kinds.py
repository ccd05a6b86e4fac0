"""Arrow arrays: what is text, what is a number, and how anything else becomes one or the other."""

from contextlib import suppress
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from aicau.core.errors import InputError
from aicau.core.files import reason, short


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def in_words(kind: pa.DataType) -> str:
    """A plain name for cells of a type."""
    if pa.types.is_temporal(kind):
        return "dates or times"
    if pa.types.is_floating(kind):
        return "numbers with decimals"
    return "true or false" if pa.types.is_boolean(kind) else short(kind, 60)


def plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Numbers and text as they are, anything else (dates, lists, bytes ...) as text: every kind of file can hold it."""
    array = simple(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array)
    kind = array.type
    if pa.types.is_float16(kind):
        return array.cast(pa.float32())
    if is_text(kind) or pa.types.is_null(kind) or (is_numeric(kind) and not pa.types.is_uint64(kind)):
        return array  # a DataFrame with an empty cell loses digits of uint64
    # A cast knows more dates than Python has, but not what a list, a duration or an extension means.
    by_value = pa.types.is_nested(kind) or pa.types.is_duration(kind) or isinstance(kind, pa.BaseExtensionType)
    for cast in (not by_value, by_value):
        with suppress(pa.ArrowException, ValueError, OverflowError):
            if cast:
                return array.cast(pa.string())
            words = [v.hex() if isinstance(v, bytes) else None if v is None else str(v) for v in array.to_pylist()]
            return pa.array(words, pa.string())
    raise InputError(f"cells of type {short(kind, 60)} cannot be written as text")


def simple(array: pa.Array) -> pa.Array:
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


def cells(series: "pd.Series[Any]", where: str) -> pa.Array:
    """A column; as text where types are mixed; complex numbers as pairs, so that they are no category."""
    with suppress(pa.ArrowException, OverflowError, UnicodeError):
        array = pa.array(series, from_pandas=True)
        if not isinstance(array.type, pa.BaseExtensionType):  # periods, intervals ...
            return array
    try:
        if any(isinstance(value, complex) for value in series):
            return pa.array([{"real": complex(v).real, "imaginary": complex(v).imag} for v in series])
        return pa.array([None if missing else str(v) for v, missing in zip(series, series.isna(), strict=True)])
    except (UnicodeError, TypeError, ValueError) as error:
        raise InputError(f"{where} cannot be read: {reason(error)}") from error


def made_a_date(names: pa.ChunkedArray) -> int | None:
    """Where a date and time stands among other names, as a spreadsheet makes one of SEP1; None where all are dates."""
    dates = pc.match_substring_regex(names, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
    return pc.index(dates, True).as_py() if pc.any(dates).as_py() and not pc.all(dates).as_py() else None
