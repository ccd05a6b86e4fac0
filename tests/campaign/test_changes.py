"""A campaign that changes: every change is a new row of history, and nothing that was told is overwritten."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape

from aicau import Campaign
from aicau.core.errors import InputError
from commands import fingerprint

POOL = pd.DataFrame({"id": [f"c{i}" for i in range(30)], "x": np.linspace(0, 1, 30), "s": ["oil", "water"] * 15})


def create(address, **changes):
    return Campaign.create(address, POOL, **({"target": "y", "batch": "plate", "strategy": "farthest"} | changes))


@pytest.fixture
def campaign(tmp_path):
    with create(tmp_path / "c.db") as made:
        yield made
        assert all(check.ok for check in made.doctor()), made.doctor()


def table(ids, y, plate="P1", **columns):
    return pd.DataFrame({"id": ids.split(), "y": y, "plate": plate, **columns})


def values(campaign):
    found = campaign.measurements()
    return sorted(zip(found["id"], found["y"], found["plate"], strict=True))


def test_excluded_candidates_are_not_proposed_until_they_are_included(address):
    with create(address) as campaign:
        asked = campaign.ask(3)["id"].tolist()
        rest = [name for name in POOL["id"] if name not in asked]
        assert campaign.exclude(rest[:25], "out of stock") == {"excluded": 25, "pending": 0}
        assert campaign.exclude(asked[0], "insoluble") == {"excluded": 1, "pending": 1}
        assert campaign.exclude(asked[0], "again") == {"excluded": 0, "pending": 0}
        assert (campaign.status()["excluded"], campaign.status()["pending"]) == (26, 2)
        with pytest.raises(
            InputError, match=r"only 2 of 30 can be proposed \(2 are pending, 26 abandoned or excluded\)"
        ):
            campaign.ask(3)
        assert set(campaign.ask(2)["id"]) == set(rest[25:])
        assert campaign.include([asked[0], rest[0]], "new stock") == 2
        assert set(campaign.ask(2)["id"]) == {asked[0], rest[0]}
        with pytest.raises(InputError, match="is neither excluded nor abandoned"):
            campaign.include([rest[1], asked[1]])
        campaign.abandon(asked[0])
        with pytest.raises(InputError, match="only 0 of 30"):
            campaign.ask(1)
        campaign.include(asked[0])
        assert campaign.ask(1)["id"].tolist() == [asked[0]]
        what = campaign.history()
        assert what.what.tolist() == [
            "create",
            "ask",
            "exclude",
            "exclude",
            "ask",
            "include",
            "ask",
            "abandon",
            "include",
            "ask",
        ]
        assert "reason insoluble" in what.detail[3]
        with pytest.raises(InputError, match="the reason needs a name"):
            campaign.exclude("c1", " ")
        assert all(check.ok for check in campaign.doctor()), campaign.doctor()


def test_candidates_are_added(campaign, tmp_path):
    campaign.tell(table("c0 c29", [0.0, 1.0]))
    more = pd.DataFrame({"id": ["c3", "n1", "n2"], "x": [POOL.x[3], 5.0, -4.0], "s": ["water", "oil", "acid"]})
    words = r"the candidates, row 2, column 'x': 9\.0, and .* there with 0\.1\d+; .* do not change: give it a new id"
    with pytest.raises(InputError, match=words):
        campaign.add(more.assign(x=[9.0, 5.0, -4.0]))
    with pytest.raises(InputError, match="no column 's'"):
        campaign.add(more.drop(columns="s"))
    words = r"row 3, column 'x': is too far from the other candidates \(about 0\.5\); is it a slip\?"
    with pytest.raises(InputError, match=words):
        campaign.add(more.assign(x=[POOL.x[3], 1e25, -4.0]))  # no model could be computed any more
    with Campaign.open(tmp_path / "c.db") as other:
        assert campaign.add(more) == {"added": 2, "known": 1, "candidates": 32}
        assert campaign.add(more) == {"added": 0, "known": 3, "candidates": 32}
        assert set(other.ask(2)["id"]) == {"n1", "n2"}  # far away, and seen by who had it open before
    assert campaign.settings["columns"][1]["levels"] == ["oil", "water", "acid"]
    first = campaign.pending()
    assert sorted(zip(first["id"], first.x, first.s, strict=True)) == [("n1", 5.0, "oil"), ("n2", -4.0, "acid")]
    assert campaign.tell(table("n1 n2 c1", [3.0, 4.0, 0.1], "P2"))["completed"] == 2
    assert campaign.history().what.tolist() == ["create", "tell", "add", "ask", "tell"]


def test_blanks_around_an_id_do_not_count(tmp_path):
    pool = POOL.assign(id=POOL["id"] + " ")
    with Campaign.create(tmp_path / "c.db", pool, "y", "plate", strategy="farthest") as campaign:
        assert campaign.tell(table("c0 c1", [0.0, 1.0]))["new"] == 2
        assert campaign.add(POOL)["known"] == campaign.add(pool)["known"] == 30
        assert campaign.ask(1)["id"].str.fullmatch(r"c\d+").all()


def test_models_of_a_smaller_pool_are_fitted_again(tmp_path):
    with create(tmp_path / "c.db", strategy="pemse:direct:spread:difference") as campaign:
        for plate in ("P1", "P2"):
            batch = campaign.ask(6)
            campaign.tell(table(" ".join(batch["id"]), np.sin(5 * batch.x), plate))
        assert len(campaign.predict()) == 30
        campaign.add(pd.DataFrame({"id": ["n1"], "x": [0.5], "s": ["acid"]}))
        said = campaign.predict()
        assert said["id"].tolist() == [*POOL["id"], "n1"]
        assert np.isfinite(said["mean"]).all()
        assert len(campaign.ask(3)) == 3
        campaign.change(strategy="random")
        assert campaign.ask(1).reason[0].startswith("random: ")
        with pytest.raises(InputError, match="did you mean 'farthest'"):
            campaign.change(strategy="farthes")
        with pytest.raises(InputError, match="nothing is to be changed"):
            campaign.change(strategy="random", goal="map")
        assert campaign.change(goal="max", weight="x") == {"goal": "max", "weight": "x"}
        with pytest.raises(InputError, match="unknown column of weights 'w'"):
            campaign.change(weight="w")
        assert campaign.batches().strategy.tolist()[-2:] == ["pemse:direct:spread:difference", "random"]


def test_a_plate_is_renamed(campaign):
    campaign.tell(table("c1 c2", [1.0, 2.0], "p1"))
    campaign.tell(table("c2 c3", [2.0, 3.0], "P1"), new=["P1"])
    with pytest.raises(InputError, match="no measurement is of a batch 'P 1'; did you mean"):
        campaign.rename("P 1", "x")
    with pytest.raises(InputError, match=r"^the batch 'P 1' looks like 'P1'; rename it to 'P1' if they are one"):
        campaign.rename("p1", "P 1")
    assert campaign.rename("p1", "P1") == 2
    assert values(campaign) == [("c1", 1.0, "P1"), ("c2", 2.0, "P1"), ("c3", 3.0, "P1")]  # c2 was told twice
    assert campaign.tell(table("c1 c2", [1.0, 2.0], "p1"))["already"]
    with pytest.raises(InputError, match="row 4: the batch 'p1' was renamed to 'P1'; write 'P1', or add --new 'p1'"):
        campaign.tell(table("c1 c2 c4", [1.0, 2.0, 4.0], "p1"))
    assert campaign.tell(table("c1 c2 c4", [1.0, 2.0, 4.0]))["new"] == 1
    assert len(campaign.measurements(current=False)) == 6
    assert campaign.untell(3) == {"gone": 1, "back": 2, "pending": 0}
    assert values(campaign)[:3] == [("c1", 1.0, "p1"), ("c2", 2.0, "P1"), ("c2", 2.0, "p1")]
    campaign.tell(table("c5", 1.0, "Q", replicate=1))
    campaign.tell(table("c5", 2.0, "R", replicate=1))
    with pytest.raises(InputError, match="'Q' and 'R' both have a replicate of one number"):
        campaign.rename("Q", "R")


def test_text_ids_may_join_ids_that_are_numbers(tmp_path):
    """An Excel file gave numbers; they are handed out as text from then on."""
    with Campaign.create(tmp_path / "n.db", POOL[["x"]].assign(id=range(30)), "y", strategy="farthest") as made:
        made.add(pd.DataFrame({"id": ["30"], "x": [0.5]}))
        assert set(made.ask(31, preview=True)["id"]) == set(range(31))
        made.add(pd.DataFrame({"id": ["X1", "007"], "x": [0.2, 0.3]}))
        asked = made.ask(33)["id"]
        assert set(asked) == {*map(str, range(31)), "X1", "007"}
        assert made.tell(pd.DataFrame({"id": ["X1", "7"], "y": [1.0, 2.0]}))["completed"] == 2


def test_a_tell_is_taken_back(address):
    with create(address) as campaign:
        asked = campaign.ask(2)["id"].tolist()
        wrong = table(" ".join([*asked, "c9"]), [1.0, 2.0, 9.0])
        assert campaign.tell(wrong)["completed"] == 2
        before = campaign.measurements()
        assert campaign.tell(table(asked[0], 5.0), correct=True)["superseded"] == 1
        with pytest.raises(InputError, match="tell 1 was changed by tell 2; take back 2 first, then 1"):
            campaign.untell(1)
        assert campaign.untell(2) == {"gone": 1, "back": 1, "pending": 0}
        assert sorted(campaign.measurements()["y"]) == sorted(before["y"])
        with pytest.raises(InputError, match="2 was taken back already"):
            campaign.untell(2)
        assert campaign.untell(1) == {"gone": 3, "back": 0, "pending": 2}
        assert campaign.measurements().empty
        assert len(campaign.measurements(current=False)) == 5
        assert campaign.status()["tells"] == 2
        assert all(check.ok for check in campaign.doctor()), campaign.doctor()


def test_what_was_taken_back_can_be_told_again(campaign):
    asked = campaign.ask(2)["id"].tolist()
    file = table(" ".join(asked), [1.0, 2.0])
    campaign.tell(file)
    grown = table(" ".join([*asked, "c9"]), [1.0, 2.0, 9.0])
    campaign.tell(grown)
    assert campaign.untell(1) == {"gone": 2, "back": 0, "pending": 2}
    assert campaign.pending()["id"].tolist() == asked
    assert values(campaign) == [("c9", 9.0, "P1")]
    told = campaign.tell(grown)
    assert (told["new"], told["known"], told["completed"]) == (2, 1, 2)
    assert len(values(campaign)) == 3
    for tell in (1.5, "x", None, 0):  # 1.5 took back tell 1
        with pytest.raises(InputError, match="a tell is called by its number in the history"):
            campaign.untell(tell)
    with pytest.raises(InputError, match="77 is no tell that can be taken back"):
        campaign.untell(77)


def test_a_well_is_pending_again_beside_its_replicate(campaign):
    asked = campaign.ask(1, replicates=2)["id"].tolist()
    for _ in range(2):
        told = campaign.tell(table(asked[0], 1.0))
        assert told["pending"] == 1
        assert campaign.untell(told["tell"])["pending"] == 1
        assert campaign.status()["pending"] == 2


def test_a_candidate_is_pending_in_one_batch_only(campaign):
    asked = campaign.ask(1)["id"].tolist()
    told = campaign.tell(table(asked[0], 1.0))
    campaign.exclude([one for one in campaign.predict()["id"] if one != asked[0]], "none is left")
    assert campaign.ask(1)["id"].tolist() == asked
    assert campaign.untell(told["tell"])["pending"] == 0
    assert campaign.pending()["id"].tolist() == asked


def test_a_forgotten_batch_column_is_added_later(tmp_path):
    with create(tmp_path / "c.db", batch=None) as campaign:
        first = table("c1 c2 c2", [1.0, 2.0, 2.5], ["A", "A", "B"])
        told = campaign.tell(first)
        assert told["new"] == 3
        assert told["warnings"][0].startswith("the column 'plate' is not used; if what it names shares a shift")
        campaign.tell(first.assign(y=[1.0, 2.0, 3.5]), correct=True)
        assert campaign.change(batch="plate") == {"batch": "plate"}
        with pytest.raises(InputError, match="no column 'plate'"):
            campaign.tell(first[["id", "y"]])
        told = campaign.tell(first.assign(y=[1.0, 2.0, 3.5]))
        assert (told["new"], told["placed"], told["superseded"], told["unrequested"]) == (0, 3, 3, 0)
        assert values(campaign) == [("c1", 1.0, "A"), ("c2", 2.0, "A"), ("c2", 3.5, "B")]
        assert campaign.tell(first.assign(y=[1.0, 2.0, 3.5]))["already"]
        with pytest.raises(InputError, match="the batch column is 'plate'; rename the column of the file"):
            campaign.change(batch="day")
        assert all(check.ok for check in campaign.doctor()), campaign.doctor()


def test_a_preview_keeps_nothing_and_replicates_are_wells(campaign):
    before = fingerprint(campaign.store)
    seen = campaign.ask(3, preview=True)
    assert fingerprint(campaign.store) == before
    asked = campaign.ask(3, replicates=2, request="r")
    assert asked["id"].tolist() == [name for name in seen["id"] for _ in range(2)]
    assert asked.replicate.tolist() == [1, 2] * 3
    assert asked.reason[1].startswith("well 2 of 2: fills the space")
    assert campaign.ask(3, replicates=2, request="r").equals(asked)
    assert campaign.status()["pending"] == 6
    told = campaign.tell(asked[["id", "replicate"]].assign(y=np.arange(6.0), plate="P1"))
    assert (told["new"], told["completed"]) == (6, 6)
    campaign.ask(2)
    found = campaign.batches()
    assert found[["batch", "points", "pending", "completed"]].to_numpy().tolist() == [[1, 6, 0, 6], [2, 2, 2, 0]]
    assert campaign.pending(ask=1).empty
    assert len(campaign.pending(ask=2)) == 2
    with pytest.raises(InputError, match="there is no batch 3; 'aicau batches' lists them"):
        campaign.pending(ask=3)
    with pytest.raises(InputError, match="there is no batch"):
        campaign.pending("1")


def test_a_slip_is_pointed_out_until_it_is_corrected(campaign, tmp_path):
    batch = campaign.ask(10)
    y = 11 + 0.1 * np.arange(10.0)
    y[4] = 111098
    told = campaign.tell(table(" ".join(batch["id"]), y))
    assert told["new"] == 10
    assert told["warnings"][0].startswith("row 6: 111098 is far from what is known (about 11")
    (words,) = campaign.warnings()
    assert words.startswith(f"y 111098 of {batch['id'][4]!r} on 'P1' (tell 1) is far from what was known")
    assert campaign.status()["warnings"] == [words]
    assert f"<li>{escape(words)}</li>" in campaign.report(tmp_path / "r.html").read_text()
    campaign.tell(table(batch["id"][4], 11.1098), correct=True)
    assert campaign.warnings() == []
    assert "111098" not in campaign.report(tmp_path / "r.html").read_text()


def test_a_skewed_target_is_no_alarm(campaign):
    assert campaign.tell(table(" ".join(POOL["id"]), np.exp(np.linspace(0, 9, 30))))["warnings"] == ()
    assert campaign.tell(table("c1", 1e30, "P2"))["warnings"] == (
        "row 2: 1e+30 is far from what is known (about 1.36); it is stored; is it a slip? replace it with --correct",
    )


def test_integer_ids_come_back_as_integers(tmp_path):
    pool = POOL.assign(id=range(100, 130))
    with Campaign.create(tmp_path / "c.db", pool, "y", strategy="farthest", ignore=["s"]) as campaign:
        batch = campaign.ask(4)
        assert batch["id"].dtype == "int64"
        campaign.tell(pd.DataFrame({"id": batch["id"].astype(str), "y": [1.0, 2.0, 3.0, 4.0]}))
        campaign.tell(pd.DataFrame({"id": batch["id"][:2], "y": [3.0, 4.0], "replicate": 2}))
        assert campaign.measurements()["id"].dtype == "int64"
        said = campaign.predict(details=True)
        assert said["id"].tolist() == list(range(100, 130))
        assert said.s.tolist() == POOL.s.tolist()
        known = said.set_index("id").loc[batch["id"]]
        assert known.measured.tolist() == [2.0, 3.0, 3.0, 4.0]
        assert known.measured_n.tolist() == [2, 2, 1, 1]
        assert said.measured_n.sum() == 6
        assert "measured" not in campaign.predict()
        assert repr(campaign).endswith("c.db: 30 candidates, 4 measured, 0 pending; regression of 'y'>")
        assert "<th>candidates</th><td>30</td>" in campaign._repr_html_()
    with pytest.raises(InputError, match=r"open a campaign with Campaign.open\('nofile.db'\), or make one with"):
        Campaign("nofile.db")


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[1] / "data" / "campaigns").glob("*.db")), ids=lambda f: f.stem
)
def test_campaigns_of_earlier_versions_change_too(file, tmp_path):
    shutil.copy(file, tmp_path / "old.db")
    with Campaign.open(tmp_path / "old.db") as old:
        rows = old.measurements()
        assert old.rename("P0", "plate zero") == (rows.plate == "P0").sum()
        old.exclude(["c1", "c2"], "gone")
        old.untell(old.history().number.dropna().max())
        assert sorted(old.measurements().plate) == sorted(rows.plate)
        assert all(check.ok for check in old.doctor()), old.doctor()


def test_candidates_that_come_while_a_batch_is_chosen(tmp_path, monkeypatch):
    """Another station adds some after the model was fitted: the choice is made again, over all of them."""
    pool = pd.DataFrame({"id": [f"c{i}" for i in range(30)], "x": np.linspace(0, 1, 30)})
    with Campaign.create(tmp_path / "c.db", pool, "y") as one, Campaign.open(tmp_path / "c.db") as other:
        batch = one.ask(6)
        one.tell(batch[["id"]].assign(y=np.sin(4 * batch.x)))
        fit, more = type(one.models).fit, [pd.DataFrame({"id": ["n0", "n1"], "x": [0.4, 0.6]})]

        def fit_slowly(self, moment, keep=True):
            model = fit(self, moment, keep)
            if more:
                other.add(more.pop())
                one.status()  # the settings are read anew
            return model

        monkeypatch.setattr(type(one.models), "fit", fit_slowly)
        assert len(one.ask(28)) == 28
        assert one.n == 32
