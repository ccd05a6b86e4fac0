"""Several targets, a plate for a running campaign, and values that are confirmed, on pages."""

import numpy as np
import pandas as pd
import pytest
from test_pages import JSON, browse

from aicau import Campaign
from serving import pool


@pytest.fixture
def lab(tmp_path, here):
    """A campaign of two targets with one round of results, one of them a slip."""
    frame = pool(30)
    with Campaign.create(tmp_path / "two.db", frame, ["hit", "dim"], "plate", id="compound") as campaign:
        batch = campaign.ask(10)
        told = pd.DataFrame({"compound": batch["compound"], "hit": np.arange(10.0), "dim": 5 + np.arange(10) % 3})
        told.loc[3, "dim"] = 1e6
        campaign.tell(told.assign(plate="P1"))
        for view in campaign.views():
            view.outlook()
    return browse(tmp_path), told["compound"][3], tmp_path / "two.db"


def test_every_target_is_shown(lab):
    client, _, _ = lab
    for name in ("overview", "noise", "map", "candidates", "results", "next", "history"):
        client.get(f"/c/two/{name}")
        client.ready("two")
        answer = client.get(f"/c/two/{name}")
        assert answer.status_code == 200, name
    text = client.get("/c/two/overview").text
    assert 'aria-label="Figures of hit"' in text
    assert 'aria-label="Figures of dim"' in text
    assert [words[:5] for words in client.get("/c/two/overview.json").json()["advice"]] == ["hit: ", "dim: "]
    assert {"hit_mean", "dim_mean"} <= set(client.get("/c/two/map.json").json()["colours"])


def test_a_value_is_confirmed(lab):
    client, name, path = lab
    client.get("/c/two/noise")
    client.ready("two")
    assert "dim 1e+06 of" in client.get("/c/two/noise").text
    assert client.post("/c/two/confirm", {"ids": [name]}, headers=JSON).json()["confirmed"] == 1
    with Campaign.open(path) as campaign:
        assert campaign.warnings() == []


def test_a_well_that_failed_has_no_value_of_any_target(lab):
    client, _, path = lab
    with Campaign.open(path) as campaign:
        id = campaign.ask(2)["compound"][0]
    answer = client.post("/c/two/failed", {"ids": [id], "batch": "P2"}, headers=JSON)
    assert answer.json()["failed"] == 1
    assert client.get("/c/two/next.json").json()["pending"] == 1


def test_a_running_campaign_gets_a_plate(lab):
    client, _, path = lab
    form = {"layout": "96", "controls": "DMSO=4", "avoid_edges": "true"}
    assert client.post("/c/two/change", form | {"layout": "/etc/passwd"}).status_code == 422  # no path from outside
    client.post("/c/two/change", form)
    client.ready("two")
    with Campaign.open(path) as campaign:
        assert len(campaign.refreshed()["layout"]["wells"]) == 56
        assert "well" in campaign.ask(3)
    assert "DMSO" in client.get("/c/two/next").text


def test_several_targets_are_made_on_the_page(lab):
    client, _, path = lab
    page = client.post("/new", files={"file": ("t.csv", pool(20).to_csv(index=False))}, headers=JSON).json()["page"]
    client.make(page, {"name": "three", "target": "a, b ,c", "id": "compound"})
    with Campaign.open(path.parent / "three.db") as campaign:
        assert list(campaign.targets) == ["a", "b", "c"]
