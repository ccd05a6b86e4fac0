"""Several targets: one model each, results that come one by one, and batches that serve all of them."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicau import Campaign
from aicau.core.errors import InputError
from commands import fingerprint, run

N = 40
POOL = pd.DataFrame({"id": [f"c{i}" for i in range(N)], "x": np.linspace(0, 1, N), "z": np.arange(N) * 17 % N / N})


def values(rows):
    """What is measured: one target by x, one by z."""
    return pd.DataFrame({"id": rows["id"], "gain": np.sin(6 * rows.x), "loss": 3 + np.cos(5 * rows.z)})


def facts(campaign):
    rows = campaign.measurements()[["id", "gain", "loss", "target", "replicate", "status"]].astype(object)
    return sorted(map(str, rows.where(rows.notna(), None).to_numpy().tolist()))


def filled(path, task="regression", **options):
    """A campaign of two targets with one round of results."""
    made = Campaign.create(path, POOL, ["gain", "loss"], task=task, author="eve", **options)
    told = values(made.ask(10))
    if task != "regression":
        told[["gain", "loss"]] = (told[["gain", "loss"]].rank() > 5).astype(int) + (task == "count")
    made.tell(told)
    return made


def test_a_target_twice_is_one_target(tmp_path):
    one, two = Campaign.create(tmp_path / "1.db", POOL, "y"), Campaign.create(tmp_path / "2.db", POOL, ["y", "w"])
    with one, two:
        for _ in range(2):
            single, double = one.ask(8), two.ask(8)
            assert single["id"].tolist() == double["id"].tolist()
            assert single.reason_share.tolist() == double.reason_share.tolist() or single.reason_share.isna().all()
            y = values(single).gain
            one.tell(single[["id"]].assign(y=y))
            two.tell(double[["id"]].assign(w=y, y=y))
        said, both = one.predict(), two.predict()
        for name in said.columns[1:]:
            assert said[name].tolist() == both[f"y_{name}"].tolist() == both[f"w_{name}"].tolist()
        assert "targets" not in one.settings
        assert set(one.measurements()) < set(two.measurements())


def test_a_batch_serves_the_weighted_sum(tmp_path):
    asked = {}
    for name, weights in (("alike", None), ("gain", {"gain": 1000}), ("loss", {"loss": 1000})):
        with filled(tmp_path / f"{name}.db", target_weights=weights, ensemble="paper") as made:
            asked[name] = made.ask(6, preview=True)["id"].tolist()
    with Campaign.create(tmp_path / "alone.db", POOL, "gain", ensemble="paper") as alone:
        first = values(alone.ask(10))
        alone.tell(first[["id", "gain"]])
        assert alone.ask(6)["id"].tolist() == asked["gain"]  # what counts a thousand times decides alone
    assert len({tuple(own) for own in asked.values()}) == 3


def test_a_point_is_pending_until_every_target_came(tmp_path):
    with Campaign.create(tmp_path / "c.db", POOL, ["gain", "loss"]) as made:
        batch = made.ask(4)
        told = made.tell(values(batch)[["id", "gain"]])
        assert (told["new"], told["completed"], told["unrequested"], told["pending"]) == (4, 0, 0, 4)
        with pytest.raises(InputError, match=r"nothing is measured yet, .*; tell more results of 'loss' first"):
            made.predict()
        some = values(batch).assign(gain=np.nan, status="")
        some.loc[0, ["loss", "status"]] = [np.nan, "failed"]  # the well failed: of gain there is a value already
        with pytest.raises(InputError, match="row 2, gain, says failed, and"):
            made.tell(some)
        told = made.tell(some.drop(columns="gain"))
        assert (told["completed"], told["failed"], told["pending"]) == (4, 0, 0)
        assert made.status()["failed_wells"] == 1
        made.change(strategy="random")
        assert made.of("loss").status()["target"] == "loss"  # a view stays one after a change
        assert made.of("loss").measurements().shape[0] == 4
        for change in (lambda one: one.tell(some), lambda one: one.ask(1), lambda one: one.untell(1)):
            with pytest.raises(InputError, match="'loss' is one of several targets and is only read"):
                change(made.of("loss"))
        assert made.untell(1) == {"gone": 4, "back": 0, "pending": 4}
        told = made.tell(values(batch)[["id", "gain"]])
        assert (told["completed"], told["pending"]) == (4, 0)
        assert made.untell(2)["pending"] == 4
        assert made.abandon(batch["id"]) == 4
        assert all(check.ok for check in made.doctor())


def test_a_correction_is_of_one_target(tmp_path):
    with filled(tmp_path / "c.db") as made:
        first = made.measurements()["id"][0]
        told = made.tell(pd.DataFrame({"id": [first], "loss": [7.5]}), correct=True)
        assert (told["new"], told["superseded"]) == (1, 1)
        rows = made.measurements()
        own = rows[rows["id"] == first]
        assert own.loss.dropna().tolist() == [7.5]
        assert own.gain.notna().sum() == 1
        assert made.of("loss").measurements().columns[1] == "loss"
        assert len(made.of("loss").measurements()) == len(made.of("gain").measurements()) == 10


@st.composite
def tellings(draw):
    """One truth of two targets, and files of it: any rows, one target or both, empty cells."""
    number = st.sampled_from([None, 1.5, -0.25, 1 / 3, 1e4])
    row = st.fixed_dictionaries({"id": st.sampled_from(["c1", "c2", "c3"]), "gain": number, "loss": number})
    truth = [one | {"replicate": at + 1} for at, one in enumerate(draw(st.lists(row, min_size=1, max_size=6)))]
    truth = [one for one in truth if one["gain"] is not None or one["loss"] is not None]
    files = []
    for _ in range(draw(st.integers(1, 4)) if truth else 0):
        some = draw(st.lists(st.sampled_from(truth), min_size=1, unique_by=lambda one: one["replicate"]))
        files.append((some, draw(st.sampled_from([["gain"], ["loss"], ["gain", "loss"], ["loss", "gain"]]))))
    return truth, files


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    path = tmp_path_factory.mktemp("empty") / "c.db"
    Campaign.create(path, POOL, ["gain", "loss"], strategy="farthest").close()
    return path


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(tellings())
def test_any_way_of_telling_one_truth_ends_at_the_same_measurements(empty, tmp_path_factory, case):
    truth, files = case
    if not truth:
        return
    folder = tmp_path_factory.mktemp("truth")
    for name in ("once.db", "often.db"):
        (folder / name).write_bytes(empty.read_bytes())
    with Campaign.open(folder / "once.db") as once, Campaign.open(folder / "often.db") as often:
        once.tell(pd.DataFrame(truth))
        for rows, targets in [*files, (truth, ["gain", "loss"])]:
            table = pd.DataFrame(rows)[["id", *targets, "replicate"]]
            if table[targets].notna().any().any():
                often.tell(table)
        assert facts(often) == facts(once)
        assert often.tell(pd.DataFrame(truth))["already"]


@pytest.mark.parametrize("task", ["regression", "classification", "count"])
def test_each_target_has_its_own_predictions(tmp_path, task):
    with filled(tmp_path / "c.db", task) as made:
        both = made.predict(details=True)
        for target in ("gain", "loss"):
            own = made.of(target).predict(details=True)
            assert own["id"].tolist() == both["id"].tolist()
            for name in own.columns[1:]:
                assert own[name].tolist() == pytest.approx(both[f"{target}_{name}"].tolist(), nan_ok=True)
        assert len(both.columns) == 2 * len(own.columns) - 1
        assert made.ask(3).reason.str.contains("; gain: .*; loss: ").all()


def test_export_gives_the_campaign_back(tmp_path):
    with filled(tmp_path / "c.db") as made:
        made.ask(4)
        rows = values(made.pending()).assign(status=["failed", "", "", ""])
        made.tell(rows[["id", "gain", "status"]])
        made.tell(rows[["id", "loss"]].iloc[1:2].assign(loss=9.0))
        made.tell(rows[["id", "loss"]].iloc[1:2], correct=True)
        made.predict()
        before = fingerprint(made.store)
        made.export(tmp_path / "out")
        pending = made.pending()["id"].tolist()
    with Campaign.import_(tmp_path / "out", tmp_path / "back.db") as back:
        assert fingerprint(back.store) == before
        back.export(tmp_path / "again")
        assert back.pending()["id"].tolist() == pending
        assert back.models.pool is None
        assert [view.models.kept(view.moment().basis) is not None for view in back.views()] == [True, True]
    for file in (tmp_path / "out").rglob("*"):
        if file.is_file():
            assert file.read_bytes() == (tmp_path / "again" / file.relative_to(tmp_path / "out")).read_bytes()


def test_status_report_and_figures_show_each(tmp_path):
    with filled(tmp_path / "c.db", target_weights={"loss": 2}) as made:
        made.ask(4)
        found = made.status()
        assert found["target"] == "gain, loss"
        assert {name: own["weight"] for name, own in found["targets"].items()} == {"gain": 1.0, "loss": 2.0}
        assert all(own["progress"]["measurements"] == 10 for own in found["targets"].values())
        assert made.advice().startswith("gain: ")
        assert made.progress().target.tolist() == ["gain", "loss"]
        with pytest.raises(InputError, match=r"such as of\('gain'\)"):
            made.plot_learning_curve()
        assert made.of("loss").plot_learning_curve().axes
        page = made.report(tmp_path / "r.html").read_text()
        assert page.count('aria-label="Figures of') == 2
        assert "c.db: gain, loss" in page


def test_a_slip_is_found_beside_its_own_target(tmp_path):
    with filled(tmp_path / "c.db", ensemble="paper") as made:
        batch = made.ask(3)
        told = made.tell(values(batch).assign(loss=[3.2, 32000.0, 2.9]))
        assert ["loss 32000" in words for words in told["warnings"]] == [True]
        assert "loss 32000 of" in made.warnings()[0]
        assert made.confirm([batch["id"][1]]) == 1
        assert made.warnings() == []
        with pytest.raises(InputError, match="no value of 'c0' is pointed out"):
            made.confirm("c0")


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        (["a", "A "], {}, "the target 'A' is named twice"),
        (["a", "b"], {"target_weights": {"c": 1}}, "'c' is none of them"),
        (["a", "b"], {"target_weights": {"b": 0}}, "a number above 0; 'b' has 0"),
        ("a", {"target_weights": {"a": 2}}, "a weight is for one of several targets"),
        (["a", "b"], {"target_weights": [1, 2]}, "weights of targets are given by their names"),
        (["a", "b"], {"goal": "above:2"}, "has a threshold of one target"),
        (["a", "target"], {}, "cannot be called 'target'"),
        (["a", "x"], {}, "has a column 'x', which is to hold the target"),
        ([], {}, "a campaign needs a target"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, target, options, words):
    with pytest.raises(InputError, match=words):
        Campaign.create(tmp_path / "c.db", POOL, target, strategy="farthest", **options)
    assert not (tmp_path / "c.db").exists()


def test_errors_of_files_with_several_targets(empty, tmp_path):
    path = tmp_path / "c.db"
    path.write_bytes(empty.read_bytes())
    with Campaign.open(path) as made:
        with pytest.raises(InputError, match="'sem' belongs to one target"):
            made.tell(pd.DataFrame({"id": ["c1"], "gain": [1.0], "loss": [2.0], "sem": [0.1], "count": [3]}))
        made.tell(pd.DataFrame({"id": ["c1"], "gain": [1.0], "sem": [0.1], "count": [3]}))
        with pytest.raises(InputError, match="no row is filled in"):
            made.tell(pd.DataFrame({"id": ["c1"], "gain": [math.nan], "loss": [math.nan]}))
        told = made.tell(pd.DataFrame({"id": ["c1", "c2"], "gain": [math.nan, math.nan], "loss": [math.nan, 2.0]}))
        assert told["warnings"] == ("1 row is not filled in yet, and left out",)


def test_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    POOL.to_csv("pool.csv", index=False)
    names = ["init", "c.db", "pool.csv", "--target", "gain", "--target", "loss", "--target-weight", "loss=2"]
    code, _, words = run(*names, "--target-weight", "loss=3")
    assert (code, "the weight of 'loss' is given twice; give it once" in words) == (2, True)
    run(*names)
    run(*["ask", "c.db", "4", "--out", "batch.csv"])
    batch = pd.read_csv("batch.csv")
    assert batch[["gain", "loss", "status"]].isna().all().all()
    values(batch).to_csv("results.csv", index=False)
    assert "8 new measurements; 4 points completed" in run("tell", "c.db", "results.csv")[1]
    found = json.loads(run("status", "c.db", "--json")[1])
    assert found["targets"]["loss"]["weight"] == 2.0


def test_one_of_several_targets_is_checked_and_exported_with_the_others(tmp_path):
    with filled(tmp_path / "c.db", ensemble="paper") as made:
        assert all(check.ok for check in made.of("gain").doctor())
        made.of("gain").export(tmp_path / "out")
        with Campaign.import_(tmp_path / "out", tmp_path / "again.db") as again:
            assert facts(again) == facts(made)
            assert all(check.ok for check in again.doctor())
