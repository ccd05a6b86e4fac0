"""A plate for a campaign that runs, and for one batch alone."""

import numpy as np
import pandas as pd
import pytest

from aicau import Campaign
from aicau.campaign import choice
from aicau.core.errors import InputError
from commands import run

POOL = pd.DataFrame({"id": [f"c{i}" for i in range(60)], "x": np.linspace(0, 1, 60)})


@pytest.fixture
def plain(tmp_path):
    with Campaign.create(tmp_path / "c.db", POOL, "y", "plate", strategy="farthest", author="eve") as campaign:
        yield campaign


def results(batch, plate, by="id"):
    return pd.DataFrame({by: batch[by], "y": np.arange(len(batch)) / 7, "plate": plate})


def test_a_running_campaign_gets_a_plate_and_another(plain):
    first = plain.ask(5)
    assert "well" not in first
    with pytest.raises(InputError, match="no layout; give it one: 'aicau change CAMPAIGN --layout 96'"):
        plain.plates()
    plain.change(layout=96, controls={"DMSO": 4}, edges=False)
    second = plain.ask(5)
    assert second["id"].tolist()[5:] == ["DMSO"] * 4
    plain.change(layout=384, controls={"blank": 3})
    third = plain.ask(5)
    assert third["id"].tolist()[5:] == ["blank"] * 3
    assert plain.history().detail.str.contains("layout 16 x 24").sum() == 1
    assert list(plain.layouts()) == [2, 3]
    told = plain.tell(results(first, "P1"))
    assert (told["completed"], told["pending"]) == (5, 10)
    plain.tell(results(third, "P3").assign(well=third.well))
    told = plain.tell(results(second, "P2", by="well"))  # its own controls, though the plate is another now
    assert (told["completed"], told["controls"], told["pending"]) == (5, 4, 0)
    wells = plain.plates()
    assert wells.groupby("ask").size().tolist() == [9, 8]
    assert wells.measured.notna().all()
    assert plain.change(layout="none") == {"layout": None}
    assert plain.pending().empty
    assert "well" not in plain.ask(3)
    with pytest.raises(InputError, match="nothing is to be changed"):
        plain.change(layout="none")
    assert all(check.ok for check in plain.doctor())


def test_a_plate_of_one_batch(plain, tmp_path):
    batch = plain.ask(4, request="a", layout=96, controls={"DMSO": ["A01", "H12"]})
    assert batch.well.tolist()[4:] == ["A01", "H12"]
    assert plain.ask(4, request="a").equals(batch)
    assert "well" not in plain.ask(4, preview=True)
    looked = plain.ask(4, preview=True, layout=96, edges=False)
    assert looked.well.str.slice(0, 1).isin(list("BCDEFG")).all()
    with pytest.raises(InputError, match="do not fit on a plate with 60 free wells"):
        plain.ask(61, layout=96, edges=False)
    with pytest.raises(InputError, match="controls and edges belong to a plate"):
        plain.ask(4, edges=False)
    plain.tell(results(batch, "P1", by="well"))
    plain.export(tmp_path / "out")
    with Campaign.import_(tmp_path / "out", tmp_path / "back.db") as back:
        assert back.layouts() == plain.layouts()
        assert back.plates().equals(plain.plates())


def test_a_plate_that_is_changed_while_a_batch_is_chosen(plain, tmp_path, monkeypatch):
    """The batch stands on the new plate, beside its controls; it was placed on the old one once."""
    plain.change(layout=96)
    plan = choice.choose

    def slow(campaign, *rest):
        rows = plan(campaign, *rest)
        if campaign is plain and len(plain.history()) < 3:
            with Campaign.open(tmp_path / "c.db") as other:
                other.change(layout=96, controls={"DMSO": 60})
        return rows

    monkeypatch.setattr(choice, "choose", slow)
    batch = plain.ask(30)
    assert len(batch) == 90
    assert batch.well.is_unique
    assert all(check.ok for check in plain.doctor())


def test_a_control_is_not_called_as_a_candidate_is(plain, tmp_path):
    """Its results would be those of the control: what was told of the candidate would be lost."""
    plate = {"layout": 96, "controls": {"c1": 2}}
    for verb in (plain.change, lambda **own: plain.ask(3, **own)):
        with pytest.raises(InputError, match="'c1' is a candidate and a control"):
            verb(**plate)
    with pytest.raises(InputError, match="'c1' is a candidate and a control"):
        Campaign.create(tmp_path / "other.db", POOL, "y", "plate", **plate)
    assert not (tmp_path / "other.db").exists()
    plain.ask(3, layout=96, controls={"DMSO": 2})
    with pytest.raises(InputError, match="'DMSO' is a candidate and a control"):
        plain.add(pd.DataFrame({"id": ["n1", "DMSO "], "x": [2.0, 3.0]}))
    assert plain.add(pd.DataFrame({"id": ["n1"], "x": [2.0]}))["added"] == 1


def test_a_plate_needs_names_of_plates(tmp_path):
    with Campaign.create(tmp_path / "c.db", POOL, "y", strategy="farthest") as campaign:
        with pytest.raises(InputError, match="plates have names in the results"):
            campaign.change(layout=96)
        campaign.change(layout=96, batch="plate")  # both at once
        assert "well" in campaign.ask(2)


def test_on_the_command_line(plain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        run(*["change", "c.db", "--layout", "96", "--control", "DMSO=4", "--no-edges"])[1] == "layout is now 56 wells\n"
    )
    assert run("ask", "c.db", "4", "--layout", "384", "--control", "blank=2", "--out", "b.csv")[0] == 0
    assert pd.read_csv("b.csv")["id"].tolist()[4:] == ["blank"] * 2
