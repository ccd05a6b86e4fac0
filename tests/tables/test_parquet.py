"""Pools in Parquet files, read one row group at a time: the same candidates as from one table, and clear errors."""

import numpy as np
import pandas as pd
import pytest

from aicau import Campaign
from aicau.core.errors import InputError
from aicau.tables import parquet, read_pool
from aicau.tables.candidates import Sums, describe


def pool_of(n=70):
    draw = np.random.default_rng(4)
    found = pd.DataFrame({"id": [f"m{i}" for i in range(n)]})
    found["a"] = draw.normal(1000, 1e-3, n)
    found["b"] = draw.integers(9, size=n)
    found["tiny"] = draw.random(n) * 1e-200
    found["same"] = 3.5
    found["kind"] = draw.choice(["x", "y", "z"], n)
    found["price"] = draw.random(n) + 1
    return found


def split(folder, table, *ends, rows=16):
    folder.mkdir(exist_ok=True)
    for at, (start, end) in enumerate(zip((0, *ends), (*ends, len(table)), strict=True)):
        table[start:end].to_parquet(folder / f"{at}.parquet", row_group_size=rows, index=False)
    return folder


def test_columns_are_those_of_one_table(tmp_path):
    whole = describe(read_pool(pool_of(), False), "id", ["price"])
    for rows in (7, 16, 1000):
        parts = read_pool(split(tmp_path / f"pool{rows}", pool_of(), 20, 50, rows=rows), True)
        assert describe(parts, "id", ["price"]) == whole
        assert parts.rows == 70


def test_sums_do_not_depend_on_the_parts():
    values = np.random.default_rng(5).lognormal(0, 4, 10_001)
    found = []
    for pieces in (1, 3, 100):
        sums = Sums(float(values.max()))
        for part in np.array_split(values, pieces):
            sums.add(part)
        found.append(sums.about("pool", "a"))
    assert found[0] == found[1] == found[2]
    assert found[0]["shift"] == pytest.approx(values.mean(), rel=1e-14)
    assert found[0]["scale"] == pytest.approx(values.std(), rel=1e-12)


def test_no_more_than_a_row_group_is_in_memory(tmp_path, monkeypatch):
    most, made = [], parquet.checked
    monkeypatch.setattr(parquet, "checked", lambda sheet: most.append(sheet.rows) or made(sheet))
    folder = split(tmp_path / "pool", pool_of(), 30)
    with Campaign.create(tmp_path / "p.db", folder, target="y", in_place=True, weight="b", cost="price") as campaign:
        assert campaign.status()["candidates"] == 70
    assert max(most) == 16


def test_more_numbers_than_a_copy_may_have(tmp_path, monkeypatch):
    monkeypatch.setattr("aicau.tables.candidates.MOST_NUMBERS", 100)
    folder = split(tmp_path / "pool", pool_of(), 30)
    with pytest.raises(InputError, match=r"70 rows of 8 features are too many for a copy.*--in-place"):
        Campaign.create(tmp_path / "copy.db", pool_of(), target="y")
    with Campaign.create(tmp_path / "there.db", folder, target="y", in_place=True) as campaign:
        assert len(campaign.ask(3)) == 3


def wrong_id(table):
    table.loc[55, "id"] = "m3"


def wrong_number(table):
    table.loc[55, "a"] = np.nan


def wrong_price(table):
    table.loc[55, "price"] = -1.0


def wrong_weight(table):
    table.loc[55, "weight"] = -1.0


def empty_row(table):
    table.loc[55] = None


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (wrong_id, "row 27 of 1.parquet, column 'id': the id 'm3' stands in row 5 of 0.parquet already"),
        (wrong_number, "1.parquet, row 27, column 'a': expected a finite number, got"),
        (wrong_price, "1.parquet, row 27, column 'price': a cost is a number above 0"),
        (wrong_weight, "1.parquet, row 27, column 'weight': a weight is 0 or more"),
        (empty_row, "1.parquet: candidates can stay in their file only if no row"),
    ],
)
def test_what_is_wrong_is_named_by_its_file_and_row(tmp_path, spoil, words):
    table = pool_of().assign(weight=1.0)
    spoil(table)
    folder = split(tmp_path / "pool", table, 30)
    with pytest.raises(InputError, match=words):
        Campaign.create(tmp_path / "p.db", folder, target="y", in_place=True, cost="price", weight="weight")
    assert not (tmp_path / "p.db").exists()


def test_only_a_named_file_or_folder_stays_in_place(tmp_path, monkeypatch):
    """Files that happen to lie in the current folder are not the candidates of a DataFrame."""
    monkeypatch.chdir(split(tmp_path / "pool", pool_of()))
    with pytest.raises(InputError, match="only candidates in a Parquet file, or in a folder of them, can stay"):
        read_pool(pool_of(), True)
    for options in ({"sheet": "A"}, {"skip": 1}):
        with pytest.raises(InputError, match="leave --sheet and --skip out"):
            read_pool(tmp_path / "pool", True, **options)


def test_files_must_be_alike_and_whole(tmp_path):
    folder = split(tmp_path / "pool", pool_of(), 30)
    pool_of()[:5].assign(b="text").to_parquet(folder / "2.parquet", index=False)
    with pytest.raises(InputError, match=r"2.parquet has 'b' \(large_string\) where 0.parquet has 'b' \(int64\)"):
        read_pool(folder, True)
    (folder / "2.parquet").write_bytes((folder / "1.parquet").read_bytes()[:400])
    with pytest.raises(InputError, match=r"2.parquet cannot be read as Parquet.*write the file again"):
        read_pool(folder, True)
    (folder / "2.parquet").unlink()
    data = bytearray((folder / "1.parquet").read_bytes())
    data[60:200] = bytes(140)
    (folder / "1.parquet").write_bytes(data)
    with pytest.raises(InputError, match=r"1.parquet.*write"):
        Campaign.create(tmp_path / "p.db", folder, target="y", in_place=True)
    pool_of()[:0].to_parquet(tmp_path / "none.parquet", index=False)
    with pytest.raises(InputError, match="no rows; add one row per candidate"):
        read_pool(tmp_path / "none.parquet", True)


def test_files_of_a_folder_are_all_read_or_refused(tmp_path):
    folder = split(tmp_path / "pool", pool_of(), 30)
    (folder / "._0.parquet").write_bytes(b"of the system")
    (folder / "1.parquet").rename(folder / "1.PQ")
    assert read_pool(folder, True).rows == 70
    (folder / "inner").mkdir()
    (folder / "1.PQ").rename(folder / "inner" / "1.parquet")
    with pytest.raises(InputError, match=r"1.parquet is in a folder inside .*pool; put all files into one folder"):
        read_pool(folder, True)
    (folder / "inner" / "1.parquet").rename(folder / "1.parquet")
    (folder / "2.parquet").touch()
    with pytest.raises(InputError, match=r"in a folder of them, can stay in place; .*2.parquet is none"):
        read_pool(folder, True)


@pytest.mark.parametrize("in_place", [True, False])
def test_ids_of_64_bits_without_a_sign(tmp_path, in_place):
    ids = np.arange(70, dtype=np.uint64) + np.uint64(2**63)
    pool_of().assign(id=ids).to_parquet(tmp_path / "pool.parquet", index=False)
    with Campaign.create(tmp_path / "p.db", tmp_path / "pool.parquet", target="y", in_place=in_place) as campaign:
        assert set(campaign.ask(3)["id"]) < set(map(str, ids))
