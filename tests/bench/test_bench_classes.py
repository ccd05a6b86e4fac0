"""The suite of classes from end to end, the share of queries in pure noise, and BatchBALD through its package."""

import importlib.util

import numpy as np
import pandas as pd
import pytest
import torch
from bench.classes import DEFAULT, Panel
from bench.suites import Settings

from aicau import View, problems
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.task import Task
from aicau.ensembles import MLP
from aicau.ensembles.kernels import MLPSettings
from bench import classes as bench_classes
from bench import methods, peers
from bench import report as bench_report
from bench import suites as bench

QUICK = MLP(task=Task("classification", 3), settings=MLPSettings(max_epochs=10))


def test_the_suite():
    made, _ = bench.panels(Settings("classes"))
    kinds = ("class1", "class2", "class3", "class2x4", "class3x4")
    assert [panel.name for panel in made] == [f"{kind}-{n}" for n in (20, 100) for kind in kinds]
    assert {panel.problem.task for panel in made} == {Task("classification", 3)}
    assert made[3].problem.noise_scale == 4
    words, notes = bench_classes.lineup(False)
    assert DEFAULT in words
    assert Settings("classes").default == DEFAULT
    assert methods.method("default", made[0].problem.task).acquisition == methods.method(DEFAULT).acquisition
    assert "batchbald" not in words
    assert "batchbald" in notes[0]
    with pytest.raises(InputError, match="softmax head"):
        Settings("classes", ensemble="process")


def test_it_is_written_whole(monkeypatch, tmp_path):
    panel = Panel("class2-12", problems.class2(grid=10), 12, 3, 2)
    monkeypatch.setattr(bench, "panels", lambda settings: ([panel], []))
    monkeypatch.setattr(bench_classes.problems, "class2", lambda: panel.problem)
    words = ("random", "entropy", "lc:difference", "br:perfect:spread", DEFAULT)
    summary = bench_report.compare(Settings("classes", words, 2), tmp_path, "cpu", ensemble=QUICK)
    assert {row["strategy"] for row in summary["scores"]} == set(words)
    text = (tmp_path / "bench.md").read_text()
    for part in (
        "final excess log loss",
        "BatchBALD",
        "nothing to learn",
        "| `entropy` |",
        "## `trust:spread` in each panel",
    ):
        assert part in text
    assert (tmp_path / "label-noise.png").stat().st_size > 10_000
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_share_of_queries_in_pure_noise():
    pure = problems.class2().pure_noise.nonzero()[:, 0].tolist()
    other = (~problems.class2().pure_noise).nonzero()[:, 0].tolist()
    half, none = f"{pure[0]} {other[0]}", f"{other[1]} {other[2]}"
    rows = [
        ("class2-20", "entropy", 0, 0, none),
        ("class2-20", "entropy", 0, 1, half),
        ("class2-20", "entropy", 1, 1, none),
        ("class3-20", "entropy", 0, 1, half),
    ]
    frame = pd.DataFrame(rows, columns=["panel", "strategy", "run", "round", "queried"])
    shares = bench_classes.noise_shares(frame)
    assert list(shares) == ["class2-20"]
    np.testing.assert_allclose(shares["class2-20"]["entropy"], [0.25])


def a_view(runs=2, members=4):
    problem = problems.class2(grid=8)
    keys = streams.runs(0, runs)
    predictions = torch.softmax(3 * torch.randn(runs, members, 64, 3, generator=torch.Generator().manual_seed(0)), -1)
    allowed = torch.ones(runs, 64, dtype=torch.bool)
    allowed[:, ::2] = False
    return View(problem.pool.coordinates, allowed, ~allowed, keys, predictions, task=problem.task)


def test_batchbald_says_what_is_missing(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "batchbald_redux", None)
    monkeypatch.delitem(sys.modules, "batchbald_redux.batchbald", raising=False)
    with pytest.raises(InputError, match=r"needs the extra peers: pip install --no-deps batchbald_redux"):
        peers.CLASS_PEERS["batchbald"].choose(a_view(), 2)
    values = View(torch.rand(5, 2).double(), torch.ones(1, 5) > 0, torch.ones(1, 5) > 1, streams.runs(0, 1))
    with pytest.raises(InputError, match="is about classes"):
        peers.CLASS_PEERS["batchbald"].choose(values, 2)


@pytest.mark.skipif(importlib.util.find_spec("batchbald_redux") is None, reason="batchbald_redux is not installed")
@pytest.mark.filterwarnings("ignore")
def test_batchbald_starts_where_bald_is_largest_and_goes_on_by_joint_information():
    from aicau.acquisition.scores import mutual_information

    view = a_view()
    chosen = peers.CLASS_PEERS["batchbald"].choose(view, 4).selection.index
    bald = mutual_information(view.task.members(view.predictions))
    bald = torch.where(view.allowed, bald, -1.0)
    assert torch.equal(chosen[:, 0], bald.argmax(-1))
    assert bool(view.allowed.gather(-1, chosen).all())
    assert torch.equal(peers.CLASS_PEERS["batchbald"].choose(view[1:], 4).selection.index, chosen[1:])
