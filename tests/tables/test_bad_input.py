"""Files that cannot be meant: one sentence with row and column, exit code 2, and the store as it was."""

from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicau.store import open_store
from commands import POOL, fingerprint, run

HEADER = ["compound", "viability", "plate", "status", "sem", "count", "replicate"]
ROWS = [[f"c{i}", f"{i / 3:.4f}", "p1", "ok", "", "", str(1 + i % 2)] for i in range(8)]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    (folder / "pool.csv").write_text(POOL)
    names = ["--id", "compound", "--target", "viability", "--batch", "plate"]
    assert run("init", folder / "c.db", folder / "pool.csv", *names)[0] == 0
    (folder / "good.csv").write_text("compound,viability,plate\nc1,0.5,p0\nc2,0.7,p0\n")
    assert run("tell", folder / "c.db", folder / "good.csv")[0] == 0
    return folder


@lru_cache
def untouched(folder):
    """The store and what it held before the first test; none of them may change it."""
    store = open_store(folder / "c.db")
    return store, fingerprint(store)


def refused(campaign, content, *options):
    """The sentence with which `tell` refuses a file; everything else that must hold is checked here."""
    (campaign / "bad.csv").write_bytes(content)
    store, before = untouched(campaign)
    code, out, err = run("tell", campaign / "c.db", campaign / "bad.csv", *options)
    assert code == 2, (content, out, err)
    assert out == ""
    assert err.startswith("aicau: ")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    assert fingerprint(store) == before
    return err


def text(rows, header=HEADER, end="\n"):
    return (end.join(",".join(row) for row in [header, *rows]) + end).encode()


