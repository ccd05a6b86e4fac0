"""Files as laboratories have them: each is read right, or refused with a sentence that names the cure.

The truth is three wells of plate P1: 00117 has 1.5, 00118 has 2.25 and x-1 failed, or as said beside a file.
"""

import datetime
import io
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pytest

from aicau import tables
from aicau.core.errors import InputError
from aicau.tables import candidates, results

IDS = pa.array(["00117", "00118", "x-1", "Ünit 5", "7", "1e5"])
TRUTH = [("00117", 1.5, "P1"), ("00118", 2.25, "P1"), ("x-1", None, "P1")]
HEADER = ["well_id", "signal", "plate", "status"]
ROWS = [["00117", "1.5", "P1", ""], ["00118", "2.25", "P1", ""], ["x-1", "", "P1", "failed"]]


def text(rows=ROWS, header=HEADER, mark=",", end="\n", comma=False):
    cells = [[cell.replace(".", ",") if comma and at == 1 else cell for at, cell in enumerate(row)] for row in rows]
    return end.join(mark.join(row) for row in [header, *cells]) + end


def with_cell(row, column, value):
    rows = [list(one) for one in ROWS]
    rows[row][column] = value
    return rows


def book(*sheets, change=None):
    """A workbook: (title, rows) for each sheet, rows of Python values."""
    made = openpyxl.Workbook()
    made.remove(made.active)
    for title, rows in sheets:
        sheet = made.create_sheet(title)
        for row in rows:
            sheet.append(row)
    if change is not None:
        change(made)
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


NUMBERS = [HEADER, ["00117", 1.5, "P1", None], ["00118", 2.25, "P1", None], ["x-1", None, "P1", "failed"]]


def formatted(made):
    """Ids as numbers that are shown with zeros."""
    for row, number in ((2, 117), (3, 118)):
        made.active.cell(row, 1).value = number
        made.active.cell(row, 1).number_format = "00000"


def trailing(made):
    """What a spreadsheet leaves: formats without a value, far away."""
    made.active.cell(200, 30).number_format = "0.00"
    made.active.cell(40, 7).value = ""


def percentages(*cells):
    def change(made):
        for cell in cells:
            made.active[cell].number_format = "0.0%"

    return change


def hidden(made):
    made["old"].sheet_state = "hidden"


def unsaved(made):
    made.active["B2"] = "=3/2"


def bomb():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(60_000_000))
    return out.getvalue()


def archive():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("results.csv", text())
    return out.getvalue()


