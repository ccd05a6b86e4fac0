"""Tables of people: what is read, what is refused, and that what is written is read back."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aicau import tables
from aicau.core.errors import InputError
from aicau.tables import candidates


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
        ('id,y\na,"1,5"\n', "got '1,5'; write numbers with a decimal point"),
        ("id,y\na,1,5\n", "row 2: expected 2 columns as in the header, got 3"),
        ("id,y\na\n", "row 2: expected 2 columns as in the header, got 1"),
        ("id;y\na;1\n", "row 1: the columns are separated by ';'; save it with commas"),
        ("id\ty\na\t1\n", "separated by '.t'"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("id,y\n", "has column names but no rows"),
        ("id,y", "has column names but no rows"),
        ("id,y,y\na,1,2\n", "row 1: columns 2 and 3 are both called 'y'"),
        ("id,,y\na,1,2\n", "row 1: column 2 has no name"),
        ("x,z\na,1\n", "has no column 'y'; it has 'x', 'z'"),
        (b"id,y\na,\xff\xfe\n", "is not text in UTF-8|invalid UTF8"),
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
    assert found.texts("=name").to_pylist() == texts
    cells = [cell for cell in tables.guard(pa.array(texts)).to_pylist() if cell[0] in "=+-@\t\r"]
    assert not cells


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
    assert candidates.feature_names(columns) == ["dose", "solvent=oil", "solvent=water"]


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        ({"id": ["a", "b", "a"], "x": [1, 2, 3]}, "row 4, column 'id': the id 'a' stands in row 2 already"),
        ({"id": ["a", None], "x": [1, 2]}, "row 3, column 'id': is empty"),
        ({"id": ["a", "b"], "x": [1, np.nan]}, "row 3, column 'x': expected a finite number, got None|nan"),
        ({"id": ["a", "b"], "x": [1, np.inf]}, "row 3, column 'x': expected a finite number, got inf"),
        ({"id": ["a", "b"], "x": [1e308, -1.7e308]}, "too large"),
        ({"id": ["a", "b"], "x": ["u", ""]}, "row 3, column 'x': is empty"),
        ({"id": [1.5, 2.5], "x": [1, 2]}, "expected text or whole numbers"),
        ({"id": ["a", "b"]}, "has no feature column"),
        ({"id": ["a", "b"], "why": [1, 2]}, "a meaning of its own"),
        ({"id": ["a", "b"], "x": pd.to_datetime(["2020-01-01", "2020-01-02"])}, "expected numbers, got timestamp"),
        ({"id": ["a\x00", "b"], "x": [1, 2]}, "holds a zero byte"),
        ({"id": ["a", "b"], "x": pd.Series(["\ud800", "v"], dtype=object)}, "cannot be read"),
        ({"id": [f"i{k}" for k in range(500)], "x": [f"text {k}" for k in range(500)]}, "too many for a category"),
    ],
)
def test_pools_that_cannot_be_meant(frame, sentence):
    def cut():
        found = tables.read(pd.DataFrame(frame), "the pool")
        list(candidates.cut(found, "id", candidates.describe(found, "id")))

    with pytest.raises(InputError, match=sentence):
        cut()