CORPUS = [
    (b"", "is empty"),
    (b"\n", "is empty"),
    (b"compound,viability,plate\n", "no rows"),
    (b"compound,viability\nc1,1\n", "no column 'plate'"),
    (b"compound,plate\nc1,p\n", "no column 'viability'"),
    (b"viability,plate\n1,p\n", "no column 'compound'; it has 'viability', 'plate'; rename the column that is meant"),
    (
        b"Compound,compound,viability,plate\nc1,c1,1,p\n",
        "'Compound' and 'compound' both read as 'compound'",
    ),
    (b"compound,viability,plate\nc1,nan,p\n", "row 2, column 'viability': expected a finite number"),
    (b"compound,viability,plate\nc1,1,p\nc2,-Infinity,p\n", "row 3, column 'viability': expected a finite number"),
    (b"compound,viability,plate\nc1,,p\n", "row 2, column 'viability': expected a number, got an empty cell"),
    (b"compound,viability,plate\nc1,low,p\n", "row 2, column 'viability': expected a number, got 'low'"),
    (b"compound,viability,plate\nc1,=1+1,p\n", "row 2, column 'viability': expected a number, got '=1+1'"),
    (b"compound,viability,plate\n=c1,1,p\n", "row 2, column 'compound': '=c1' is not the id of a candidate"),
    (b"compound,viability,plate\nc99,1,p\n", "row 2, column 'compound': 'c99' is not the id"),
    (
        b"compound,viability,plate\nC1,1,p\n",
        "row 2, column 'compound': 'C1' is not the id of a candidate; did you mean 'c1'",
    ),
    (b"compound,viability,plate\n,1,p\n", "row 2, column 'compound': is empty"),
    (b"compound,viability,plate\nc1,1,\n", "row 2, column 'plate': is empty"),
    (b'compound,viability,plate\n"c""1",1,p\n', "'c\"1' is not the id"),
    (b'compound,viability,plate\n"c\n1",1,p\n', r"'c\n1' is not the id"),
    (b'compound,viability,plate\nc1,"1\nc2,2,p\n', "row 2: a quote is not closed"),
    (b"compound;viability, %;plate\nc1;1,5;p\n", "columns may be separated by ',' and ';'"),
    (b"compound;viability;plate\nc1;1,500;p\n", "got '1,500'; it may be 1.500 or 1500: write it so"),
    (b"compound\tviability\tplate\nc1\t1.234,5\tp\n", "write it without marks between thousands"),
    (b"compound,viability,plate\nc1,1,5,p\n", "row 2: expected 3 columns as in the header, got 4"),
    (b'compound,viability,plate\nc1,"1,5",p\nc2,2.5,p\n', "row 3 has a decimal point: write all numbers alike"),
    (b"compound,viability,plate,plate\nc1,1,p,q\n", "columns 3 and 4 are both called 'plate'"),
    (b"compound,viability,plate,status\nc1,1,p,broken\n", "row 2, column 'status': expected ok or failed"),
    (b"compound,viability,plate,sem\nc1,1,p,0.1\n", "but no column 'count'"),
    (b"compound,viability,plate,count\nc1,1,p,2\n", "but no column 'sem'"),
    (b"compound,viability,plate,sem,count\nc1,1,p,0.1,\n", "row 2, column 'count': a mean with a standard error"),
    (b"compound,viability,plate,sem,count\nc1,1,p,,3\n", "row 2, column 'sem': a mean of several values"),
    (b"compound,viability,plate,sem,count\nc1,1,p,-0.1,3\n", "row 2, column 'sem': a standard error is at least 0"),
    (b"compound,viability,plate,sem,count\nc1,1,p,0.1,2.5\n", "row 2, column 'count': expected a whole number"),
    (b"compound,viability,plate,sem,count\nc1,1,p,0.1,0\n", "row 2, column 'count': expected a whole number"),
    (b"compound,viability,plate,replicate\nc1,1,p,first\n", "row 2, column 'replicate': expected a number"),
    (b"compound,viability,plate,replicate\nc1,1,p,-1\n", "row 2, column 'replicate': expected a whole number"),
    (b"compound,viability,plate\nc1,1e200,p\n", "row 2, column 'viability': 1e+200 is too large"),
    (b"compound,viability,plate\nc1,1e-200,p\n", "row 2, column 'viability': 1e-200 is too small"),
    (b"compound,viability,plate,sem,count\nc1,1,p,1e200,3\n", "row 2, column 'sem': a standard error above 1e+06"),
    (b"compound,viability,plate,sem,count\nc1,0,p,1e200,3\n", "row 2, column 'sem': a standard error above 1e+60"),
    (
        b"compound,viability,plate,sem,count\nc1,1,p,1,2e6\n",
        "column 'count': expected a whole number from 1 to 1,0",
    ),
    (b"compound,viability,plate,replicate\nc1,1,p,2e9\n", "column 'replicate': expected a whole number from 1 to"),
    (b"compound,viability,plate\nc1,1, \n", "row 2, column 'plate': is empty"),
    (b"compound,viability,plate\nc1,1,NaN\n", "row 2, column 'plate': expected a name, got NaN"),
    (b"compound,viability,plate\nc1,1," + b"p" * 101 + b"\n", "row 2, column 'plate': this name has more than 100"),
    (b"compound,viability,plate\n" + b"c" * 1000 + b",1,p\n", "ccc... is not the id of a candidate"),
    ("compound,viability,plate\nc1,zwölf,p\n".encode("latin-1"), "expected a number, got 'zwölf'"),
    ("compound,viability,plate\nc1,zwölf,p\n".encode("cp437"), "row 2 is not text in UTF-8"),
    ("compound,viability,plate\nc1,двенадцать,p\n".encode("cp1251"), "row 2 is not text in UTF-8"),
    ("compound,viability,plate\nc1,x,p\n".encode("utf-16"), "row 2, column 'viability': expected a number, got 'x'"),
    ("compound,viability,plate\nc1,1,p\n".encode("utf-16-le"), "zero byte"),
    (b"\xff\xfe\x00", "UTF-8"),
    (b"PAR1 and nothing more", "Parquet|cannot be read"),
    (b"compound,viability,plate\r\nc1,1,p\rc2,x,p\nc3,3,p\r\n", "row 3, column 'viability'"),
    (b"SQLite format 3\x00" + bytes(100), "row 1 holds a zero byte"),
    (b"a," * 999_999 + b"a\n", "1,000,000 columns"),
    # A row is what a spreadsheet shows, also where blank lines stand before it.
    (b"compound,viability,plate\n\n\nc1,x,p\n", "row 4, column 'viability': expected a number, got 'x'"),
    (b"\ncompound,viability,plate\n\nc1,1,p\n\nc99,1,p\n", "row 6, column 'compound': 'c99' is not the id"),
    (b"compound,viability,plate,status\n\nc1,1,p,broken\n", "row 3, column 'status': expected ok or failed"),
    (b"compound,viability,plate\n\n\nc1,0.6,p0\n", "row 4 says 0.6, and 0.5 is known"),
]


@pytest.mark.parametrize(("content", "sentence"), CORPUS, ids=range(len(CORPUS)))
def test_the_corpus_is_refused(campaign, content, sentence):
    import re

    assert any(part in (err := refused(campaign, content)) for part in sentence.split("|")), re.escape(err)


CELLS = {
    "viability": [
        "",
        "nan",
        "NaN",
        "inf",
        "-inf",
        "1e999",
        "x",
        "1,500",
        "--1",
        "1 2",
        "0x1",
        "#N/A",
        "=A1",
        "１..",
        "None",
    ],
    "compound": ["", "c12", "C1", "'", '"', "\n", "=c1", "0"],
    "plate": [""],
    "status": ["good", "pending", "0", "fail ed", "nan"],
    "count": ["0", "-1", "1.5", "x", "inf", "1e10"],
    "replicate": ["0", "-2", "2.5", "two", "nan"],
}