TITLE = "Reader 5.1\nUser;ada\n\n"
READ = {
    "commas": text(),
    "semicolons": text(mark=";"),
    "semicolons and decimal commas": text(mark=";", comma=True),
    "tabs": text(mark="\t"),
    "tabs and decimal commas": text(mark="\t", comma=True),
    "bars": text(mark="|"),
    "decimal commas in quotes": text([[r[0], f'"{r[1]}"' if r[1] else "", *r[2:]] for r in ROWS], comma=True),
    "windows line ends": text(end="\r\n"),
    "old mac line ends": text(end="\r"),
    "byte order mark": "\ufeff" + text(mark=";", comma=True),
    "utf-16 of a spreadsheet": text(mark="\t").encode("utf-16"),
    "sep= line": "sep=;\r\n" + text(mark=";", end="\r\n"),
    "latin-1": (
        text([*ROWS, ["Ünit 5", "3", "P1", ""]]).encode("latin-1"),
        [*TRUTH, ("Ünit 5", 3.0, "P1")],
    ),
    "empty columns at the end": "\n".join(line + ",,," for line in text().splitlines()) + "\n",
    "empty rows at the end": text() + ",,,\n,,,\n\n",
    "an empty row in the middle": text([ROWS[0], ["", "", "", ""], *ROWS[1:]]),
    "lines of an instrument": (TITLE + text(mark=";"), TRUTH, {"skip": 3}),
    "zeros kept by a formula": text([[f'="{row[0]}"', *row[1:]] for row in ROWS]),
    "zeros kept by a quoted formula": text([[f'"=""{row[0]}"""', *row[1:]] for row in ROWS]),
    "names in other case": text(header=["Well_ID", "SIGNAL", " Plate", "Status "]),
    "blanks around ids and plates": text([[f" {row[0]} ", row[1], f" {row[2]}", row[3]] for row in ROWS]),
    "letters as macOS encodes them": (text([["U\u0308nit 5", "3", "P1", ""]]), [("Ünit 5", 3.0, "P1")]),
    "scientific numbers": text(with_cell(0, 1, "15E-1")),
    "a typeset minus": (
        text([["7", "\u22121.5", "P1", ""], ["7", "\u22122.25", "P1", ""]]),
        [("7", -1.5, "P1"), ("7", -2.25, "P1")],
    ),
    "a comma that can only be a decimal one": text(with_cell(0, 1, "1,500"), mark=";", comma=True),
    "other columns": text([[*row, "x"] for row in ROWS], [*HEADER, "note"]),
    "another order": text([row[::-1] for row in ROWS], HEADER[::-1]),
    "numbers of rows before the first column": text([[str(at), *row] for at, row in enumerate(ROWS)], ["", *HEADER]),
    "quoted cells": text([[f'"{cell}"' for cell in row] for row in ROWS], mark=";"),
    "a template with rows not filled in": text([*ROWS, ["7", "", "", ""]]),
    "excel": book(("Sheet1", NUMBERS)),
    "excel with text numbers": book(("Sheet1", [HEADER, *ROWS])),
    "excel with decimal commas as text": book(
        ("Sheet1", [HEADER, ["00117", "1,5", "P1", ""], ["00118", "2,25", "P1", ""], ["x-1", "", "P1", "failed"]])
    ),
    "excel, ids shown with zeros": book(("Sheet1", NUMBERS), change=formatted),
    "excel, formats far away": book(("Sheet1", NUMBERS), change=trailing),
    "excel, one of several sheets": (book(("read me", [["hello"]]), ("data", NUMBERS)), TRUTH, {"sheet": "data"}),
    "excel, an empty sheet before": book(("empty", []), ("data", NUMBERS)),
    "excel, a hidden sheet": book(("data", NUMBERS), ("old", [["x"]]), change=hidden),
    "excel, lines of an instrument": (book(("S", [["Reader 5.1"], [], ["ada"], *NUMBERS])), TRUTH, {"skip": 3}),
    "excel, an empty row in the middle": book(("S", [*NUMBERS[:2], [], *NUMBERS[2:]])),
    "excel, plates and ids as numbers": (
        book(("S", [HEADER, [7, 3, 1, None], [7, 4.5, 1.0, None]])),
        [("7", 3.0, "1"), ("7", 4.5, "1")],
    ),
    "excel, all results as percentages": book(("S", NUMBERS), change=percentages("B2", "B3")),
    "excel, days as plates": (
        book(("S", [HEADER, ["7", 3, datetime.date(2026, 5, 1), None], ["7", 4, datetime.datetime(2026, 5, 2), None]])),
        [("7", 3.0, "2026-05-01"), ("7", 4.0, "2026-05-02")],
    ),
    "a frame with days as plates": (
        pd.DataFrame({"well_id": [7, 7], "signal": [3.0, 4.0], "plate": pd.to_datetime(["2026-05-01", "2026-05-02"])}),
        [("7", 3.0, "2026-05-01"), ("7", 4.0, "2026-05-02")],
    ),
    "a frame with a missing number": (
        pd.DataFrame({"well_id": [7, 7], "signal": [3.0, np.nan], "plate": [1.0, 2.0], "status": ["", "failed"]}),
        [("7", 3.0, "1"), ("7", None, "2")],
    ),
}
REFUSED = {
    "ids without their zeros": (text(with_cell(0, 0, "117")), "'00117' is one: a spreadsheet took its zeros away"),
    "ids with a decimal": (text(with_cell(0, 0, "117.0")), "'00117' is one: write it so"),
    "excel, ids without their zeros": (book(("S", [HEADER, [117, 1.5, "P1", None]])), "took its zeros away"),
    "an id in another case": (text(with_cell(2, 0, "X-1")), "row 4, column 'well_id': 'X-1' .* did you mean 'x-1'"),
    "an id that a spreadsheet took for a number": (text(with_cell(2, 0, "1.00E+05")), "did you mean '1e5'"),
    "an unknown id": (text(with_cell(2, 0, "q")), "'q' is not the id of a candidate; add it with 'aicau add' if"),
    "a name with a blank": (text(header=["Well ID", *HEADER[1:]]), "no column 'well_id'; .* did you mean 'Well ID'"),
    "a name with a slip": (
        text(header=["well_id", "signl", *HEADER[2:]]),
        "did you mean 'signl'. name it so, or rename",
    ),
    "1,234": (text(with_cell(0, 1, "1,234"), mark=";"), "row 3 has a decimal point: write all numbers alike"),
    "only 1,234": (
        text([["00117", "1,234", "P1", ""], ["00118", "2,345", "P1", ""]], mark=";"),
        "row 2, column 'signal': .*'1,234'; it may be 1.234 or 1234: write it so",
    ),
    "1.234,5": (text(with_cell(0, 1, "1.234,5"), mark=";"), "write it without marks between thousands"),
    "1 234,5": (text(with_cell(0, 1, "1 234,5"), mark=";"), "write it without marks between thousands"),
    "decimal commas between commas": (text(comma=True), "row 2: expected 4 columns as in the header, got 5"),
    "two marks": (
        text(header=["well_id", "signal, AU", "plate", "status"], mark=";", comma=True),
        "no column 'signal'",
    ),
    "two marks that both fit": ("well_id;signal, AU\n00117;1,5\n", "columns may be separated by ',' and ';'"),
    "an instrument's lines": (TITLE + text(mark=";"), "column names stand in row 4, use --skip 3"),
    "an instrument's line as wide": ("a,b,c,d\n" + text(), "row 2 holds 'well_id': use --skip 1"),
    "excel, an instrument's lines": (book(("S", [["Reader"], [], *NUMBERS])), "stand in row 3; use --skip 2"),
    "skip beyond the end": (text(), "--skip 99 leaves none", {"skip": 99}),
    "excel, skip beyond the end": (book(("S", NUMBERS)), "nothing below row 99; use a smaller --skip", {"skip": 99}),
    "excel, several sheets": (
        book(("A", NUMBERS), ("B", NUMBERS)),
        "several sheets: 'A', 'B'; name one, as in --sheet 'A'",
    ),
    "excel, no such sheet": (book(("A", NUMBERS)), "no sheet 'B'; it has 'A'", {"sheet": "B"}),
    "a sheet of a CSV file": (text(), "is no Excel file and has no sheets; leave --sheet out", {"sheet": "A"}),
    "excel, a formula never computed": (book(("S", NUMBERS), change=unsaved), "cell B2 is a formula without its value"),
    "excel, percentages beside other numbers": (
        book(("S", NUMBERS), change=percentages("B2")),
        "row 2, column 'signal': expected a number, got '150%'; write the number alone, without a unit",
    ),
    "excel, an error": (
        book(("S", [HEADER, ["00117", "#DIV/0!", "P1", None]])),
        "row 2, column 'signal': expected a number, got '#DIV/0!'",
    ),
    "excel, a date for a number": (
        book(("S", [HEADER, ["00117", datetime.date(2026, 5, 1), "P1", None]])),
        "column 'signal': expected numbers, got dates or times; write it so",
    ),
    "excel, nothing": (book(("S", [])), "is empty; expected a line of column names"),
    "an old excel file": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), "save it as .xlsx or CSV"),
    "a damaged excel file": (book(("S", NUMBERS))[:-400], "is damaged .*; save it again"),
    "a zip bomb": (bomb(), "60 MB when unpacked, which is too much"),
    "an archive": (archive(), "an archive but no Excel workbook; unpack it"),
    "cyrillic of windows": (
        text(with_cell(2, 0, "проба")).encode("cp1251"),
        "row 4 is not text in UTF-8; save it as CSV",
    ),
    "half utf-8, half latin-1": (
        text(with_cell(2, 0, "ü")).encode() + "ü,1,P1,\n".encode("latin-1"),
        "row 5 is not text in UTF-8",
    ),
    "a unit": (text(with_cell(0, 1, "1.5 mM")), "row 2, column 'signal': expected a number, got '1.5 mM'"),
    "below the limit": (text(with_cell(0, 1, "<0.1")), "expected a number, got '<0.1'"),
    "a column without a name": (text([[*row, "x"] for row in ROWS], [*HEADER, ""]), "column 5 has no name; name it"),
    "a plate not filled in": (text(with_cell(0, 2, "")), "row 2, column 'plate': is empty"),
    "a result not filled in": (
        text(with_cell(0, 1, "")),
        "row 2, column 'signal': expected a number, got an empty cell; if the well failed, write failed",
    ),
    "a failed well among the results": (text(with_cell(0, 1, "n.d.")), "got 'n.d.'; if the well failed, write failed"),
    "nothing filled in": (text([["7", "", "", ""]]), "no row is filled in; write the results into the column 'signal'"),
}


