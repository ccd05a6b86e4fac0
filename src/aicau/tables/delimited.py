"""Text with one row per line: between columns commas, semicolons, tabs or bars; in UTF-8, UTF-16 or Latin-1."""

import csv
import io
import re
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from aicau.core.errors import InputError
from aicau.core.files import reason
from aicau.tables.sheet import Sheet, too_many

MARKS = ",;\t|"  # that may stand between columns
SAMPLE = 1 << 16  # bytes that are looked at to find the mark
BLOCK = 1 << 24  # bytes that a row may have
_BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xff\xfe\x00\x00": "utf-32", b"\x00\x00\xfe\xff": "utf-32"}
_END = re.compile(rb"\r\n|\n|\r")


def read(data: bytes, name: str, skip: int = 0) -> Sheet:
    """A table of texts; `skip` lines stand above the column names."""
    data, notes = _decoded(data, name)
    ends = [match.end() for match in islice(_END.finditer(data), skip)]
    if len(ends) < skip:
        raise InputError(f"{name} has {len(ends) + 1} lines, and --skip {skip} leaves none of them")
    data, said = data[ends[-1] if ends else 0 :], None
    if found := re.match(rb"sep=([,;\t|])\r?\n", data):  # how a spreadsheet is told the mark
        data, said, skip = data[found.end() :], found[1].decode(), skip + 1
    try:
        header, mark = _header(data, name, said)
        table, rows = _table(data, name, skip, header, mark)
    except InputError as error:
        raise InputError(f"{error}{'' if skip else _title(data)}") from error
    return Sheet(table, name, lines=rows, notes=notes)


def _decoded(data: bytes, name: str) -> tuple[bytes, tuple[str, ...]]:
    """The text in UTF-8 without zero bytes and byte order mark."""
    try:
        if word := _BOMS.get(data[:4], _BOMS.get(data[:2])):
            data = data.decode(word).encode()
    except UnicodeError as error:
        raise InputError(f"{name} is not text in UTF-8 ({reason(error)}); save it as CSV in UTF-8") from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    at, words = data.find(b"\x00"), "holds a zero byte"
    if at < 0:
        try:
            data.decode()
            return data, ()
        except UnicodeDecodeError as error:
            at, words = error.start, "is not text in UTF-8"
            # Letters of Western Europe: none of the codes of other encodings, no three in a row, no UTF-8 among it.
            if not re.search(rb"[\x80-\x9f]|[\xa0-\xff]{3}|[\xc2-\xdf][\x80-\xbf]", data):
                note = "it was read as Latin-1 (Western European); if names such as µ or ü are wrong, save it in UTF-8"
                return data.decode("latin-1").encode(), (note,)
    quoted, begin = _patterns(",")
    before = begin.split(quoted.sub(b"x", b"\n" + data[:at]))[0]
    raise InputError(f"{name}, row {_lines(before)} {words}; save it as CSV in UTF-8")


def _header(data: bytes, name: str, said: str | None) -> tuple[list[str], str]:
    """Column names, and the mark between them."""
    text = data[: max(SAMPLE, data.find(b"\n") + 1)].decode(errors="ignore")
    lines = list(io.StringIO(text, newline=""))
    lines = lines if len(data) <= SAMPLE or len(lines) == 1 else lines[:-1]  # the last may be cut
    found: dict[str, list[list[str]]] = {}
    wrong = ""
    for mark in said or MARKS:
        found[mark] = []
        try:
            found[mark].extend(islice(filter(None, csv.reader(lines, delimiter=mark)), 200))
        except csv.Error as error:
            wrong = reason(error)
    several = [mark for mark in found if found[mark] and len(found[mark][0]) > 1]
    even = [mark for mark in several if len({len(row) for row in found[mark]}) == 1 and len(found[mark]) > 1]
    if len(even) > 1:
        words = " and ".join(map(repr, even))
        raise InputError(f"{name}, row 1: columns may be separated by {words}; put names that hold a mark in quotes")
    mark = next(iter(even or several), said or ",")
    if not found[mark] and wrong:
        raise InputError(f"{name}, row 1: not a line of column names ({wrong})")
    names = next(iter(found[mark]), [])
    if not any(names):
        raise InputError(f"{name} is empty; expected a line of column names and then one line per row")
    too_many(len(names), name)
    if len(names) == 1 and said is None and _title(data):
        raise InputError(f"{name}, row 1 holds one column name, and rows below hold more columns")
    return [n.strip() for n in names], mark


def _title(data: bytes) -> str:
    """A hint to use --skip if the first lines look like those of an instrument."""
    lines = data[:SAMPLE].decode(errors="ignore").splitlines()[:60]
    widths = [max(line.count(mark) for mark in MARKS) for line in lines]
    most = max(widths, default=0)
    if widths and widths[0] < most and widths.count(most) > 1:
        return f"; if the column names stand in row {widths.index(most) + 1}, use --skip {widths.index(most)}"
    return ""


def _table(data: bytes, name: str, skip: int, header: list[str], mark: str) -> tuple[pa.Table, NDArray[np.int64]]:
    rows = _rows(data, name, mark, skip)
    bad: list[tuple[int, int, int]] = []

    def remember(row: Any) -> str:
        bad.append((row.number, row.expected_columns, row.actual_columns))
        return "error"

    positions = [str(i) for i in range(len(header))]
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(data),
            pa_csv.ReadOptions(column_names=positions, skip_rows=0, use_threads=False, block_size=BLOCK),
            pa_csv.ParseOptions(delimiter=mark, newlines_in_values=True, invalid_row_handler=remember),
            pa_csv.ConvertOptions(column_types=dict.fromkeys(positions, pa.string()), strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        if bad:
            number, expected, got = bad[0]
            raise InputError(
                f"{name}, row {rows[number - 1]}: expected {expected} columns as in the header, got {got};"
                " is there one mark between columns, another for decimals, and every quote closed?"
            ) from error
        words = "a row is longer than 16 MB" if "straddling" in str(error) else reason(error)
        raise InputError(f"{name} cannot be read: {words}; save it as CSV in UTF-8") from error
    return pa.table(table.slice(1).columns, names=header), rows[1:]


def _patterns(mark: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """A whole cell in quotes, after a line end; and where one begins."""
    end = re.escape(mark.encode()) + rb"\r\n"
    begin = rb'"(?<=[' + end + rb']")'
    return re.compile(begin + rb'[^"]*(?:""[^"]*)*"(?=[' + end + rb"]|\Z)"), re.compile(begin)


def _rows(data: bytes, name: str, mark: str, skip: int) -> NDArray[np.int64]:
    """The spreadsheet's row numbers of the header and of every row that is not blank."""
    quoted, begin = _patterns(mark)
    bare = b"\n" + data
    if b'"' in data:
        bare = quoted.sub(b"x", bare)
    if wrong := begin.search(bare):
        raise InputError(
            f"{name}, row {skip + _lines(bare[: wrong.start()])}: a quote is not closed at the end of its cell;"
            ' write a quote inside a cell twice, as in "5"" plate"'
        )
    if b"\r" in data:
        bare = bare.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    ends = np.flatnonzero(np.frombuffer(bare + b"\n", np.uint8) == ord("\n"))
    return skip + 1 + np.flatnonzero(np.diff(ends) > 1)


def _lines(data: bytes) -> int:
    """How many line ends there are."""
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
