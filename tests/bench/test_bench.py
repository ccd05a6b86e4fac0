"""The comparison: its numbers on made-up results, and small suites from end to end."""

import json
import math
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from bench.__main__ import main
from bench.methods import DEFAULT, REFERENCE
from bench.suites import Panel, Settings

import commands
from aicau import MLP, problems
from aicau.core.engine import Engine
from aicau.core.errors import InputError
from aicau.ensembles.kernels import MLPSettings
from bench import methods, peers, phase
from bench import report as bench_report
from bench import scores as bench_scores
from bench import suites as bench

QUICK = MLP(settings=MLPSettings(max_epochs=5))


def made_up(curves, panel="p"):
    """A tidy frame from {strategy: (run, round) errors}; rounds at 10, 20 and 40 points and so on."""
    rows = []
    for word, runs in curves.items():
        for run, values in enumerate(runs):
            rows += [("toy", panel, "paper", word, run, k, 10 * 2**k, mse, "") for k, mse in enumerate(values)]
    columns = ["suite", "panel", "model", "strategy", "run", "round", "points", "mse", "queried"]
    return pd.DataFrame(rows, columns=columns)


class TestScores:
    def test_the_last_round_and_the_area_on_the_way(self):
        frame = made_up({"a": [[4.0, 2.0, 1.0]], "b": [[4.0, 4.0, 4.0]]})
        assert bench_scores.final(frame, "p").to_dict() == {"a": {0: 1.0}, "b": {0: 4.0}}
        # from 10 to 20 the mean is 3, from 20 to 40 it is 1.5
        assert bench_scores.area(frame, "p").to_dict() == {"a": {0: (10 * 3 + 20 * 1.5) / 30}, "b": {0: 4.0}}

    def test_ratio_is_paired_and_geometric(self):
        table = pd.DataFrame({"a": [1.0, 4.0], "b": [2.0, 2.0]})
        assert bench_scores.ratio(table, "a", "b").mean == pytest.approx(1)
        steady = bench_scores.ratio(pd.DataFrame({"a": [1.0, 3.0, 9.0], "b": [2.0, 6.0, 18.0]}), "a", "b")
        assert (steady.mean, steady.low, steady.high) == pytest.approx((0.5, 0.5, 0.5))
        assert bench_scores.ratio(table, "a", "c") is None
        assert bench_scores.ratio(table, "a", None) is None

    def test_share_of_the_gain(self):
        table = pd.DataFrame({"random": [10.0, 12.0], "ours": [7.0, 9.0], "best": [6.0, 8.0]})
        share = bench_scores.share(table, "ours", "best")
        assert (share.mean, share.low, share.high) == pytest.approx((0.75, 0.75, 0.75))
        assert bench_scores.share(table, "random", "best").mean == 0
        assert bench_scores.share(table, "best", "best").mean == 1
        assert bench_scores.share(table, "ours", "random") is None  # the reference gains nothing
        assert bench_scores.share(table, "ours", "absent") is None
        assert math.isnan(bench_scores.share(table[:1], "ours", "best").low)

    def test_the_best_of_some(self):
        table = pd.DataFrame({"a": [1.0, 9.0], "b": [4.0, 4.0], "c": [0.0, 0.0]})
        assert bench_scores.best(table, ("a", "b", "absent")) == "b"
        assert bench_scores.best(table, ("absent",)) is None

    def test_ranks_with_ties_over_panels_and_runs(self):
        one = pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 2.0], "c": [3.0, 5.0]})
        two = pd.DataFrame({"a": [1.0, 1.0], "b": [5.0, 2.0], "c": [4.0, 3.0], "only here": [0.0, 0.0]})
        ranks = bench_scores.ranks([one, two], ["c", "b", "a", "only here"])
        assert ranks.mean.to_dict() == {
            "a": (1 + 1.5 + 1 + 1) / 4,
            "b": (2 + 1.5 + 3 + 2) / 4,
            "c": (3 + 3 + 2 + 3) / 4,
        }
        assert list(ranks.mean.index) == ["a", "b", "c"]
        assert ranks.blocks == 4
        assert ranks.with_the_best() == ["a", "b", "c"]  # 2.75 − 1.125 < 2.343·√½
        assert bench_scores.ranks([one], ["a"]) is None

    @pytest.mark.parametrize(("k", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
    def test_critical_difference_of_demsars_table(self, k, q):
        assert bench_scores.critical_difference(k, 30) == pytest.approx(q * math.sqrt(k * (k + 1) / 180), rel=1e-3)


class TestLineup:
    def test_everyone_takes_part(self, monkeypatch):
        monkeypatch.setattr(methods, "installed", lambda name: True)
        words, notes = methods.lineup(MLP())
        assert notes == []
        assert len(words) == len(set(words)) == 3 + 8 + 1 + 2 + len(peers.PEERS)
        assert set(methods.STRONG) <= set(words)
        assert {DEFAULT, REFERENCE, "random", "farthest", "lc", "pemse:quadratic:eigen:difference"} <= set(words)
        assert methods.families(words)[REFERENCE] == "cheats"
        assert all(methods.method(word).name == word for word in words)

    def test_peers_that_are_missing_are_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "bmdal_reg", None)
        words, notes = methods.lineup(MLP())
        assert not set(methods.STRONG) & set(words)
        assert "Not installed, so not compared: lcmd:grad" in notes[0]

    def test_gradients_need_networks(self, monkeypatch):
        monkeypatch.setattr(methods, "installed", lambda name: True)
        words, notes = methods.lineup(object())
        assert "lcmd:sigma" in words
        assert "lcmd:grad" not in words
        assert "Gradient features need" in notes[0]

    def test_what_cannot_be_meant(self):
        with pytest.raises(InputError, match="unknown suite 'x'; known: classes, noisy, phase, real, toy"):
            Settings("x")
        with pytest.raises(InputError, match="unknown ensemble 'x'"):
            Settings(ensemble="x")
        with pytest.raises(InputError, match="with --gp"):
            methods.method("qnipv")
        with pytest.raises(InputError, match="unknown acquisition"):
            methods.method("nothing")
        with pytest.raises(InputError, match="unknown panel 'x'; known: type1-10"):
            bench.panels(Settings(panels=("x",)))
        with pytest.raises(InputError, match="name their folder with --data"):
            bench.panels(Settings("real"))


def test_the_suites():
    made, _ = bench.panels(Settings("toy"))
    assert [panel.name for panel in made] == [f"type{t}-{n}" for n in (10, 100) for t in (1, 2, 3)]
    assert {(panel.batch_size, panel.rounds) for panel in made} == {(10, 10)}
    noisy, _ = bench.panels(Settings("noisy"))
    assert [panel.name for panel in noisy] == [f"type{t}-{n}" for n in (10, 100) for t in (2, 3)]
    assert {panel.problem.noise_scale for panel in noisy} == {5.0}


def test_a_comparison_is_written_whole(monkeypatch, tmp_path):
    panels = [Panel(f"type2-{n}", problems.make("type2", grid=9), n, 3, 2) for n in (6, 9)]
    monkeypatch.setattr(bench, "panels", lambda settings: (list(panels), ["Left out: nothing."]))
    words = ("random", "farthest", "lc", REFERENCE, "pemse:direct:spread", DEFAULT)
    seen = []
    settings = Settings("toy", words, 2)
    summary = bench_report.compare(settings, tmp_path, "cpu", lambda *a: seen.append(a), ensemble=QUICK)
    frame = pd.read_parquet(tmp_path / "bench.parquet")
    assert len(frame) == 2 * 6 * 2 * 3
    start = frame[frame["round"] == 0].groupby(["panel", "run"])
    assert (start["mse"].nunique() == 1).all()  # the same model on the same points
    assert (start["queried"].nunique() == 1).all()
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert set(summary["ranks"]["mean"]) == set(words) - {REFERENCE}
    assert summary["ranks"]["blocks"] == 4
    text = (tmp_path / "bench.md").read_text()
    assert f"## `{DEFAULT}` in each panel" in text
    assert "## Where it loses" in text
    assert "- Left out: nothing." in text
    for name in ("curves.png", "critical-difference.png", "scores.csv", "bench.csv"):
        assert (tmp_path / name).stat().st_size > 500
    assert not list(tmp_path.glob(".*partial*"))
    assert (summary["scores"][0]["seconds"]) > 0
    assert seen[0] == ("type2-6", 0, 6)


def test_losses_are_told():
    frame = made_up({DEFAULT: [[1.0, 2.0], [1.0, 2.1]], "lc": [[1.0, 1.0], [1.0, 1.05]], REFERENCE: [[1, 0.1]] * 2})
    outcome = bench.Outcome(Settings(runs=2), [], frame, pd.DataFrame())
    text = "\n".join(bench_report._losses(outcome, ["p"]))
    assert "Beyond doubt (the interval lies above 1):\n\n- p: `lc`; ratio of errors 2.00 [2.00, 2.00]" in text
    assert REFERENCE not in text


def test_gp_lines_stand_beside(monkeypatch):
    pytest.importorskip("botorch", reason="the extra peers is not installed")
    panel = Panel("type2-6", problems.make("type2", grid=6), 6, 2, 1)
    monkeypatch.setattr(bench, "panels", lambda settings: ([panel], []))
    monkeypatch.setattr(methods, "installed", lambda name: name == "qnipv")
    outcome = bench.run(Settings(strategies=("random",), runs=1, gp=True), "cpu", ensemble=QUICK)
    assert outcome.frame.groupby("strategy")["model"].first().to_dict() == {"random": "paper", "qnipv": "own"}
    assert "hetgpy" in outcome.notes[0]
    assert bench_report.rank(outcome, methods.families(["random", "qnipv"])) is None


@pytest.fixture
def sets(tmp_path):
    """A plain set of 90 points and a folder that is none."""
    x = np.random.default_rng(0).normal(size=(90, 2))
    (tmp_path / "data" / "good").mkdir(parents=True)
    (tmp_path / "data" / "bad").mkdir()
    table = pd.DataFrame({"num_a": x[:, 0], "num_b": x[:, 1], "y": x.sum(1)})
    table.to_csv(tmp_path / "data" / "good" / "data.csv", index=False)
    return tmp_path / "data"


def test_real_panels(sets):
    (panel,), notes = bench.panels(Settings("real", data=sets))
    assert (panel.name, panel.initial, panel.batch_size, panel.rounds) == ("good", 9, 5, 10)
    assert "bad holds no data set" in notes[0]
    with pytest.raises(InputError, match="no data set under"):
        bench.panels(Settings("real", data=sets, panels=("bad",)))


def test_the_command(sets, tmp_path):
    words = ["--strategy", "random", "--strategy", "farthest"]
    own = ["--suite", "real", "--data", str(sets), "--runs", "2", "--out", str(tmp_path / "out"), "--json"]
    done = subprocess.run([sys.executable, "-m", "bench", *own, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert {row["strategy"] for row in data["scores"]} == {"random", "farthest"}
    assert "bench.md" in data["files"]
    assert (tmp_path / "out" / "summary.json").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--suite", "nothing"], "unknown suite 'nothing'; known: classes, noisy, phase, real, toy"),
        (["--suite", "real"], "name their folder with --data"),
        (["--suite", "real", "--data", "no/such/folder"], "is not a folder"),
        (["--suite", "phase", "--gp"], "leave out --data"),
        (["--strategy", "nothing"], "unknown acquisition"),
        (["--runs", "0"], "runs must be a whole number"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(arguments, sentence):
    code, out, err = commands.run(*arguments, main=main)
    assert (code, out) == (2, "")
    assert sentence in err


class TestPhase:
    def test_winners_by_hand(self):
        rows = [(1.0, 0.2, word, r, mse) for word, m in {"a": (1, 2), "b": (2, 4)}.items() for r, mse in enumerate(m)]
        rows += [(2.0, 0.2, word, r, mse) for word, m in {"a": (3, 1), "b": (1, 2)}.items() for r, mse in enumerate(m)]
        cells = phase.winners(pd.DataFrame(rows, columns=["noise_scale", "length", "strategy", "run", "mse"]))
        first, second = cells.to_dict("records")
        assert (first["winner"], first["second"], first["mse"], first["decided"]) == ("a", "b", 1.5, True)
        assert first["ratio"] == pytest.approx(0.5)
        assert (second["winner"], second["decided"]) == ("b", False)

    def test_the_diagram_is_written(self, monkeypatch, tmp_path):
        cells = [(scale, length) for scale in (1.0, 5.0) for length in (0.2, math.pi / 2)]
        made = [problems.make("type3", grid=8, noise_scale=s, correlation_length=x) for s, x in cells]
        panels = [Panel(str(cell), one, 10, 10, 1) for cell, one in zip(cells, made, strict=True)]
        monkeypatch.setattr(bench, "panels", lambda settings: (panels, []))
        summary = phase.diagram(Settings("phase", ("random", "farthest"), 2), tmp_path, "cpu", ensemble=QUICK)
        assert len(summary["cells"]) == 4
        assert len(pd.read_csv(tmp_path / "phase-runs.csv")) == 4 * 2 * 2
        assert (tmp_path / "phase.png").stat().st_size > 5000
        assert "| × 5 | π/2 |" in (tmp_path / "phase.md").read_text()
        with pytest.raises(InputError, match="at least two"):
            Settings("phase", ("random",))


def test_several_processes_give_the_same_numbers():
    settings = Settings("toy", ("random", "lc"), 3, panels=("type2-10", "type1-10"))
    seen = []
    alone = bench.run(settings, "cpu", ensemble=QUICK)
    together = bench.run(settings, "cpu", lambda *a: seen.append(a), QUICK, Engine(jobs=2))
    key = ["panel", "strategy", "run", "round"]
    a, b = (one.frame.sort_values(key, ignore_index=True) for one in (alone, together))
    pd.testing.assert_frame_equal(a, b)
    assert alone.frame["panel"].unique().tolist() == together.frame["panel"].unique().tolist()
    assert seen[-1][1] == seen[-1][2] > 0
    with pytest.raises(InputError, match="jobs"):
        bench.run(settings, "cpu", ensemble=QUICK, engine=Engine(jobs=0))