def read(tmp_path, content, options):
    if isinstance(content, pd.DataFrame):
        sheet = tables.read(content)
    else:
        path = tmp_path / "file"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        sheet = tables.read(path, None, **options)
    rows, _ = results.parse(sheet, "well_id", ["signal"], "plate", IDS)
    return [(IDS[row.candidate].as_py(), row.value, row.batch) for row in rows]


def test_there_are_enough():
    assert len(READ) + len(REFUSED) >= 60


@pytest.mark.parametrize("name", READ)
def test_it_is_read_right(tmp_path, name):
    case = READ[name] if isinstance(READ[name], tuple) else (READ[name], TRUTH)
    assert read(tmp_path, case[0], case[2] if len(case) > 2 else {}) == case[1]


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_its_cure(tmp_path, name):
    content, sentence, options = (*REFUSED[name], {})[:3]
    with pytest.raises(InputError, match=sentence) as caught:
        read(tmp_path, content, options)
    assert "\n" not in str(caught.value)


def test_what_is_written_as_excel_is_read_back(tmp_path):
    ids = ["=1+1", "007", "a,b", "ü", "'=x", "two\nlines"]
    written = pa.table(
        {"id": ids, "n": [1.5, -2.0, 1e-300, float("nan"), 3.0, 0.1], "big": [2**60] * 6, "note": [None] * 6}
    )
    tables.write([written.slice(0, 2), written.slice(2)], tmp_path / "t.xlsx")
    sheet = tables.read(tmp_path / "t.xlsx")
    assert sheet.texts("id").to_pylist() == ids
    assert sheet.texts("big").to_pylist() == [str(2**60)] * 6
    assert sheet.numbers("n", np.arange(6) == 3)[[0, 1, 2, 4, 5]].tolist() == [1.5, -2.0, 1e-300, 3.0, 0.1]
    made = openpyxl.load_workbook(tmp_path / "t.xlsx").active
    assert [made.cell(row, 1).data_type for row in range(2, 8)] == ["s"] * 6  # no formula
    with pytest.raises(InputError, match="cannot stand in an Excel file; write a"):
        tables.write([pa.table({"id": ["\x1b"]})], tmp_path / "u.xlsx")


