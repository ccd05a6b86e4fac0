"""`bench campaign`: one small data set through every kind of line, and the page of known numbers."""

import numpy as np
import pandas as pd
import pytest
import torch
from bench.campaign import Contest, Task, collect, judge, page, play, whole
from bench.classes import Panel
from bench.lines import Said, make

from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.streams import runs
from aicau.problems import TableProblem


@pytest.fixture(scope="module")
def panel():
    x = np.random.default_rng(1).random((50, 2))
    y = np.sin(4 * x[:, 0]) + x[:, 1]
    return Panel("wave", TableProblem.from_arrays("wave", x, list(range(50)), list(range(50)), y), 12, 4, 1)


@pytest.mark.parametrize("line", ["aicau", "random+forest", "random+process", "random+aicau", "lc"])
def test_a_line_plays_all_rounds_from_the_same_start(panel, line):
    rows = play(Task(panel, line, 1, 0, "map"))
    assert [row["points"] for row in rows] == [12, 16]
    assert rows[1]["mse"] < 0.5  # the variance is about 0.5
    assert (0 <= rows[1]["coverage"] <= 1) == (line not in ("random+forest", "lc"))


def test_a_threshold_is_judged_by_the_line_and_by_the_same_prediction_for_all(panel):
    first, last = play(Task(panel, "random+aicau", 1, 0, "above:1"))
    assert "same" not in first
    assert last["same"] == last["log_loss"]
    _, other = play(Task(panel, "random+process", 1, 0, "above:1"))
    assert other["same"] == last["same"]  # the same random points
    assert other["log_loss"] != last["log_loss"]


def test_straddle_takes_unsure_points_near_the_threshold(panel):
    pytest.importorskip("botorch")
    with pytest.raises(InputError, match="above:1"):
        make("straddle", panel.problem, runs(0, 1), "map")
    line = make("straddle", panel.problem, runs(0, 1), "above:1")
    truth = panel.problem.truth
    index = torch.arange(0, 50, 2)
    rows = Observations(index[None], truth[index][None], torch.zeros(25, dtype=torch.int64))
    said = line.told(rows, 25, 0)
    room = torch.ones(50, dtype=torch.int64).index_fill(0, index, 0)
    first, second = line.ask(2, room)
    assert {first, second} <= set(range(1, 50, 2))
    assert first != second
    value = 1.96 * said.spread - (said.mean - 1).abs()
    assert first == int(torch.where(room > 0, value, -torch.inf).argmax())


def test_what_was_played_is_kept_and_other_goals_are_refused(tmp_path, panel, monkeypatch):
    contest = Contest(tmp_path, ("random+forest", "random+process"), runs=2)
    tasks = [Task(panel, line, run, 0, "map") for run in range(2) for line in contest.lines]
    monkeypatch.setattr(Contest, "tasks", lambda self: tasks)
    path = tmp_path / "campaign.csv"
    assert collect(contest, path, seconds=0).empty
    tasks.pop()
    found = collect(contest, path)
    assert found.groupby(["strategy", "run"]).size().tolist() == [2, 2, 2]
    assert whole(found)["run"].unique().tolist() == [0]
    monkeypatch.setattr("bench.campaign.play", lambda task: pytest.fail("played again"))
    assert len(collect(contest, path)) == 6
    with pytest.raises(InputError, match="another goal"):
        collect(Contest(tmp_path, goal="max"), path)


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
    assert "| other | 1.000 (0.000 to " in text
    assert "| 1.50 | 0.900 | 2 of 2 | 1.00 |" in text
    assert "- hard: 2.00 [2.00, 2.00] of the error of other" in text
    assert "- easy" not in text
