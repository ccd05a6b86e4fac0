import importlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import commands
from aicau import MLP, Quadratic
from aicau.core.errors import InputError
from aicau.core.files import write_whole
from aicau.core.statistics import Interval
from aicau.ensembles.kernels import MLPSettings
from aicau.paper import claims, verdicts
from aicau.paper import plan as paper
from aicau.paper.plan import FIGURES, Outcome, Plan
from aicau.paper.reproduce import reproduce
from aicau.paper.verdicts import Verdict
from aicau.strategy import Strategy

QUICK = MLP(settings=MLPSettings(max_epochs=15))


def quick(word, preset):
    """The paper's strategies with a Q that trains for a moment."""
    if "quadratic" in word:
        settings = replace(Quadratic.paper(preset).settings, max_epochs=5)
        return Strategy.parse(word, bias=Quadratic(settings))
    return Strategy.parse(word)


@pytest.fixture
def tiny(monkeypatch):
    """The same experiments on a small grid with three rounds and fewer strategies."""
    for name, figure in list(FIGURES.items()):
        setting = paper.Setting(figure.setting.name, figure.setting.batch_size, 3)
        kept = [
            w for w in figure.strategies if name != "batching" or "direct" not in w or w.endswith("eigen:difference")
        ]
        monkeypatch.setitem(FIGURES, name, paper.Figure(figure.number, setting, tuple(kept)))
    monkeypatch.setattr(paper, "SINGLE", paper.Setting("single", 1, 3))
    monkeypatch.setattr(paper, "BATCH", paper.Setting("batch", 10, 3))
    make = paper.problems.make
    monkeypatch.setattr(paper.problems, "make", lambda kind: make(kind, grid=12))
    run = paper.run
    monkeypatch.setattr("aicau.paper.reproduce.run", lambda *a, **k: run(*a, **k, ensemble=QUICK, make=quick))
    return lambda *a, **k: run(*a, **k, device="cpu", ensemble=QUICK, make=quick)


def test_the_figures_are_the_papers():
    assert [len(figure.strategies) for figure in FIGURES.values()] == [8, 7, 15]
    one = Plan(tuple(FIGURES), presets=("learns",))
    single, _, batch, _ = one.jobs()
    assert len(single[2]) == 12  # random and the two perfect ones are shared between Figures 2 and 4
    assert len(batch[2]) == 15
    assert (single[0].rounds, single[0].batch_size, batch[0].rounds, batch[0].batch_size) == (50, 1, 10, 10)
    rounds = sum(setting.rounds * len(lanes) for setting, _, lanes in one.jobs()) * 3 * 10
    assert rounds == 45_000
    both = Plan(tuple(FIGURES)).jobs()
    assert [len(lanes) for _, _, lanes in both] == [14, 14, 19, 19]  # every strategy with a Q once per preset


def test_presets_are_what_they_say():
    word = "pemse:quadratic:eigen"
    assert {preset: paper.strategy(word, preset).bias.settings.betas for preset in paper.PRESETS} == {
        "learns": (0.9, 0.999),
        "printed": (0.999, 0.9),
        "full-batch": (0.999, 0.9),
    }
    sizes = [paper.strategy(word, preset).bias.settings.batch_size for preset in paper.PRESETS]
    assert sizes[0] == sizes[1] > 1
    assert sizes[2] is None
    assert paper.strategy("pemse:direct") == Strategy.parse("pemse:direct")
    with pytest.raises(InputError, match="unknown preset"):
        Plan(("batching",), presets=("print",))


def test_everything_is_written(tiny, tmp_path):
    summary = reproduce(Plan(("batching", "estimation"), 2, types=("type2", "type3"), initials=(10,)), tmp_path, "cpu")
    for name in ("figure-5-batching", "figure-4-estimation"):
        for kind in ("png", "svg", "parquet", "csv"):
            assert (tmp_path / f"{name}.{kind}").stat().st_size > 1000
    frame = pd.read_parquet(tmp_path / "figure-5-batching.parquet")
    assert " ".join(frame.columns) == "figure type initial strategy preset run round points mse queried"
    assert len(frame) == 2 * 16 * 2 * 4
    assert frame.equals(pd.read_csv(tmp_path / "figure-5-batching.csv").astype({"queried": frame.queried.dtype}))
    assert "| 8 | Types II and III: eigen beats top" in (tmp_path / "claims.md").read_text()
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert not list(tmp_path.glob(".*partial*"))


