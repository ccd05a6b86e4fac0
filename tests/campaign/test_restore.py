"""export → import → export gives the same files, and a campaign that goes on as the first one would."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aicau import Campaign
from aicau.core.errors import InputError, StoreError

POOL = pd.DataFrame(
    {
        "compound": [f"c{i}" for i in range(24)],
        "dose": np.linspace(0, 1, 24) ** 2 / 3,
        "solvent": ["oil", "=water", "oil\nand water"] * 8,
        "note": ["'=1", None, "", "007", "a,b", 'say "x"'] * 4,
        "rank": [2**60 + i for i in range(24)],
        "score": [0.1, None, 1e-300] * 8,
    }
)


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def grown(address, task):
    """A campaign with corrections, failed wells, changes and models."""
    results = {
        "regression": lambda x: x * 3 + 1 / 3,
        "classification": lambda x: np.where(x > 0.05, "hit", "miss"),
        "count": lambda x: np.round(9 * x),
    }
    campaign = Campaign.create(
        address, POOL, "y", "plate", id="compound", ignore=["note", "rank", "score"], task=task, author="ada"
    )
    for plate in ("P1", "p2"):
        batch = campaign.ask(6)
        rows = batch[["compound", "replicate"]].assign(y=results[task](batch.dose), plate=plate, status="")
        rows.loc[5, "status"] = "failed"
        campaign.tell(rows)
    campaign.tell(rows.head(1).assign(y=results[task](np.array([0.9]))), correct=True)
    campaign.rename("p2", "P2")
    campaign.exclude(["c1", "c2"], "out of stock")
    campaign.include("c1")
    campaign.add(POOL.head(2).assign(compound=["n1", "n2"], solvent="acid"))
    campaign.ask(2, request="r", replicates=2)
    campaign.abandon(campaign.pending()["compound"][0])
    told = campaign.tell(pd.DataFrame({"compound": ["c5"], "y": results[task](np.array([0.2])), "plate": "P3"}))
    campaign.untell(told["tell"])
    campaign.change(strategy="random")
    return campaign


@pytest.mark.parametrize("task", ["regression", "classification", "count"])
def test_export_import_export_is_exact(tmp_path, task, request):
    with grown(tmp_path / "a.db", task) as first:
        first.export(tmp_path / "one")
        assert len(list((tmp_path / "one" / "models").iterdir())) >= 2
        new = request.getfixturevalue("postgres")() if task == "count" else tmp_path / "b.db"
        with Campaign.import_(tmp_path / "one", new) as second:
            second.export(tmp_path / "two")
            assert contents(tmp_path / "one") == contents(tmp_path / "two")
            assert all(check.ok for check in second.doctor()), second.doctor()
            assert second.status() == first.status()
            assert second.settings == first.settings
            pd.testing.assert_frame_equal(second.measurements(current=False), first.measurements(current=False))
            pd.testing.assert_frame_equal(second.history(), first.history())
            assert second.ask(3, preview=True).equals(first.ask(3, preview=True))
            pd.testing.assert_frame_equal(second.predict(), first.predict())
            told = second.tell(first.measurements()[["compound", "y", "plate", "replicate", "status"]])
            assert told["already"]  # nothing that was superseded comes to life
            second.compact()
            second.export(tmp_path / "three")
            with Campaign.import_(tmp_path / "three", tmp_path / "c.db") as third:
                third.export(tmp_path / "four")
            assert contents(tmp_path / "three") == contents(tmp_path / "four")


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[1] / "data" / "campaigns").glob("*.db")), ids=lambda f: f.stem
)
def test_campaigns_of_earlier_versions_are_restored(file, tmp_path):
    shutil.copy(file, tmp_path / "old.db")
    with Campaign.open(tmp_path / "old.db") as old:
        old.export(tmp_path / "one")
    with Campaign.import_(tmp_path / "one", tmp_path / "new.db") as new:
        new.export(tmp_path / "two")
        assert all(check.ok for check in new.doctor()), new.doctor()
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_what_is_no_whole_export_is_refused(tmp_path):
    with Campaign.create(tmp_path / "a.db", POOL, "y", id="compound", ignore=["note", "rank", "score"]) as campaign:
        campaign.export(tmp_path / "out")
    with pytest.raises(InputError, match=r"a\.db exists already; a new campaign needs a new file"):
        Campaign.import_(tmp_path / "out", tmp_path / "a.db")
    with pytest.raises(InputError, match="is no export of a campaign; name the folder that 'aicau export' wrote"):
        Campaign.import_(tmp_path, tmp_path / "b.db")
    with (tmp_path / "out" / "events.csv").open("a") as file:
        file.write("\n")
    with pytest.raises(InputError, match=r"events\.csv was changed since the export"):
        Campaign.import_(tmp_path / "out", tmp_path / "b.db")
    (tmp_path / "out" / "events.csv").unlink()
    with pytest.raises(InputError, match=r"events\.csv is missing"):
        Campaign.import_(tmp_path / "out", tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()


def test_an_earlier_copy_in_the_place_of_the_file_is_not_answered_from_the_model_of_the_later_one(tmp_path):
    place, copy = tmp_path / "c.db", tmp_path / "copy.db"
    pool = pd.DataFrame({"id": list("abcdefgh"), "x": range(8)})

    def rows(value):
        return pd.DataFrame({"id": list("efgh"), "y": value})

    with Campaign.create(place, pool, "y") as campaign:
        campaign.tell(pd.DataFrame({"id": list("abcd"), "y": [1.0, 2.0, 3.0, 4.0]}))
    copy.write_bytes(place.read_bytes())
    with Campaign.open(place) as campaign:
        campaign.tell(rows(900.0))
        assert campaign.predict()["mean"].max() > 500
        copy.replace(place)
        campaign.tell(rows(5.0))  # as many tells as before
        assert campaign.predict()["mean"].max() < 50
        place.unlink()
        with pytest.raises(StoreError, match="cannot be opened: look at its folder"):
            campaign.status()


def test_damage_inside_a_cell_is_one_sentence_that_names_doctor(tmp_path):
    with Campaign.create(tmp_path / "c.db", pd.DataFrame({"id": list("abc"), "x": range(3)}), "y") as campaign:
        campaign.ask(1)
    with closing(sqlite3.connect(tmp_path / "c.db")) as connection:
        connection.execute("UPDATE proposals SET numbers = '{\"a\": 1'")
        connection.commit()
    with (
        Campaign.open(tmp_path / "c.db") as campaign,
        pytest.raises(StoreError, match=r"is damaged .* see 'aicau doctor"),
    ):
        campaign.pending()
    with closing(sqlite3.connect(tmp_path / "c.db")) as connection:
        connection.execute("UPDATE chunks SET features = zeroblob(400)")
        connection.commit()
    with (
        Campaign.open(tmp_path / "c.db") as campaign,
        pytest.raises(StoreError, match=r"is damaged .* see 'aicau doctor"),
    ):
        campaign.ask(1)
