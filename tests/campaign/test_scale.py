"""Positive targets and costs."""

import numpy as np
import pandas as pd
import pytest
import torch

from aicau import Campaign
from aicau.core.errors import InputError
from aicau.prediction.logarithm import LogPrediction
from aicau.prediction.regression import ValuePrediction


def pool(n=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"id": [f"c{i}" for i in range(n)], "x": rng.random(n), "price": rng.integers(1, 9, n)})


def test_a_prediction_of_logarithms():
    one = torch.ones(2).double()
    inner = ValuePrediction(
        torch.tensor([0.0, 2.0]).double(),
        one,
        one,
        one,
        one,
        0.25 * one,
        torch.zeros(1).double(),
        torch.ones(1).double(),
    )
    said = LogPrediction(inner)
    columns = said.columns()
    assert columns["mean"].tolist() == pytest.approx([1.0, np.exp(2.0)])
    assert (columns["low"] > 0).all()
    assert np.allclose(columns["low"] * columns["high"], columns["mean"] ** 2)
    assert columns["bias"].tolist() == [1.0, 1.0]
    assert said.check([1.0, 1.0]).loss.tolist() == pytest.approx([0.0, 4.0])
    words, numbers = said.summary(1)
    assert numbers["prediction"] == pytest.approx(np.exp(2.0))
    assert "a factor" in words


def test_a_campaign_on_a_log_scale(tmp_path):
    table = pool()
    with Campaign.create(tmp_path / "c.db", table, target="y", scale="log") as made:
        batch = made.ask(10)
        made.tell(pd.DataFrame({"id": batch["id"], "y": np.exp(4 * batch.x)}))
        said = made.predict()
        assert (said.low > 0).all()
        assert (said.new_low > 0).all()
        assert np.abs(np.log(said["mean"]) - 4 * table.x).mean() < 0.3
        with pytest.raises(InputError, match="row 2: y is 0, and --scale log needs positive values"):
            made.tell(pd.DataFrame({"id": ["c1"], "y": [0.0]}))
        assert "ln y" in made.advice()
    with pytest.raises(InputError, match="only values have a scale"):
        Campaign.create(tmp_path / "d.db", table, target="y", scale="log", task="count")


def test_a_budget_is_kept_and_the_best_come_first(tmp_path):
    table = pool()
    with Campaign.create(tmp_path / "c.db", table, target="y", cost="price") as made:
        assert "price" not in made.status()["features"]
        free, batch = made.ask(10, request="a", budget=1000.0), None
        assert len(free) == 10
        batch = made.ask(10, request="b", budget=12.0)
        assert 0 < batch.price.sum() <= 12
        assert made.ask(10, request="b", budget=12.0)["id"].tolist() == batch["id"].tolist()
        assert batch.reason[0].endswith("of the budget are left")
        with pytest.raises(InputError, match=r"costs 0\.5 or less; raise the budget"):
            made.ask(3, budget=0.5)
        free = table.iloc[:1].assign(id="free", price=0.0)
        with pytest.raises(InputError, match="row 2, column 'price': a cost is a number above 0"):
            made.add(free)
    with Campaign.create(tmp_path / "d.db", table, target="y") as made, pytest.raises(InputError, match="needs costs"):
        made.ask(3, budget=5.0)
    with pytest.raises(InputError, match="a cost is a number above 0"):
        Campaign.create(tmp_path / "e.db", table.assign(price=0), target="y", cost="price")
