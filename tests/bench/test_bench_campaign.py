"""`bench campaign`: one small data set through every kind of line, and the page of known numbers."""

import numpy as np
import pandas as pd
import pytest
import torch
from bench.campaign import Task, judge, page, play
from bench.classes import Panel
from bench.lines import Said

from aicau.core.observations import Observations
from aicau.core.streams import runs
from aicau.problems import TableProblem


@pytest.fixture(scope="module")
def panel():
    x = np.random.default_rng(1).random((50, 2))
    y = np.sin(4 * x[:, 0]) + x[:, 1]
    return Panel("wave", TableProblem.from_arrays("wave", x, list(range(50)), list(range(50)), y), 12, 4, 1)


@pytest.mark.parametrize("line", ["aicau", "random+forest", "random+process", "lc"])
def test_a_line_plays_all_rounds_from_the_same_start(panel, line):
    rows = play(Task(panel, line, 1, 0, "map"))
    assert [row["points"] for row in rows] == [12, 16]
    assert rows[1]["mse"] < 0.5  # the variance is about 0.5
    assert (0 <= rows[1]["coverage"] <= 1) == (line in ("aicau", "random+process"))


def test_judged_by_hand(panel):
    problem = panel.problem
    truth = problem.truth
    best = truth.topk(2).indices
    rows = Observations(best[None, :1], truth[best[:1]][None], torch.zeros(1, dtype=torch.int64))
    said = Said.normal(truth + 1, torch.full((50,), 2.0).double(), torch.full((50,), 0.5).double())
    found = judge(said, problem, rows, runs(0, 1), "max")
    assert found["mse"] == pytest.approx(1)
    assert found["coverage"] == 0  # one is 2 standard deviations of a new measurement
    assert found["found"] == 0.5
    assert found["regret"] == 0
    assert judge(said, problem, rows, runs(0, 1), "above:100")["log_loss"] < 1e-5
    assert judge(said, problem, rows, runs(0, 1), "below:100")["log_loss"] < 1e-5


def test_the_page_says_where_aicau_loses():
    rows = []
    for run in range(4):
        for name, error in (("easy", 0.5), ("hard", 2.0)):
            for line, by in (("aicau", error), ("other", 1.0)):
                own = {"panel": name, "strategy": line, "run": run, "round": 1, "points": 20, "coverage": 0.9}
                rows.append(own | {"mse": by * (1 + run / 100), "seconds": 1.0})
    text = page(pd.DataFrame(rows), "map")
    assert "| other | 1.000 | 1.50 | 0.900 | 2 of 2 | 1.00 |" in text
    assert "- hard: 2.00 [2.00, 2.00] of the error of other" in text
    assert "- easy" not in text
