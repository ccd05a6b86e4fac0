"""Tables of people: what is read, what is refused, and that what is written is read back."""

import os
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicau import tables
from aicau.core.errors import InputError
from aicau.tables import candidates
from aicau.tables.kinds import is_numeric, plain
from aicau.tables.sheet import Sheet
from arrow_types import every_type


def sheet(tmp_path, content, name="t.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tables.read(path)


@pytest.mark.parametrize(
    "content",
    [
        b"id,y\na,1\nb,2.5\n",
        b"\xef\xbb\xbfid,y\na,1\nb,2.5\n",
        "id,y\na,1\nb,2.5\n".encode("utf-16"),
        b"\xfe\xff" + "id,y\na,1\nb,2.5\n".encode("utf-16-be"),
        "id,y\na,1\nb,2.5\n".encode("utf-32"),
        b"id,y\r\na,1\r\nb,2.5",
        b"id,y\ra,1\rb,2.5\r",
        b"id,y\r\na,1\nb,2.5\r",
        b'"id","y"\n"a"," 1 "\n"b",+2.5\n\n',
        b" id , y \na,1\nb,25e-1\n",
    ],
)
def test_the_same_table_in_many_coats(tmp_path, content):
    found = sheet(tmp_path, content)
    assert found.texts("id").to_pylist() == ["a", "b"]
    assert found.numbers("y").tolist() == [1.0, 2.5]


def test_parquet_and_frames_are_the_same(tmp_path):
    frame = pd.DataFrame({"id": [7, 8], "y": [1.0, 2.5], "c": pd.Categorical(["u", "v"])})
    frame.to_parquet(tmp_path / "t.parquet")
    for source in (frame, tmp_path / "t.parquet", frame.set_index("id")):
        found = tables.read(source)
        assert found.texts("id").to_pylist() == ["7", "8"]
        assert found.numbers("y").tolist() == [1.0, 2.5]
        assert found.texts("c").to_pylist() == ["u", "v"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("id,y\na,1\nb,\n", "row 3, column 'y': expected a number, got an empty cell"),
        ("id,y\na,1\nb,nan\n", "row 3, column 'y': expected a finite number, got 'nan'"),
        ("id,y\na,inf\n", "row 2, column 'y': expected a finite number, got 'inf'"),
        ("id,y\na,1e999\n", "row 2, column 'y': expected a finite number, got '1e999'"),
        ("id,y\na,1\nb,lots\n", "row 3, column 'y': expected a number, got 'lots'"),
        ("id,y\na,1\nb,<0.5\n", "got '<0.5'; write the number alone, without a unit or another sign"),
        ('id,y\na,"1,500"\n', "got '1,500'; it may be 1.500 or 1500: write it so"),
        ("id,y\na,1,5\n", "row 2: expected 2 columns as in the header, got 3"),
        ("id,y\na\n", "row 2: expected 2 columns as in the header, got 1"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("id,y\n", "has column names but no rows"),
        ("id,y", "has column names but no rows"),
        ("id,y,y\na,1,2\n", "row 1: columns 2 and 3 are both called 'y'"),
        ("id,,y\na,1,2\n", "row 1: column 2 has no name"),
        ("My plate,,\nid,y,z\na,1,2\n", "has no name; .* or use --skip where the names stand in a lower row"),
        ("x,z\na,1\n", "has no column 'y'; it has 'x', 'z'"),
        (b"id,y\na,\xff\x80\n", "is not text in UTF-8|invalid UTF8"),
        ("id,y\na,1\n".encode("utf-16")[2:], "zero byte"),
        ("id,y\n0x10,0x10\n", "expected a number, got '0x10'"),
        ("id,y\na,1_000\n", "expected a number, got '1_000'"),
    ],
)
def test_what_cannot_be_meant_is_named_by_row_and_column(tmp_path, content, sentence):
    def read():
        sheet(tmp_path, content).numbers("y")

    with pytest.raises(InputError, match=sentence.replace("(", r"\(")) as caught:
        read()
    assert "\n" not in str(caught.value)


def test_numbers_with_marks_between_thousands_are_no_category(tmp_path):
    found = sheet(tmp_path, "id;y\na;1.234,5\nb;2.345,5\n")
    assert found.looks_numeric("y")
    with pytest.raises(InputError, match="write it without marks between thousands"):
        found.numbers("y")


def test_a_blank_in_a_far_cell_is_no_column_and_no_row(tmp_path):
    found = sheet(tmp_path, "id,y,,\na,1,,\n ,,, \nb,2,,\n")
    assert found.columns == ("id", "y")
    assert found.rows == 2


def test_a_million_columns_are_refused_at_once(tmp_path):
    names = ",".join(f"c{i}" for i in range(1_000_000))
    with pytest.raises(InputError, match="has 1,000,000 columns; at most 10,000"):
        sheet(tmp_path, names + "\n" + "1," * 999_999 + "1\n")


def test_ids_with_quotes_newlines_and_formulas_come_back(tmp_path):
    ids = ['say "a"', "two\nlines", "=1+1", "+x", "-y", "@z", "\tq", "'=w", "''=v", "'plain", "ü", "a,b", "＝f", "007"]
    tables.write([pa.table({"id": ids, "y": np.arange(len(ids)) - 5.0})], tmp_path / "t.csv")
    text = (tmp_path / "t.csv").read_text()
    assert '"\'=1+1",-3' in text
    assert '"007",8' in text
    found = tables.read(tmp_path / "t.csv")
    assert found.texts("id").to_pylist() == ids
    assert found.numbers("y").tolist() == [i - 5.0 for i in range(len(ids))]


@given(st.lists(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_any_text_is_safe_in_a_spreadsheet_and_read_back(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("t") / "t.csv"
    tables.write([pa.table({"=name": texts, "n": list(range(len(texts)))})], path)
    found = tables.read(path)
    assert found.texts("=name", empty=True).to_pylist() == texts
    guarded = tables.guarded(pa.table({"x": texts})).column("x").to_pylist()
    assert not [cell for cell in guarded if cell[0] in "=+-@\t\r"]


def test_encoding_by_hand(tmp_path):
    content = "id,dose,solvent,note\na,1,water,x\nb,3,oil,y\nc,5,water,z\nd,7,water,\n"
    found = sheet(tmp_path, content)
    columns = candidates.describe(found, "id", ["note"])
    assert columns[0] == {"name": "dose", "kind": "number", "shift": 4.0, "scale": pytest.approx(5**0.5)}
    assert columns[1] == {
        "name": "solvent",
        "kind": "category",
        "levels": ["oil", "water"],
        "shift": [0.25, 0.75],
        "scale": pytest.approx((2 * 0.25 * 0.75) ** 0.5),
    }
    assert columns[2] == {"name": "note", "kind": "ignored"}
    (chunk,) = candidates.cut(found, "id", columns)
    x = candidates.encode(candidates.unpack(chunk.features), columns)
    assert x.dtype == np.float32
    assert x[:, 0].tolist() == pytest.approx([-3 / 5**0.5, -1 / 5**0.5, 1 / 5**0.5, 3 / 5**0.5])
    assert x.mean(0).tolist() == pytest.approx([0, 0, 0], abs=1e-6)
    assert x[:, 1:].var(0).sum() == pytest.approx(1)
    assert candidates.unpack(chunk.features).column("note").to_pylist() == ["x", "y", "z", ""]
    assert candidates.all_ids([chunk.ids]).to_pylist() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("unit", [1e-170, 1e-30, 1.0, 1e100])
def test_features_in_any_unit_are_standardised(unit):
    found = tables.read(pd.DataFrame({"id": ["a", "b"], "x": [1.0 * unit, 3.0 * unit]}))
    columns = candidates.describe(found, "id")
    (chunk,) = candidates.cut(found, "id", columns)
    assert candidates.encode(candidates.unpack(chunk.features), columns).tolist() == [[-1.0], [1.0]]


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        ({"id": ["a", "b", "a"], "x": [1, 2, 3]}, "row 4, column 'id': the id 'a' stands in row 2 already"),
        ({"id": ["a", None], "x": [1, 2]}, "row 3, column 'id': is empty"),
        ({"id": ["a", "b"], "x": [1, np.nan]}, "row 3, column 'x': expected a finite number, got an empty cell"),
        ({"id": ["a", "b"], "x": [1, np.inf]}, "row 3, column 'x': expected a finite number, got inf"),
        ({"id": ["a", "b"], "x": [1e308, -1.7e308]}, "too large"),
        ({"id": ["a", "b"], "x": ["u", ""]}, "row 3, column 'x': is empty"),
        ({"id": [1.5, 2.5], "x": [1, 2]}, "expected text or whole numbers"),
        ({"id": ["a", "b"]}, "has no feature column"),
        ({"id": ["a", "b"], "reason": [1, 2]}, "a meaning of its own"),
        ({"id": ["a", "b"], "x": pd.to_datetime(["2020-01-01", "2020-01-02"])}, "expected numbers, got dates or times"),
        ({"id": ["a\x00", "b"], "x": [1, 2]}, "holds a zero byte"),
        ({"id": ["a", "b"], "x": pd.Series(["\ud800", "v"], dtype=object)}, "cannot be read"),
        ({"id": [f"i{k}" for k in range(500)], "x": [f"text {k}" for k in range(500)]}, "a category has at most 200"),
    ],
)
def test_pools_that_cannot_be_meant(frame, sentence):
    def cut():
        found = tables.read(pd.DataFrame(frame), "the pool")
        list(candidates.cut(found, "id", candidates.describe(found, "id")))

    with pytest.raises(InputError, match=sentence):
        cut()


TYPES = every_type()


@pytest.mark.parametrize("name", TYPES)
def test_every_arrow_type_is_read_right_or_refused(name):
    array = TYPES[name]
    found = Sheet(pa.table({"x": array}), "t.parquet")
    for reader in (found.numbers, found.texts, lambda x: found.labels(x, np.zeros(2, dtype=bool)), found.blank):
        sentence = "t.parquet, "
        try:
            cells = list(map(str, np.asarray(reader("x")).tolist()))
        except InputError as error:
            sentence = str(error)
        else:
            as_numbers = [["1", "2"], ["1.0", "2.0"], ["1.0", "0.0"], ["true", "false"], ["True", "False"]]
            blanks = [[str(b), str(c)] for b in (True, False) for c in (True, False)]
            assert cells in [*as_numbers, ["u", "v"], *blanks], (name, cells)
        assert sentence.startswith("t.parquet, ")
        assert "\n" not in sentence


def test_every_arrow_type_becomes_text_or_stays(tmp_path):
    written = {name: plain(array) for name, array in TYPES.items()}
    assert {str(array.type) for array in written.values() if not is_numeric(array.type)} <= {
        "string",
        "large_string",
        "null",
    }
    assert written["timestamp[ms, tz=Europe/Berlin]"].to_pylist()[0] == "1970-01-02 01:00:00.000+0100"
    assert written["date32[day]"].to_pylist() == ["1970-01-02", "1970-01-03"]
    assert written["decimal128(30, 4)"].to_pylist() == ["1.0000", "2.0000"]
    assert written["struct"].to_pylist() == ["{'a': 1, 'b': None}", None]
    assert written["map"].to_pylist() == ["[('k', 1)]", "[]"]
    assert written["binary"].to_pylist() == ["75", "ff"]
    assert written["extension<arrow.uuid>"].to_pylist()[0] == "30303030-3030-3030-3030-303030303030"
    assert written["duration[s]"].to_pylist() == ["0:00:01", "0:00:02"]
    assert written["int64 with a gap"].to_pylist() == [2**53 + 1, None]
    for suffix in (".csv", ".parquet"):
        tables.write([pa.table(written)], tmp_path / f"t{suffix}")
        assert tables.read(tmp_path / f"t{suffix}").rows == 2


@pytest.mark.parametrize(
    ("content", "row"),
    [
        ("id,y\n\n\na,1\nb,x\n", 5),
        ("\nid,y\na,x\n", 3),
        ('id,y\n"a\n\nb",1\nb,x\n', 3),
        ('id,y\r\n\r\n"a\r\nb",1\r\n\r\nb,x\r\n', 5),
        ("id,y\r\ra,1\rb,x\r", 4),
        ("id,y\n\na,1\nb,1,1\n", 4),
        ('id,y\n\n"a\n",1\nb,"1"2\n', 4),
        ('id,y\n\n"a\n",1\nb,"1\n', 4),
        (b'id,y\n\n"a\n",1\nb,\x81\n', 4),
        (b'id,y\n\n"a\n",1\n"b\x00,1\n', 4),
    ],
)
def test_row_numbers_are_those_of_a_spreadsheet(tmp_path, content, row):
    def read():
        sheet(tmp_path, content).numbers("y")

    with pytest.raises(InputError, match=f"t.csv, row {row}\\b"):
        read()


def test_text_after_a_closing_quote_is_refused_and_quotes_inside_are_read(tmp_path):
    with pytest.raises(InputError, match="row 2: a quote is not closed at the end of its cell"):
        sheet(tmp_path, 'id,y\na,"1"2\n')
    assert sheet(tmp_path, 'id,y\n5" plate,"1"\n"a""b,\n""",2').texts("id").to_pylist() == ['5" plate', 'a"b,\n"']


@pytest.mark.parametrize("lead", ["", " ", "\n", "\r\n", "\u00a0", "\ufeff", "\u200b", "\u3000 ", "'", "'' "])
@pytest.mark.parametrize("mark", "=+-@＝")
def test_formulas_after_blanks_are_guarded_too(tmp_path, lead, mark):
    cell = f"{lead}{mark}1"
    (guarded,) = tables.guarded(pa.table({"x": [cell]})).column("x").to_pylist()
    assert guarded == f"'{cell}"
    tables.write([pa.table({cell.strip(): [cell], "y": [1]})], tmp_path / "t.csv")
    assert tables.read(tmp_path / "t.csv").texts(cell.strip()).to_pylist() == [cell]


@pytest.mark.parametrize("value", [1e300, -1e300, float("-inf"), float("inf"), 0.5, 2.0**53])
def test_labels_are_not_turned_into_other_numbers(value):
    found = tables.read(pd.DataFrame({"x": [1.0, value]}))
    with pytest.raises(InputError, match="row 3, column 'x': expected a label, got "):
        found.labels("x", np.zeros(2, dtype=bool))
    assert found.labels("x", np.array([False, True])) == ["1", None]


def test_whole_numbers_that_a_float_cannot_keep(tmp_path):
    pq.write_table(pa.table({"x": [1, 2**53 + 1]}), tmp_path / "t.parquet")
    found = tables.read(tmp_path / "t.parquet")
    assert found.texts("x").to_pylist() == ["1", "9007199254740993"]
    with pytest.raises(InputError, match="row 3, column 'x': 9007199254740993 has more digits than a number can keep"):
        found.numbers("x")


def test_parquet_with_text_that_is_none(tmp_path):
    cells = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff"))
    pq.write_table(pa.table({"x": cells}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t.parquet, column 'x', cannot be read as Parquet: .*Invalid UTF8"):
        tables.read(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        ({"x": [1 + 2j]}, "expected numbers, got struct<real"),
        ({"x": pd.Series([1 + 2j, "a"], dtype=object)}, "cannot be read|expected numbers"),
        ({"x" * 501: [1]}, "the name of column 1 has more than 500 characters"),
        ({"a\x00": [1]}, "the name of column 1 has a zero byte"),
        ({"x": pd.to_timedelta([1, 2])}, "expected numbers, got dates or times"),
        ({"x": [[1], [2]]}, "expected numbers, got list"),
        ({"x": [{"a": 1}]}, "expected numbers, got struct"),
    ],
)
def test_frames_that_cannot_be_meant(frame, sentence):
    def read():
        tables.read(pd.DataFrame(frame)).numbers("x")

    with pytest.raises(InputError, match=sentence):
        read()


def test_a_frame_with_a_column_name_that_is_not_text():
    with pytest.raises(InputError, match="a column name that is not text"):
        tables.read(pd.DataFrame([[1]], columns=pd.Index(["\ud800"], dtype=object)))


def test_periods_and_intervals_are_text():
    frame = pd.DataFrame({"p": pd.period_range("2020-01", periods=2, freq="M"), "i": pd.interval_range(0, 2)})
    assert tables.read(frame).texts("p").to_pylist() == ["2020-01", "2020-02"]
    assert tables.read(frame).texts("i").to_pylist() == ["(0, 1]", "(1, 2]"]


def test_pipes_are_read_or_refused(tmp_path):
    content = b"id,y\n" + b"a,1\n" * 50_000  # more than a pipe holds
    read, write = os.pipe()
    thread = threading.Thread(target=lambda: (os.write(write, content), os.close(write)))
    thread.start()
    assert tables.read(f"/dev/fd/{read}").rows == 50_000
    thread.join()
    os.close(read)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError, match="nothing came through the pipe"):
        tables.read(tmp_path / "fifo")
    for path, sentence in (("/dev/zero", "not a file"), (tmp_path, "not a file|directory"), ("n" * 5000, "too long")):
        with pytest.raises(InputError, match=sentence) as caught:
            tables.read(path)
        assert len(str(caught.value)) < 500
    with pytest.raises(InputError, match="cannot read"):
        tables.read("a\x00b")