def test_without_openpyxl_the_extra_is_named(tmp_path, monkeypatch):
    import sys

    (tmp_path / "t.xlsx").write_bytes(book(("S", NUMBERS)))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(InputError, match=r"pip install 'aicau\[excel\]'; or save the sheet as CSV"):
        tables.read(tmp_path / "t.xlsx")


def test_what_was_understood_of_a_pool_and_what_reads_oddly(tmp_path):
    frame = pd.DataFrame(
        {
            "id": range(6),
            "dose": [1.0, 2, 3, 4, 5, 6],
            "ph": [f"\u2212{i}.5" for i in range(6)],
            "mass": [f"{i} mg" for i in range(6)],
            "day": [f"2026-05-0{i + 1}" for i in range(6)],
            "smiles": ["C" * (i + 1) for i in range(6)],
            "solvent": ["oil", "Oil", "water"] * 2,
            "limit": ["<1"] * 4 + ["4", "5"],
            "note": "x",
        }
    )
    columns = candidates.describe(tables.read(frame), "id", ["note"])
    assert candidates.summary(columns) == (
        "2 numbers (dose, ph), category 'mass' with 6 levels (0 mg, 1 mg, 2 mg, 3 mg ...), category 'day' with 6 levels"
        " (2026-05-01, 2026-05-02, 2026-05-03, 2026-05-04 ...), category 'smiles' with 6 levels (C, CC, CCC, CCCC ...),"
        " category 'solvent' with 3 levels (Oil, oil, water), category 'limit' with 3 levels (4, 5, <1),"
        " 1 ignored (note)"
    )
    price = [{"name": "price", "levels": ["$5", "<10", "\u20ac 7"]}]
    assert "without their unit" in candidates.notes(price, 9)[0]
    notes = candidates.notes(columns, 6)
    assert [words.split("'")[1] for words in notes] == ["mass", "day", "smiles", "solvent", "limit"]
    for words, part in zip(
        notes,
        ("without their unit", "--ignore day", "--ignore smiles", "'oil' looks like 'Oil'", "2 of them numbers"),
        strict=True,
    ):
        assert part in words


