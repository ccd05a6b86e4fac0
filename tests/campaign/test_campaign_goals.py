"""What counts: goals and weights of a campaign, stored, overridden for one batch, and said in the reason."""

import json

import numpy as np
import pandas as pd
import pytest

from aicau import Campaign, query
from aicau.core.errors import InputError


def pool(n=60):
    x = np.random.default_rng(0).random((n, 2))
    return pd.DataFrame({"id": [f"c{i}" for i in range(n)], "a": x[:, 0], "b": x[:, 1], "value": np.arange(n) % 4})


def truth(frame):
    return 3 * frame["a"] - frame["b"]


@pytest.fixture
def campaign(tmp_path):
    with Campaign.create(tmp_path / "c.db", pool(), "y", goal="MAX", weight="value") as made:
        some = pool().iloc[::5]
        made.tell(pd.DataFrame({"id": some["id"], "y": truth(some)}))
        yield made


def numbers(campaign):
    with campaign.store.reading() as session:
        return [json.loads(row.numbers) for row in session.proposals(None, None)]


def test_the_goal_of_a_campaign_is_kept_and_decides(campaign):
    assert campaign.settings["goal"] == "max"
    assert campaign.status()["weight"] == "value"
    assert campaign.status()["features"] == ["a", "b"]  # what counts is no feature
    best = campaign.ask(4)
    assert (best["value"] > 0).any()
    assert truth(best).mean() > truth(pool()).mean() + truth(pool()).std()
    assert best["reason"].str.contains("goal max: the chance that it is among the best twentieth is").all()
    assert best["reason"].str.contains("its weight by value is [0123]").all()
    assert all(0 <= one["chance"] <= 1 and one["goal"] == "max" for one in numbers(campaign))
    low = campaign.ask(4, goal="below:-0.5")
    assert truth(low).mean() < truth(best).mean() - truth(pool()).std()
    assert low["reason"].str.contains("goal below:-0.5: the chance that it lies below -0.5 is").all()
    assert campaign.settings["goal"] == "max"


def test_what_was_found_is_not_looked_for_again(tmp_path):
    """The best points are measured once each: their chance to be wanted is 1, and nothing is left to find there."""
    frame = pool(120)
    with Campaign.create(tmp_path / "f.db", frame.drop(columns="value"), "y", goal="max") as made:
        some = frame.iloc[::12]
        asked = list(some["id"])
        made.tell(pd.DataFrame({"id": some["id"], "y": truth(some)}))
        for _ in range(4):
            batch = made.ask(5)
            asked += list(batch["id"])
            made.tell(pd.DataFrame({"id": batch["id"], "y": truth(batch)}))
    assert len(set(asked)) == len(asked)
    best = frame["id"][truth(frame).sort_values().index[-6:]]
    assert set(best) <= set(asked)


def test_what_cannot_count_is_refused_and_changes_nothing(campaign, tmp_path):
    with pytest.raises(InputError, match="did you mean 'max'"):
        campaign.ask(2, goal="maxi")
    with pytest.raises(InputError, match="unknown column of weights 'worth'; known: a, b, value"):
        campaign.ask(2, weight="worth")
    assert len(campaign.pending()) == 0
    bad = pool().assign(value=-1.0)
    with pytest.raises(InputError, match=r"row 2, column .value.: a weight is 0 or more"):
        Campaign.create(tmp_path / "d.db", bad, "y", weight="value")
    with pytest.raises(InputError, match="0 everywhere"):
        Campaign.create(tmp_path / "d.db", bad.assign(value=0), "y", weight="value")
    with pytest.raises(InputError, match="the results here are labels; use the goal map"):
        Campaign.create(tmp_path / "d.db", pool(), "y", task="classification", goal="max")
    assert not (tmp_path / "d.db").exists()


def test_a_column_that_is_no_weight_is_refused_when_it_comes(campaign, tmp_path):
    """Once it was kept, and every later batch failed."""
    with Campaign.create(tmp_path / "n.db", pool().assign(s="oil"), "y", ignore=["s"]) as made:
        with pytest.raises(InputError, match="unknown column of weights 'worth'; known: "):
            made.ask(2, weight="worth")  # though the first batch counts all alike
        with pytest.raises(InputError, match="the weights in column 's' must be 0 or more"):
            made.change(weight="s")
        assert made.settings["weight"] is None
    more = pd.DataFrame({"id": ["n1"], "a": [0.5], "b": [0.5], "value": [-1.0]})
    with pytest.raises(InputError, match="row 2, column 'value': a weight is 0 or more"):
        campaign.add(more)
    assert campaign.add(more.assign(value=0.0))["added"] == 1
    assert len(campaign.ask(2)) == 2


def test_query_takes_weights():
    x = pool()[["a", "b"]].to_numpy()
    y = np.where(np.arange(60) % 5 == 0, truth(pool()), np.nan)
    right = x[:, 0] > 0.5
    for side in (right, ~right):
        chosen = query("br:posterior:gain", x, y, batch_size=3, weight=side.astype(float))
        assert side[chosen].all()
    with pytest.raises(InputError, match="one number per row of X, 0 or more"):
        query("br:posterior:gain", x, y, weight=np.ones(3))
