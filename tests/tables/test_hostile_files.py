"""Three hundred files that a careless program or a bad day could make: each is read right or refused in one sentence.

What is read right is decided by Python's own reader of CSV. A refused file changes nothing.
"""

import csv
import gzip
import io
import zipfile

import numpy as np
import pandas as pd
import pytest

from aicau import Campaign, tables
from aicau.core.errors import AicauError
from commands import POOL, fingerprint

FILES = 300
CELLS = ["", "\n", "\r", "\r\n", "\t", "\ufeff", "\u202e", "e\u0301", "\U0001f9ea", "\x1b[31m", "x" * 200_000]
CELLS += ["c1", "c2", "c3", "1", "2.5", "-1e3", "p1", " ", '"', "'", ",", "nan", "inf", "1e999", "=1+1", "'=1+1", "＝x"]
HEADERS = ["compound,viability,plate", "compound,viability,plate,status", "compound,compound,plate", "viability,plate"]
HEADERS += ['"compound","viability","plate"', "compound;viability;plate", " compound , viability ,plate", ""]
ENDS = ["\n", "\r\n", "\r", "\n\n", "\n\r"]


def archive():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("xl/worksheets/sheet1.xml", "<worksheet/>")
    return out.getvalue()


def parquet():
    out = io.BytesIO()
    pd.DataFrame({"compound": ["c1", "c2"], "viability": [1.0, 2.0], "plate": "p1"}).to_parquet(out)
    return out.getvalue()


def cell(rng):
    text = CELLS[rng.integers(len(CELLS))]
    return '"' + text.replace('"', '""') + '"' if rng.random() < 0.4 else text


def hostile(rng):
    """One file: good rows among bad ones, in one of many coats."""
    width, end = rng.integers(2, 5), ENDS[rng.integers(len(ENDS))]
    rows = [f"c{i},{i}.5,p1" for i in range(rng.integers(1, 6))]
    rows += [",".join(cell(rng) for _ in range(width)) for _ in range(rng.integers(0, 3))]
    lines = [HEADERS[0 if rng.random() < 0.7 else rng.integers(len(HEADERS))], *rng.permutation(rows)]
    data = (end.join(lines) + end).encode()
    at, whole, wild = rng.integers(len(data)), parquet(), bytes(rng.integers(0, 256, 3, dtype=np.uint8))
    hole = rng.integers(4, len(whole))
    coats = {
        0: [data[:at] + wild + data[at + 1 :], data[:at] + data[at + 2 :]],
        1: [data[:at]],
        2: [mark + data for mark in (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"PAR1", b"\x1f\x8b")],
        3: [data.decode().encode(word) for word in ("utf-16", "utf-32", "utf-16-le", "utf-7")],
        4: [whole[:hole], whole[:hole] + wild + whole[hole + 3 :], whole[:hole] + whole[hole + 9 :]],
        5: [b"", b"\n" * 9, b"\r", b",,,\n", b"\x00" * 99, b'"', HEADERS[0].encode(), archive(), gzip.compress(data)],
    }.get(int(rng.integers(12)), [data])
    return coats[rng.integers(len(coats))]


def by_python(data):
    """The cells as Python's strict reader sees them, without blank rows."""
    marks = {b"\xff\xfe\x00\x00": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    try:
        text = data.decode(marks.get(data[:4]) or marks.get(data[:2]) or "utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]


def tried(work, *arguments, **names):
    """What came of it; or None, after a look at the sentence."""
    try:
        return work(*arguments, **names)
    except AicauError as error:
        words = str(error)
    assert words
    assert len(words.splitlines()) == 1
    assert len(words) < 600
    return None


def attack(folder, files, seed=14):
    """Tell so many files and make campaigns of them. Gives how many were told."""
    (folder / "pool.csv").write_text(POOL)
    limit = csv.field_size_limit(1 << 20)
    try:
        with Campaign.create(folder / "c.db", folder / "pool.csv", "viability", "plate", id="compound") as made:
            return _attack(made, folder, files, np.random.default_rng(seed))
    finally:
        csv.field_size_limit(limit)


def _attack(campaign, folder, files, rng):
    path, new = folder / "hostile.csv", folder / "new.db"
    read = 0
    for number in range(files):
        path.write_bytes(data := hostile(rng))
        before = fingerprint(campaign.store)
        told = tried(campaign.tell, path)
        read += told is not None
        assert told is not None or fingerprint(campaign.store) == before
        made = tried(Campaign.create, new, path, "y", id="compound")
        assert new.exists() == (made is not None)
        if made is not None:
            made.close()
            new.unlink()
        sheet = tried(tables.read, path)
        if sheet is not None and data[:4] != b"PAR1":
            header, *rows = (row for at, row in enumerate(by_python(data)) if at == 0 or any(row))
            assert [name.strip() for name in header] == sheet.table.column_names, (number, data)
            expected = [["=1+1" if text == "'=1+1" else text for text in row] for row in rows]
            assert [list(row.values()) for row in sheet.table.to_pylist()] == expected, (number, data)
    assert all(check.ok for check in campaign.doctor())
    return read


@pytest.mark.slow
def test_three_hundred_hostile_files(tmp_path):
    assert 30 < attack(tmp_path, FILES) < FILES - 100
