"""Campaigns with labels and with counts: from the first ask to the report, and what cannot be meant."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

from aicau import Campaign
from aicau.acquisition import ACQUISITIONS
from aicau.campaign.setup import parse_strategy
from aicau.core.errors import InputError
from aicau.prediction.count import interval, scatter
from aicau.report.figures import legend
from aicau.report.gather import gather
from aicau.store.schema import version
from commands import fingerprint, run

PARTS = ["epistemic", "bias", "aleatoric"]


def pool(n=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "compound": [f"c{i}" for i in range(n)],
            "dose": rng.random(n) * 10,
            "solvent": rng.choice(["oil", "water"], n),
        }
    )


def create(address, task, **changes):
    settings = {"target": "outcome", "batch": "plate", "id": "compound", "task": task, "author": "ada"}
    return Campaign.create(address, pool(), **(settings | changes))


def measured(batch, task, number, replicates=3):
    """A steep step for labels, wrong in one of eight; a rate that doubles every three units of dose for counts."""
    rng = np.random.default_rng(number)
    rows = pd.concat([batch] * replicates, ignore_index=True)
    if task == "count":
        outcome = rng.poisson(2 ** (rows.dose / 3))
    else:
        outcome = np.where((rows.dose > 5) ^ (rng.random(len(rows)) < 0.12), "hit", "miss")
    return pd.DataFrame({"compound": rows["compound"], "outcome": outcome, "plate": f"P{number}"})


def play(campaign, task, rounds=2):
    for number in range(rounds):
        campaign.tell(measured(campaign.ask(8), task, number))


@pytest.mark.parametrize(
    ("task", "strategy", "most"),
    [("classification", None, 9), ("count", "farthest", 9), ("count", None, 8), ("regression", "farthest", 9)],
)
def test_when_every_candidate_is_known_all_of_them_come_again(tmp_path, task, strategy, most):
    few = pool()[:9]
    few["dose"] = np.linspace(0.0, 10.0, 9)
    few.to_csv(tmp_path / "few.csv", index=False)
    settings = {"target": "outcome", "batch": "plate", "id": "compound", "task": task, "strategy": strategy}
    # What is chosen does not depend on what predicts; the networks alone are fitted quickly.
    campaign = Campaign.create(tmp_path / "few.db", tmp_path / "few.csv", ensemble="paper", **settings)
    kind = "count" if task == "regression" else task
    for number in range(3):
        campaign.tell(measured(few[3 * number : 3 * number + 3], kind, number, 1))
    again = []
    for number in range(3, 9):
        batch = campaign.ask(3)
        assert batch.reason.str.contains("repeat, measured [1-6]x before").all()
        assert batch.reason.str.contains("no new point offers more|a known point: one more measurement lowers").all()
        again += list(batch["compound"])
        campaign.tell(measured(batch, kind, number, 1))
    assert len(set(again)) >= most  # counts are repeated where the rate is least known: hardly where it is small


@pytest.mark.parametrize("task", ["classification", "count"])
def test_a_whole_campaign(address, task, tmp_path):
    campaign = create(address, task)
    play(campaign, task)
    batch = campaign.ask(4)
    words = "predicted '[himst]+' \\(\\d+%\\), expected log loss" if task == "classification" else (
        "predicted count [\\d.e+]+ \\(\\d+ to \\d+\\), expected Poisson divergence"
    )  # fmt: skip
    far = "times the squared distance.* to the nearest known or chosen point \\([\\d.]+\\): the largest left"
    score = f"^default: disagreement of the members, as far as.* {far}; {words}"
    if task == "count":
        score = f"default: .* lowers the error expected over all candidates by .*expected bias.* distance; {words}"
    assert batch.reason.str.contains(score).all()
    for row in batch.itertuples():
        total = row.reason_epistemic + row.reason_bias + row.reason_aleatoric
        shares = [part / total for part in (row.reason_epistemic, row.reason_bias, row.reason_aleatoric)]
        assert f"{total:.3g}: {shares[0]:.0%} disagreement, {shares[1]:.0%} bias, {shares[2]:.0%} noise" in row.reason
    status = campaign.status()
    assert status["task"] == task
    assert (status["measurements"], status["pending"]) == (48, 4)
    assert status["measured"] == 16 if task == "classification" else 12 <= status["measured"] <= 16  # some come again
    said = campaign.predict()
    assert np.isfinite(said[PARTS]).all().all()
    assert (said[PARTS] >= 0).all().all()
    truth = pool().dose
    if task == "classification":
        assert status["classes"] == ["hit", "miss"]
        assert said.columns.tolist() == ["compound", "predicted", "p_hit", "p_miss", *PARTS]
        assert np.allclose(said.p_hit + said.p_miss, 1, rtol=0, atol=1e-12)
        assert ((said.p_hit > said.p_miss) == (said.predicted == "hit")).all()
        assert (said.predicted == np.where(truth > 5, "hit", "miss")).mean() > 0.8
    else:
        assert status["classes"] == []
        assert said.columns.tolist() == ["compound", "mean", "new_low", "new_high", *PARTS]
        assert said.new_low.dtype == said.new_high.dtype == np.int64
        assert ((said.new_low >= 0) & (said.new_low <= said["mean"]) & (said["mean"] <= said.new_high)).all()
        assert np.corrcoef(said["mean"], 2 ** (truth / 3))[0, 1] > 0.8
    campaign.close()
    with Campaign.open(address) as again:  # no refit, the same numbers
        assert again.predict().equals(said)
        with again.store.reading() as session:
            assert [basis for basis, _, _ in session.model_texts()] == [1, 2]
        again.predict(tmp_path / "said.csv")
        assert pd.read_csv(tmp_path / "said.csv")["bias"].tolist() == said["bias"].tolist()
        assert all(check.ok for check in again.doctor())
        files = {path.name: path for path in again.export(tmp_path / "out")}
        told = pd.read_csv(files["measurements.csv"])
        assert not {"label", "value"} & set(told.columns)
        assert told.columns.tolist().index("outcome") == 4
        rows = pd.concat([measured(pool().set_index("compound").loc[part["compound"]].reset_index(), task, number, 1)
                          for number, part in told.groupby(told.plate.str[1:].astype(int))])  # fmt: skip
        assert told["outcome"].tolist() == rows["outcome"].tolist()


def test_a_reopened_campaign_asks_what_the_first_process_would(tmp_path):
    batches = []
    for name in ("a.db", "b.db"):
        campaign = create(tmp_path / name, "classification")
        play(campaign, "classification")
        if name == "b.db":
            campaign.close()
            campaign = Campaign.open(tmp_path / name)
        batches.append(campaign.ask(5))
        campaign.close()
    assert batches[0].equals(batches[1])


def test_until_a_second_class_is_seen_a_batch_fills_space_and_says_so(tmp_path):
    with create(tmp_path / "c.db", "classification", batch=None) as campaign:
        first = campaign.ask(4)
        campaign.tell(pd.DataFrame({"compound": first["compound"], "outcome": 0}))
        second = campaign.ask(4)
        assert second.reason.str.startswith("fills the space (all labels so far say '0'): ").all()
        assert not set(first["compound"]) & set(second["compound"])
        with pytest.raises(InputError, match="all labels so far say '0', so there is nothing to predict from"):
            campaign.predict()
        page = campaign.report(tmp_path / "r.html").read_text()
        assert "needs labels of at least two classes." in page
        campaign.tell(pd.DataFrame({"compound": second["compound"], "outcome": 1}))
        assert campaign.status()["classes"] == ["0", "1"]
        assert campaign.ask(1).reason[0].startswith("default: ")


def test_replicated_labels_that_disagree(tmp_path):
    """A repeat says what was said before; the model of many wrong labels is not sure; equal labels may be counted."""
    with create(tmp_path / "c.db", "classification", strategy="entropy", batch=None) as campaign:
        names = pool()["compound"].tolist()
        labels = np.where(pool().dose > 5, "yes", "no")
        campaign.tell(pd.DataFrame({"compound": names, "outcome": labels, "count": 2}))
        other = np.where(labels[:10] == "yes", "no", "yes")
        campaign.tell(pd.DataFrame({"compound": names[:10], "outcome": other, "replicate": 3}))
        with campaign.store.reading() as session:
            assert {(r.value, r.label, r.repeats) for r in session.measurements()} == {
                (None, "yes", 2), (None, "no", 2), (None, "yes", 1), (None, "no", 1),
            }  # fmt: skip
        batch = campaign.ask(20)
        before = {name: f"repeat, measured {3 if name in names[:10] else 2}x before" for name in names}
        for row in batch.itertuples():
            most = labels[names.index(row.compound)]
            told = f"(2 of {3 if row.compound in names[:10] else 2} say '{most}')"
            assert row.reason.startswith(f"{before[row.compound]} {told}; entropy: chosen by ")
        contents = gather(campaign)
        assert sum(contents.labels.differ) == 10
        assert sum(contents.labels.agree) == 30
        assert sum(contents.labels.counts) == 90
        assert contents.labels.batches == ()
        assert sum(map(sum, contents.labels.confusion)) == 90


def test_no_label_of_a_candidate_is_in_the_training_folds_of_the_member_tested_on_it(tmp_path):
    with create(tmp_path / "c.db", "classification") as campaign:
        play(campaign, "classification", 1)
        campaign.ask(1)
        model = campaign.models.kept(1)
        assert (model.figures.points, model.figures.measurements, model.figures.freedom) == (8, 24, 16)
        unseen, index = model.state.fitted.unseen[0], model.state.observations.index[0]
        assert unseen.shape == (5, 24)
        assert unseen.sum(0).tolist() == [1] * 24
        for candidate in index.unique():  # folds are of candidates, not of their labels
            fold = unseen[:, index == candidate]
            assert (fold == fold[:, :1]).all()


@pytest.mark.parametrize(
    ("task", "table", "sentence"),
    [
        ("classification", {"outcome": ["a", None]}, "row 3, column 'outcome': expected a label, .*got an empty cell"),
        ("classification", {"outcome": ["a", " "]}, "row 3, column 'outcome': expected a label, .*got an empty cell"),
        ("classification", {"outcome": ["a", "NaN"]}, "row 3, column 'outcome': expected a label, .*got 'NaN'"),
        ("classification", {"outcome": [1.0, 0.5]}, "row 3, column 'outcome': expected a label, got 0.5"),
        (
            "classification",
            {"outcome": [1.0, np.nan]},
            "row 3, column 'outcome': expected a label, .*got an empty cell",
        ),
        ("classification", {"outcome": [1.0, np.inf]}, "row 3, column 'outcome': expected a label, got inf"),
        ("classification", {"outcome": ["1", "1.0"]}, "row 3: the class '1.0' looks like '1'; write '1'"),
        ("classification", {"outcome": ["a", "b" * 101]}, "row 3, column 'outcome': expected a label"),
        ("classification", {"outcome": pd.to_datetime(["2020-01-01"] * 2)}, "column 'outcome': expected labels, got"),
        ("classification", {"result": ["a", "b"]}, "has no column 'outcome'"),
        ("classification", {"outcome": ["a", "b"], "sem": [None, 0.1]}, "row 3, column 'sem': a label has no 'sem'"),
        ("classification", {"outcome": ["a", "b"], "count": [1, 0]}, "row 3, column 'count': expected a whole number"),
        ("count", {"outcome": [1, -1]}, "row 3, column 'outcome': expected a count, a whole number from 0, got -1"),
        ("count", {"outcome": [1, 1.5]}, "row 3, column 'outcome': expected a count, a whole number from 0, got 1.5"),
        ("count", {"outcome": [1, np.nan]}, "row 3, column 'outcome': expected a finite number"),
        ("count", {"outcome": ["1", "many"]}, "row 3, column 'outcome': expected a number, got 'many'"),
        ("count", {"outcome": [1, 1e16]}, "row 3, column 'outcome': 1e[+]16 is too large"),
        ("count", {"outcome": [1, 2], "sem": [0.1, None]}, "row 2, column 'sem': a count has no 'sem'"),
        ("count", {"outcome": [1, 2], "count": [1, 3]}, "row 2, column 'count': a count has no 'count'"),
    ],
)
def test_what_cannot_be_meant_changes_nothing(tmp_path, task, table, sentence):
    with create(tmp_path / "c.db", task, batch=None) as campaign:
        before = fingerprint(campaign.store)
        with pytest.raises(InputError, match=sentence):
            campaign.tell(pd.DataFrame({"compound": ["c1", "c2"], **table}))
        assert fingerprint(campaign.store) == before


def test_labels_are_trimmed_text_and_failed_wells_have_none(tmp_path):
    with create(tmp_path / "c.db", "classification", batch=None) as campaign:
        rows = pd.DataFrame(
            {"compound": ["c1", "c2", "c3"], "outcome": [" =hit ", "x", ""], "status": ["ok", "", "failed"]}
        )
        assert campaign.tell(rows)["already"] is False
        assert campaign.tell(rows)["already"] is True
        assert campaign.status()["classes"] == ["=hit", "x"]
        campaign.tell(pd.DataFrame({"compound": ["c2"], "outcome": ["y"]}), correct=True)
        assert campaign.status()["classes"] == ["=hit", "y"]
        campaign.tell(pd.DataFrame({"compound": ["c4", "c5"], "outcome": [1.0, np.nan], "status": ["ok", "failed"]}))
        assert campaign.status()["classes"] == ["1", "=hit", "y"]
        campaign.predict(tmp_path / "p.csv")
        head, *lines = (tmp_path / "p.csv").read_text().splitlines()
        assert head.startswith('"compound","predicted","p_1","p_=hit","p_y","epistemic"')
        assert not [line for line in lines if ',"=hit"' in line]
        file = next(f for f in campaign.export(tmp_path / "out") if f.name == "measurements.csv")
        assert '"\'=hit"' in file.read_text()
        assert campaign.status()["failed_wells"] == 2
        assert all(check.ok for check in campaign.doctor())
        with pytest.raises(InputError, match=r"the class '1\.0' looks like '1'"):
            campaign.tell(pd.DataFrame({"compound": ["c6"], "outcome": ["1.0"]}))
        many = pd.DataFrame({"compound": pool()["compound"].tolist() * 2, "outcome": [f"k{i}" for i in range(80)]})
        many["replicate"] = range(2, 82)
        with pytest.raises(InputError, match="this is class number 51, and there can be 50"):
            campaign.tell(many)


@pytest.mark.parametrize(
    ("task", "strategy", "sentence"),
    [
        ("regression", "entropy", "'entropy' does not work for regression: 'entropy' is about classes"),
        ("regression", "margin:spread", "is about classes"),
        ("count", "entropy", "is about classes"),
        ("classification", "br:quadratic:top", "does not work for classification: quadratic completes a matrix"),
        ("count", "pemse:quadratic:eigen", "does not work for count: quadratic completes a matrix"),
        ("classification", "br:posterior:eigen", "has no cobias matrix"),
        ("classification", "lc:eigen", "has no matrix"),
        ("count", "br:posterior:eigen", "has no cobias matrix"),
        ("classification", "br:perfect", "knows the truth"),
        ("labels", None, "unknown task 'labels'; known: classification, count, regression"),
    ],
)
def test_a_strategy_without_a_version_for_the_task_is_refused_at_the_start(tmp_path, task, strategy, sentence):
    with pytest.raises(InputError, match=sentence):
        create(tmp_path / "c.db", task, strategy=strategy)
    assert not (tmp_path / "c.db").exists()


@pytest.mark.parametrize(
    ("task", "strategy", "words"),
    [
        ("classification", "margin:spread", "to the nearest known or chosen point"),
        ("classification", "bald", "bald: chosen by "),
        ("classification", "pemse:direct:spread:difference", "to the nearest known or chosen point"),
        ("classification", "br:posterior:eigen:brier", "peak of mode 1 of the error matrix"),
        ("classification", "random", "random: chosen by a random number: "),
        ("count", "pemse:direct:top", "chosen by "),
        ("count", "lc:eigen", "peak of mode 1 of the error matrix"),
    ],
)
def test_strategies_with_a_version_for_the_task_run(tmp_path, task, strategy, words):
    with create(tmp_path / "c.db", task, strategy=strategy, ensemble="paper") as campaign:
        play(campaign, task, 3)
        assert words in campaign.ask(5).reason[0]


def old_campaign(address):
    """As it was before labels: no task in the settings, no column for labels."""
    with create(address, "regression") as campaign:
        batch = campaign.ask(6)
        rows = pd.DataFrame({"compound": batch["compound"], "outcome": batch.dose, "plate": "p"})
        campaign.tell(rows)
        settings = {name: value for name, value in campaign.settings.items() if name != "task"}
        with campaign.store.writing() as session:
            session.connection.exec_driver_sql("ALTER TABLE measurements DROP COLUMN label")
            session.connection.exec_driver_sql("ALTER TABLE measurements DROP COLUMN target")
            session.connection.exec_driver_sql("ALTER TABLE models DROP COLUMN digest")
            session.set_meta("version", "1")
            session.set_meta("settings", json.dumps(settings, sort_keys=True))
    return rows


def test_a_campaign_from_before_labels_goes_on(address, tmp_path):
    rows = old_campaign(address)
    with Campaign.open(address) as campaign:
        assert campaign.status()["task"] == "regression"
        assert campaign.tell(rows)["already"]  # told by the older version
        assert all(check.ok for check in campaign.doctor())
        with create(tmp_path / "new.db", "regression") as fresh:
            fresh.ask(6)
            fresh.tell(rows)
            assert campaign.ask(5).equals(fresh.ask(5))
            assert campaign.predict().equals(fresh.predict())
        assert "RMSE" in campaign.report(tmp_path / "r.html").read_text()
        with campaign.store.reading() as session:
            assert session.meta()["version"] == str(version())


def test_doctor_finds_a_label_that_went_missing(tmp_path):
    with create(tmp_path / "c.db", "classification", batch=None) as campaign:
        campaign.tell(pd.DataFrame({"compound": ["c1", "c2"], "outcome": ["a", "b"]}))
        assert all(check.ok for check in campaign.doctor())
        with closing(sqlite3.connect(tmp_path / "c.db")) as connection:
            connection.execute("UPDATE measurements SET label = NULL WHERE id = 2")
            connection.commit()
        assert [check.problem for check in campaign.doctor() if not check.ok] == [
            "measurement 2 cannot be: candidate 2, ok, no result"
        ]


@pytest.mark.parametrize("task", ["classification", "count"])
def test_the_commands(tmp_path, task):
    pool().to_csv(tmp_path / "pool.csv", index=False)
    screen, names = tmp_path / "screen.db", ["--id", "compound", "--target", "outcome", "--batch", "plate"]
    code, _, err = run("init", screen, tmp_path / "pool.csv", *names, "--task", "labels")
    assert (code, err.count("\n")) == (2, 1)
    assert "unknown task 'labels'; known: classification, count, regression" in err
    assert not screen.exists()
    assert run("init", screen, tmp_path / "pool.csv", *names, "--task", task)[0] == 0
    for number in range(2):
        assert run("ask", screen, 8, "--out", tmp_path / "plate.csv", "--force")[0] == 0
        plate = pd.read_csv(tmp_path / "plate.csv")
        measured(plate, task, number).to_csv(tmp_path / "results.csv", index=False)
        assert run("tell", screen, tmp_path / "results.csv")[0] == 0
    (tmp_path / "bad.csv").write_text("compound,outcome,plate\nc1,1,p\nc2,2,p\nc3,,p\nc4,-1,p\n")
    code, _, err = run("tell", screen, tmp_path / "bad.csv")
    assert (code, err.count("\n")) == (2, 1)
    assert "bad.csv, row 4, column 'outcome': expected a " in err
    out = run("status", screen)[1]
    assert ("task classification; classes hit, miss" if task == "classification" else "task count") in out
    status = json.loads(run("status", screen, "--json")[1])
    assert status["measurements"] == 48
    rows = json.loads(run("predict", screen, "--json")[1])
    assert len(rows) == 40
    assert run("report", screen, "--out", tmp_path / "r.html")[0] == 0
    page = (tmp_path / "r.html").read_text()
    assert "RMSE" not in page
    assert "squared error" not in page
    if task == "classification":
        assert set(rows[0]) == {"compound", "predicted", "p_hit", "p_miss", *PARTS}
        for words in ("Log loss", "Confusion", "Do replicates agree?", "Labels by batch", "Pale: predicted class"):
            assert words in page
    else:
        for words in (
            "Poisson divergence (half the deviance)",
            "times the variance of a Poisson count",
            "Batch effects",
        ):
            assert words in page


def test_the_contents_of_labels_in_numbers(tmp_path):
    with create(tmp_path / "c.db", "classification") as campaign:
        play(campaign, "classification", 3)
        contents = gather(campaign)
        with campaign.store.reading() as session:
            rows = session.measurements()
        kept = campaign.models.kept(1)
        assert contents.rounds.measurements.tolist() == [24, 48, 72]
        new = [row for row in rows if row.tell == 2]
        said = kept.predict(np.array([row.candidate for row in new]))
        given = [said.probability[at, said.labels.index(row.label)] for at, row in enumerate(new)]
        assert campaign.progress().held_out[0] == pytest.approx(-np.log(np.maximum(given, 1e-3)).mean())
        assert (
            np.average([o for _, o, _ in contents.calibration], weights=[n for _, _, n in contents.calibration]) == 0.5
        )
        assert [name for name, _ in contents.labels.batches] == ["P0", "P1", "P2"]
        assert [sum(counts) for _, counts in contents.labels.batches] == [24, 24, 24]
        assert len(contents.map.predicted) == 40


def test_default_for_labels_trusts_members_by_their_skill(address):
    with create(address, "classification") as campaign:
        play(campaign, "classification")
        assert campaign.strategy.acquisition == ACQUISITIONS["trust"]()
        assert parse_strategy("default", "count").acquisition != ACQUISITIONS["trust"]()
        campaign.ask(2)
        _, model = campaign.models.last
        assert 0.1 < model.figures.skill < 1  # one label in eight is wrong
        assert model.how.estimate(campaign.strategy.bias, model.state) is None  # `trust` needs none;
        assert float(model.predictor.said.at(None)[1].max()) > 0  # the parts come from `posterior`, which doubts


def test_classes_beyond_the_tenth_share_a_colour_and_no_name_is_lost():
    found = legend(["_x", "a name that is far too long", *(f"k{i}" for i in range(10))])
    assert [label for _, label in found[:2]] == [" _x", "a name..o long"]
    assert [label for _, label in found[10:]] == ["others", None]
    assert len({colour for colour, _ in found[:10]}) == 10
    assert found[10][0] == found[11][0]


def test_intervals_of_counts_by_hand():
    mean = np.array([0.0, 0.5, 10.0, 1000.0])
    low, high = interval(np.maximum(mean, 1e-12), mean, 1000)
    assert (low.tolist(), high.tolist()) == ([0, 0, 4, 938], [0, 2, 17, 1062])  # quantiles of Poisson counts
    wide = interval(mean[2:], 4 * mean[2:], 1000)
    assert (wide[0] <= low[2:]).all() and (wide[1] > high[2:]).all()  # noqa: PT018
    # λ ~ Gamma(1/2 + 0, N): a new count is 0 with probability √(N/(N + 1)), 0.913 after 5 zeros and 0.975 after 20.
    zero = np.array([1e-12])
    assert [interval(zero, zero, count)[1].tolist() for count in (1, 5, 19, 20)] == [[3], [1], [1], [0]]
    draws = np.random.default_rng(0).poisson(3.0, 400_000).astype(float)
    loss = np.where(draws > 0, draws * np.log(np.maximum(draws, 1) / 3), 0)
    assert scatter(np.array([3.0]))[0] == pytest.approx(loss.mean(), abs=0.01)
    assert scatter(np.array([1e-9, 500.0, 1e6])) == pytest.approx([0, 0.5, 0.5], abs=1e-3)