def test_numbers_of_rows_that_pandas_keeps_are_no_feature(tmp_path):
    frame = pd.DataFrame({"id": ["a", "b", "c"], "dose": [1.0, 2.0, 4.0]})
    frame.to_csv(tmp_path / "once.csv")
    pd.read_csv(tmp_path / "once.csv").to_csv(tmp_path / "twice.csv")  # Unnamed: 0
    pd.read_csv(tmp_path / "twice.csv").to_csv(tmp_path / "thrice.csv")  # Unnamed: 0.1
    frame.iloc[[2, 0, 1]].to_parquet(tmp_path / "some.parquet")  # __index_level_0__
    files = [tmp_path / name for name in ("once.csv", "twice.csv", "thrice.csv", "some.parquet")]
    assert [tables.read(file).columns for file in files] == [("id", "dose")] * 4
    assert tables.read_pool(files[-1], in_place=True).columns == ("id", "dose")
    assert tables.read(pd.read_csv(tmp_path / "twice.csv")).columns == ("id", "dose")
    frame.set_index(pd.Index(["x", "y", "z"])).to_parquet(files[-1])  # texts may be the ids
    assert len(tables.read(files[-1]).columns) == 3


def test_a_standard_error_of_one_value_is_pointed_out():
    frame = pd.DataFrame({"well_id": ["7", "x-1"], "signal": [1.0, 2.0], "sem": [0.1, 0.1], "count": [1, 3]})
    _, notes = results.parse(tables.read(frame), "well_id", ["signal"], None, IDS)
    assert notes == ["1 row has a standard error beside count 1, which is not used: write how many values a mean is of"]
    assert results.parse(tables.read(frame.assign(sem=[0.0, 0.1])), "well_id", ["signal"], None, IDS)[1] == []


def test_rows_that_a_filter_hides_are_read_and_pointed_out(tmp_path):
    def hide(made):
        made.active.row_dimensions[3].hidden = True
        made.active.row_dimensions[99].hidden = True

    (tmp_path / "file.xlsx").write_bytes(book(("S", NUMBERS), change=hide))
    sheet = tables.read(tmp_path / "file.xlsx")
    assert sheet.rows == 3
    assert sheet.notes == ("1 row is hidden in the spreadsheet (row 3), and read; delete what does not count",)
    (tmp_path / "file.xlsx").write_bytes(book(("S", NUMBERS)))
    assert tables.read(tmp_path / "file.xlsx").notes == ()


def test_a_date_among_ids_is_a_name_that_a_spreadsheet_changed(tmp_path):
    rows = [["gene", "dose"], ["TP53", 1], [datetime.datetime(2026, 9, 1), 2], ["MYC", 3]]
    (tmp_path / "pool.xlsx").write_bytes(book(("S", rows)))
    with pytest.raises(
        InputError, match=r"row 3, column 'gene': '2026-09-01 00:00:00' is a date, and other ids are none"
    ):
        candidates.distinct_ids(tables.read(tmp_path / "pool.xlsx"), "gene")
    days = pd.DataFrame({"gene": ["2026-09-01 00:00:00", "2026-09-02 00:00:00"], "dose": [1, 2]})
    assert len(candidates.distinct_ids(tables.read(days), "gene")) == 2  # all of them: meant so


def test_a_date_for_a_feature_says_how_to_leave_it_out():
    frame = pd.DataFrame({"id": ["a", "b"], "made": pd.to_datetime(["2026-05-01", "2026-05-02"]), "dose": [1, 2]})
    with pytest.raises(InputError, match=r"column 'made': expected numbers, got dates or times; .* --ignore made"):
        candidates.describe(tables.read(frame), "id")
