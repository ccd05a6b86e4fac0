import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from aicau import MLP, Quadratic
from aicau.core.errors import InputError
from aicau.core.files import write_whole
from aicau.ensembles.kernels import EmbeddingSettings, MLPSettings
from aicau.paper import claims
from aicau.paper import plan as paper
from aicau.paper.claims import Interval, Verdict
from aicau.paper.plan import FIGURES, Outcome, Plan
from aicau.paper.reproduce import reproduce
from aicau.strategy import Strategy

QUICK = MLP(settings=MLPSettings(max_epochs=15))


def quick(word):
    """The paper's strategies with a Q that trains for a moment."""
    if "quadratic" in word:
        return Strategy.parse(word, bias=Quadratic(EmbeddingSettings(max_epochs=5)))
    return Strategy.parse(word)


@pytest.fixture
def tiny(monkeypatch):
    """The same experiments on a small grid with three rounds and fewer strategies."""
    for name, figure in list(FIGURES.items()):
        setting = paper.Setting(figure.setting.name, figure.setting.batch_size, 3)
        kept = [
            w for w in figure.strategies if name != "batching" or "direct" not in w or w.endswith("eigen:difference")
        ]
        monkeypatch.setitem(FIGURES, name, paper.Figure(figure.number, name, setting, tuple(kept)))
    monkeypatch.setattr(paper, "SINGLE", paper.Setting("single", 1, 3))
    monkeypatch.setattr(paper, "BATCH", paper.Setting("batch", 10, 3))
    make = paper.problems.make
    monkeypatch.setattr(paper.problems, "make", lambda kind: make(kind, grid=12))
    run = paper.run
    monkeypatch.setattr("aicau.paper.reproduce.run", lambda *a, **k: run(*a, **k, ensemble=QUICK, make=quick))
    return lambda *a, **k: run(*a, **k, device="cpu", ensemble=QUICK, make=quick)


def test_the_figures_are_the_papers():
    assert [len(figure.strategies) for figure in FIGURES.values()] == [8, 7, 13]
    single, _, batch, _ = Plan(tuple(FIGURES)).jobs()
    assert len(single[2]) == 12  # random and the two perfect ones are shared between Figures 2 and 4
    assert len(batch[2]) == 13
    assert (single[0].rounds, single[0].batch_size, batch[0].rounds, batch[0].batch_size) == (50, 1, 10, 10)
    rounds = sum(setting.rounds * len(words) for setting, _, words in Plan(tuple(FIGURES)).jobs()) * 3 * 10
    assert rounds == 43_800


def test_the_preset_has_the_betas_as_printed():
    assert paper.strategy("pemse:quadratic:eigen").bias.settings.betas == (0.999, 0.9)
    assert paper.strategy("pemse:direct") == Strategy.parse("pemse:direct")


def test_everything_is_written(tiny, tmp_path):
    summary = reproduce(Plan(("batching", "estimation"), 2, types=("type2", "type3"), initials=(10,)), tmp_path, "cpu")
    for name in ("figure-5-batching", "figure-4-estimation"):
        for kind in ("png", "svg", "parquet", "csv"):
            assert (tmp_path / f"{name}.{kind}").stat().st_size > 1000
    frame = pd.read_parquet(tmp_path / "figure-5-batching.parquet")
    assert list(frame.columns) == ["figure", "type", "initial", "strategy", "run", "round", "points", "mse", "queried"]
    assert len(frame) == 2 * 10 * 2 * 4
    assert frame.equals(pd.read_csv(tmp_path / "figure-5-batching.csv").astype({"queried": frame.queried.dtype}))
    assert "| 8 | Eigen beats top" in (tmp_path / "claims.md").read_text()
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


def fake(values):
    """An outcome in which every strategy has the given error in every panel: {word: per-run errors}."""
    rows = []
    for figure in FIGURES.values():
        for word in figure.strategies:
            for kind in paper.TYPES:
                for initial in paper.INITIALS:
                    for run, error in enumerate(values(word, kind, initial)):
                        rows += [(figure.setting.name, kind, initial, word, run, k, k, error, "") for k in (1, 2)]
    columns = ["setting", "type", "initial", "strategy", "run", "round", "points", "mse", "queried"]
    return Outcome(Plan(tuple(FIGURES)), pd.DataFrame(rows, columns=columns).drop_duplicates())


def test_claims_on_results_made_to_bear_them_out_and_to_refute_them():
    base = np.array([1.0, 1.1, 0.9, 1.05])
    jitter = np.array([1.0, 1.01, 0.99, 1.02])

    def kind_world(word, kind, initial):
        factor = 0.5 if "perfect" in word else 1.0
        if word == "pemse:quadratic:eigen:difference":
            factor = 0.6
        return base * jitter * factor if word != "random" else base

    verdicts = {v.claim.number: v for v in claims.judge(fake(kind_world))}
    assert verdicts["1"].word == "holds"
    assert verdicts["9"].word == "holds"
    assert verdicts["10a"].word == "holds"
    assert verdicts["1"].pooled.mean == pytest.approx(0.5, abs=0.01)

    def other_world(word, kind, initial):
        return base * (2.0 if "perfect" in word or word == "pemse:quadratic:eigen:difference" else 1.0) * jitter

    verdicts = {v.claim.number: v for v in claims.judge(fake(other_world))}
    assert verdicts["1"].word == "does not hold"
    assert verdicts["9"].word == "does not hold"
    assert verdicts["10a"].word == "does not hold"
    text = claims.to_markdown(list(verdicts.values()), 4)
    assert "| 10a | At 10 points it beats random | 2.0" in text


@pytest.mark.parametrize(
    ("judge", "interval", "vote"),
    [
        (claims.less, (0.8, 0.7, 0.9), 1),
        (claims.less, (1.2, 1.1, 1.3), -1),
        (claims.less, (1.0, 0.9, 1.1), 0),
        (claims.not_less, (0.8, 0.7, 0.9), -1),
        (claims.not_less, (1.0, 0.9, 1.1), 1),
        (claims.not_less, (1.7, float("nan"), float("nan")), 0),  # one run only: nothing is decided
        (claims.less, (0.5, float("nan"), float("nan")), 0),
        (claims.similar, (1.0, float("nan"), float("nan")), 0),
        (claims.similar, (1.0, 0.9, 1.1), 1),
        (claims.similar, (1.5, 1.3, 1.7), -1),
        (claims.similar, (1.2, 1.0, 1.4), 0),
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
    ],
)
def test_command_line_refuses_in_one_sentence(arguments, sentence, tmp_path):
    code = "from aicau.cli import main; main()"
    command = [sys.executable, "-c", code, "reproduce", *arguments, "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