def test_a_figure_alone_equals_the_figure_within_all(tiny):
    alone = tiny(Plan(("perfect-information",), 2, types=("type3",), initials=(10,))).figure("perfect-information")
    both = tiny(Plan(("perfect-information", "estimation"), 2, types=("type2", "type3"), initials=(10,)))
    within = both.figure("perfect-information")
    within = within[within["type"] == "type3"].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, within)


class Killed(Exception):
    pass


@pytest.mark.parametrize("after", [3, 6])
def test_resuming_gives_the_same_bits(tiny, tmp_path, after):
    plan = Plan(("batching",), 2, types=("type2",), initials=(10, 12))
    whole = tiny(plan)
    count = 0

    def die(*_):
        nonlocal count
        count += 1
        if count > after:
            raise Killed

    with pytest.raises(Killed):
        tiny(plan, state=tmp_path, report=die, every=0.0)
    assert list(tmp_path.glob("*.npz"))
    seen = []
    again = tiny(plan, state=tmp_path, resume=True, report=lambda *a: seen.append(a), every=0.0)
    assert len(seen) == 8 - after  # finished rounds are not computed again
    pd.testing.assert_frame_equal(whole.frame, again.frame, check_exact=True)


def test_a_checkpoint_of_other_settings_or_half_a_file_is_refused(tiny, tmp_path):
    plan = Plan(("batching",), 2, types=("type2",), initials=(10,))
    tiny(plan, state=tmp_path)
    with pytest.raises(InputError, match="other settings"):
        tiny(Plan(("batching",), 3, types=("type2",), initials=(10,)), state=tmp_path, resume=True)
    (path,) = tmp_path.glob("*.npz")
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InputError, match="not a checkpoint"):
        tiny(plan, state=tmp_path, resume=True)