@st.composite
def wrong_files(draw):
    """A good table with one thing wrong, in one of several coats."""
    rows = [list(row) for row in draw(st.permutations(ROWS))[: draw(st.integers(1, 8))]]
    header = list(HEADER)
    at = draw(st.integers(0, len(rows) - 1))
    kind = draw(st.sampled_from(["cell", "cell", "cell", "column", "long", "short", "double", "sem", "bytes"]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    where = f"row {at + 2}"
    if kind == "cell":
        name = draw(st.sampled_from(sorted(CELLS)))
        value = draw(st.sampled_from(CELLS[name]))
        if name == "count":
            rows[at][HEADER.index("sem")] = "0.1"
        rows[at][HEADER.index(name)] = '"' + value.replace('"', '""') + '"'
    elif kind == "column":
        drop = HEADER.index(draw(st.sampled_from(["compound", "viability", "plate"])))
        header, rows, where = [h for i, h in enumerate(header) if i != drop], [
            [c for i, c in enumerate(row) if i != drop] for row in rows
        ], "no column"  # fmt: skip
    elif kind == "long":
        rows[at].append(draw(st.sampled_from(["", "1", "x"])))
    elif kind == "short":
        rows[at].pop()
    elif kind == "double":
        header[5], where = header[1], "row 1"
    elif kind == "sem":
        rows[at][4] = draw(st.sampled_from(["0.1", "-1", "x"]))
    content = text(rows, header, end)
    if kind == "bytes":
        cut = draw(st.integers(len(",".join(header)) + 1, len(content) - 2))
        content, where = content[:cut] + b"\x80" + content[cut:], "UTF"
    coat = draw(st.sampled_from(["plain", "bom", "utf-16"]))
    if kind != "bytes" and coat == "bom":
        content = b"\xef\xbb\xbf" + content
    elif kind != "bytes" and coat == "utf-16":
        content = content.decode().encode("utf-16")
    return content, where


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(wrong_files())
def test_one_wrong_thing_is_named(campaign, case):
    content, where = case
    assert where in refused(campaign, content)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.binary(max_size=200), st.sampled_from([b"", b"compound,viability,plate\n", b"\xff\xfe", b"PAR1"]))
def test_any_bytes_at_all(campaign, content, head):
    refused(campaign, head + content)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("compound,dose\nc1,1\nc1,2\n", "row 3, column 'compound': the id 'c1' stands in row 2 already"),
        ("compound,dose\nc1,1\nc2,\n", "row 3, column 'dose': expected a number, got an empty cell"),
        ("compound,dose\nc1,1\nc2,nan\n", "row 3, column 'dose': expected a finite number"),
        ("compound,dose\nc1,1\nc2,3\nc3,many\n", "row 4, column 'dose': expected a number, got 'many'"),
        ('compound,dose\nc1,1.5\nc2,"2,5"\n', "row 2 has a decimal point: write all numbers alike"),
        ("compound;dose;ph\nc1;12;6,5\nc2;1.250;7,5\n", "row 3, column 'dose': it may be 1.25 or 1250, as other"),
        ("compound,solvent\nc1,water\nc2,\n", "row 3, column 'solvent': is empty"),
        ("compound\nc1\n", "no feature column"),
        ("compound,dose\nc1,1\n c1 ,2\n", "row 3, column 'compound': the id 'c1' stands in row 2 already"),
        ("compound,dose\n ,1\nc2,2\n", "row 2, column 'compound': is empty"),
        ("name,dose\nc1,1\n", "no column 'compound'; it has 'name', 'dose'; name the one that tells candidates apart"),
        ("compound,viability\nc1,1\n", "which is to hold the target"),
        ("compound,reason\nc1,1\n", "a meaning of its own"),
        ("", "is empty"),
    ],
)
def test_a_wrong_pool_makes_no_campaign(tmp_path, content, sentence):
    (tmp_path / "pool.csv").write_text(content)
    code, out, err = run("init", tmp_path / "c.db", tmp_path / "pool.csv", "--id", "compound", "--target", "viability")
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["pool.csv"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ask", "{}", "0"], "at least one point"),
        (["ask", "{}", "99"], "only 12 of 12 can be proposed"),
        (["ask", "{}", "2", "--replicates", "0"], "every point has from 1 to 1,000 wells"),
        (["ask", "{}", "2", "--replicates", "1000000"], "every point has from 1 to 1,000 wells"),
        (["ask", "{}", "2", "--out", "no/such/place.csv"], "cannot write"),
        (["ask", "{}", "2", "--out", "plate.docx"], "cannot write"),
        (["ask", "{}", "2", "--request", ""], "a request needs a name"),
        (["tell", "{}", "missing.csv"], "cannot read missing.csv"),
        (["abandon", "{}", "c99"], "aicau: 'c99' is not the id of a candidate"),
        (["untell", "{}", str(10**20)], "aicau: 100000000000000000000 is no tell that can be taken back"),
        (["pending", "{}", "--ask", str(10**20)], "there is no batch 100000000000000000000"),
        (["abandon", "{}", "c3"], "'c3' is not pending"),
        (["status", "missing.db"], "there is no campaign at missing.db"),
        (["predict", "{}", "--out", "x.txt"], "cannot write"),
        (["report", "{}", "--out", "x.pdf"], "cannot write"),
        (["status", "mysql://somewhere/db"], "SQLite file or a PostgreSQL database"),
    ],
)
def test_wrong_words_on_the_command_line(campaign, words, sentence):
    store, before = untouched(campaign)
    code, out, err = run(*(word.format(campaign / "c.db") for word in words))
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert fingerprint(store) == before