def test_an_interrupted_write_leaves_nothing_that_reads_as_complete(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def half(partial):
        partial.write_text("ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def fake(values, presets=("learns",)):
    """An outcome in which every strategy has the given errors in every panel and round."""
    plan = Plan(tuple(FIGURES), presets=presets)
    rows = []
    for setting, initial, lanes in plan.jobs():
        for word, preset in lanes:
            for kind in paper.TYPES:
                for run, error in enumerate(values(word, kind, initial)):
                    rows += [(setting.name, kind, initial, word, preset, run, k, k, error, "") for k in (1, 2)]
    columns = ["setting", "type", "initial", "strategy", "preset", "run", "round", "points", "mse", "queried"]
    return Outcome(plan, pd.DataFrame(rows, columns=columns))


def words(outcome, measure=verdicts.MEASURES[0]):
    return {v.claim.number: v.word for v in verdicts.judge(outcome) if v.measure == measure}


BASE = np.array([1.0, 1.1, 0.9, 1.05])
JITTER = np.array([1.0, 1.01, 0.99, 1.02])


def test_claims_on_results_made_to_bear_them_out_and_to_refute_them():
    def kind_world(word, kind, initial):
        factor = 0.5 if "perfect" in word else 1.0
        if word == claims.BEST:
            factor = 0.6
        return BASE * JITTER * factor if word != "random" else BASE

    found = words(fake(kind_world))
    assert [found[number] for number in ("1", "9", "10a", "10b", "11", "12")] == ["holds"] * 6
    pooled = next(v.pooled for v in verdicts.judge(fake(kind_world)) if v.claim.number == "1")
    assert pooled.mean == pytest.approx(0.5, abs=0.01)

    def other_world(word, kind, initial):
        return BASE * (2.0 if "perfect" in word or word == claims.BEST else 1.0) * JITTER

    outcome = fake(other_world, ("learns", "printed"))
    found = words(outcome)
    assert [found[number] for number in ("1", "9", "10a", "12")] == ["does not hold"] * 4
    text = verdicts.to_markdown(verdicts.judge(outcome), 4)
    assert re.search(r"\| 10a \| 10 points: quadratic [^|]* \| 2.0\d[^|]* \| 2.0\d[^|]* \|", text)


def test_what_beats_is_not_similar():
    """A ratio of 0.92 in all panels once held for both claims 5 (beats) and 6 (similar)."""

    def world(word, kind, initial):
        return BASE * JITTER if word.endswith("difference") else 0.92 * BASE

    found = words(fake(world))
    assert (found["5"], found["6"], found["2c"]) == ("holds", "does not hold", "does not hold")


def test_ignorance_supports_nothing():
    """Errors that differ wildly from run to run: once "no clear benefit" held there."""
    spread = np.array([0.3, 3.0, 0.5, 2.2])

    def world(word, kind, initial):
        return BASE * (spread if word.endswith("difference") or word == "lc" else 1.0)

    found = words(fake(world))
    assert found["2a"] == found["10b"] == found["11"] == "undecided"


def test_both_measures_are_shown_where_they_disagree():
    outcome = fake(lambda word, kind, initial: BASE)
    frame = outcome.frame
    late = frame["strategy"].eq(claims.BEST) & frame["round"].eq(2)
    frame["mse"] *= np.where(late, 0.5, np.where(frame["strategy"].eq(claims.BEST), 1.5, 1.0)) * np.tile(
        np.repeat(JITTER, 2), len(frame) // 8
    ) ** np.where(frame["strategy"].eq(claims.BEST), 1, 0)
    assert words(outcome)["10a"] == "does not hold"
    assert words(outcome, "final")["10a"] == "holds"
    line = next(x for x in verdicts.to_markdown(verdicts.judge(outcome), 4).splitlines() if x.startswith("| 10a"))
    assert "**does not hold** (final: 0.5" in line


def test_the_stated_table_is_the_documentation():
    path = Path(__file__).parents[2] / "docs" / "claims.md"
    sys.path.insert(0, str(path.parent))
    try:
        stated = importlib.import_module("statement").stated()
    finally:
        sys.path.pop(0)
    assert path.read_text() == stated, "claims.md is out of date: python docs/statement.py"


def test_claims_compare_what_runs_and_only_that():
    lanes = {(setting.name, word) for setting, _, lanes in Plan(tuple(FIGURES)).jobs() for word, _ in lanes}
    by_number = {claim.number: claim for claim in claims.claims()}
    assert len(by_number) == len(claims.claims()) == 18
    for claim in by_number.values():
        assert {(claim.setting, word) for pair in claim.pairs for word in pair} <= lanes
    for number in ("7a", "7b", "8", "9"):
        assert by_number[number].types == ("type2", "type3")
        assert not any("perfect" in word for pair in by_number[number].pairs for word in pair)
    assert {b for _, b in by_number["12"].pairs} == {"lc", "bald"}


@pytest.mark.parametrize(
    ("judge", "interval", "vote"),
    [
        (claims.better, (0.8, 0.7, 0.9), 1),
        (claims.better, (0.97, 0.96, 0.98), -1),
        (claims.better, (0.97, 0.93, 0.99), 0),
        (claims.better, (1.2, 1.1, 1.3), -1),
        (claims.better, (1.0, 0.9, 1.1), 0),
        (claims.not_better, (0.8, 0.7, 0.9), -1),
        (claims.not_better, (1.0, 0.9, 1.1), 0),
        (claims.not_better, (1.0, 0.96, 1.04), 1),
        (claims.not_better, (1.7, float("nan"), float("nan")), 0),  # one run only: nothing is decided
        (claims.better, (0.5, float("nan"), float("nan")), 0),
        (claims.similar, (1.0, float("nan"), float("nan")), 0),
        (claims.similar, (1.0, 0.96, 1.04), 1),
        (claims.similar, (0.92, 0.9, 0.94), -1),
        (claims.similar, (1.5, 1.3, 1.7), -1),
        (claims.similar, (1.2, 0.9, 1.4), 0),
        (claims.slightly_better, (0.97, 0.96, 0.98), 1),
        (claims.slightly_better, (1.2, 1.1, 1.3), -1),
        (claims.slightly_better, (1.0, 0.9, 1.1), 0),
    ],
)
def test_votes(judge, interval, vote):
    assert judge(Interval(*interval)) == vote


def test_a_universal_claim_fails_with_one_comparison_against_it():
    claim = next(c for c in claims.claims() if c.universal)
    low = Interval(0.5, 0.4, 0.6)
    assert Verdict(claim, low, 5, 0, 5).word == "holds"
    assert Verdict(claim, low, 4, 0, 5).word == "undecided"
    assert Verdict(claim, low, 4, 1, 5).word == "does not hold"


def test_unknown_figures_are_refused():
    with pytest.raises(InputError, match="unknown figure 'figure-9'; known: all, batching"):
        Plan(("figure-9",))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "unknown figure 'nothing'"),
        (["batching", "--runs", "0"], "runs must be"),
        (["--device", "x"], "unknown device"),
        (["--preset", "x"], "unknown preset"),
    ],
)
def test_command_line_refuses_in_one_sentence(arguments, sentence, tmp_path):
    code, _, err = commands.run("reproduce", *arguments, "--out", tmp_path / "out")
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
