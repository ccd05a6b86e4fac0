"""A campaign from the first ask to the last prediction, on both databases where the database matters."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aicau import Campaign
from aicau.campaign import choice
from aicau.core.errors import InputError
from aicau.prediction.regression import COLUMNS
from aicau.store import schema
from commands import fingerprint


def pool(n=60):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "compound": [f"c{i}" for i in range(n)],
            "dose": rng.random(n) * 10,
            "ph": rng.random(n),
            "solvent": rng.choice(["water", "oil"], n),
            "note": [f"shelf {i}" for i in range(n)],
        }
    )


def create(address, **changes):
    settings = {"target": "viability", "batch": "plate", "id": "compound", "ignore": ["note"], "author": "ada"}
    return Campaign.create(address, pool(), **(settings | changes))


def results(batch, plate, replicates=1, seed=0):
    rng = np.random.default_rng(seed)
    rows = pd.concat([batch] * replicates, ignore_index=True)
    values = np.sin(rows.dose) + rows.ph + 0.1 * rng.normal(size=len(rows))
    return pd.DataFrame({"compound": rows["compound"], "viability": values, "plate": plate})


def test_a_whole_campaign(address, tmp_path):
    campaign = create(address)
    first = campaign.ask(8)
    assert first.columns.tolist() == [
        "compound", "dose", "ph", "solvent", "note", "replicate", "reason",
        "reason_score", "reason_share", "reason_distance", "reason_epistemic", "reason_bias", "reason_aleatoric",
    ]  # fmt: skip
    known = pool().set_index("compound").loc[first["compound"]]
    assert first.dose.tolist() == known.dose.tolist()
    assert first.note.tolist() == known.note.tolist()
    assert first.reason.str.startswith("fills the space (nothing is measured yet): ").all()
    assert first.replicate.tolist() == [1] * 8
    told = campaign.tell(results(first, "p1", replicates=2))
    assert told == {
        "tell": 1, "rows": 16, "new": 16, "known": 0, "completed": 8, "failed": 0, "unrequested": 0, "superseded": 0,
        "placed": 0, "pending": 0, "already": False, "warnings": (),
    }  # fmt: skip
    second, third = campaign.ask(5), campaign.ask(5)
    assert not set(second["compound"]) & set(third["compound"])
    assert not (set(second["compound"]) | set(third["compound"])) & set(first["compound"])
    for row in second.itertuples():
        assert row.reason.startswith(
            f"default: a measurement here lowers the error expected over all candidates by {row.reason_share:.2%}, the"
            f" most of all (expected bias of the ensemble here: {row.reason_score:.3g})"
        )
        assert row.reason_score > 0
        total = row.reason_epistemic + row.reason_bias + row.reason_aleatoric
        assert f"network {total**0.5:.3g}: {row.reason_epistemic / total:.0%} disagreement" in row.reason
        assert f"{row.reason_bias / total:.0%} bias (" in row.reason
        assert f"{row.reason_aleatoric / total:.0%} noise (sd {row.reason_aleatoric**0.5:.3g})" in row.reason
    status = campaign.status()
    assert {k: status[k] for k in ("candidates", "measurements", "pending", "rounds", "strategy")} == {
        "candidates": 60, "measurements": 16, "pending": 10, "rounds": 2, "strategy": "default",
    }  # fmt: skip
    said = campaign.predict()
    assert said["compound"].tolist() == pool()["compound"].tolist()
    assert said.columns.tolist() == ["compound", *COLUMNS]
    assert ((said.new_low < said.low) & (said.low < said["mean"]) & (said["mean"] < said.high)).all()
    by_id = said.set_index("compound")
    for row in second.itertuples():  # a point is explained by what is predicted of it
        own = by_id.loc[row.compound]
        assert row.reason_bias == pytest.approx(own.bias, rel=1e-5)
        assert f"predicted {own['mean']:.3g} ({own.new_low:.3g} to {own.new_high:.3g})" in row.reason
        assert f"({own.ensemble - own['mean']:+.3g} is taken out)" in row.reason
    campaign.close()

    with Campaign.open(address) as again:  # no refit, the same numbers, the same next batch
        assert again.predict().equals(said)
        with again.store.reading() as session:
            assert [basis for basis, _, _ in session.model_texts()] == [1]
        again.predict(tmp_path / "said.csv")
        again.predict(tmp_path / "said.parquet")
        assert pd.read_parquet(tmp_path / "said.parquet").equals(said)
        assert pd.read_csv(tmp_path / "said.csv")["mean"].tolist() == said["mean"].tolist()
        assert all(check.ok for check in again.doctor())


def play(address):
    """The same history: three asks, two tells, one failure."""
    with create(address, seed=np.int64(5)) as campaign:
        batch = campaign.ask(6)
        campaign.tell(results(batch, "p1"))
        batch = campaign.ask(6)
        rows = results(batch, "p2").assign(status="ok")
        rows.loc[2, ["viability", "status"]] = [np.nan, "failed"]
        campaign.tell(rows)
        return campaign.ask(6)["compound"].tolist()


def test_same_seed_and_history_same_batch_in_another_process_and_database(tmp_path, postgres):
    here = play(str(tmp_path / "a.db"))
    code = f"import sys; sys.path[:0] = {json.dumps([sys.path[0], *map(str, Path(__file__).parents[:2])])}\n"
    code += "from test_campaign import play; import sys; print('|'.join(play(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "b.db")], capture_output=True, text=True)
    assert done.stdout.strip().split("|") == here, done.stderr
    assert play(postgres()) == here


def test_a_request_is_answered_once(address):
    campaign = create(address)
    first = campaign.ask(4, request="monday")
    before = fingerprint(campaign.store)
    assert campaign.ask(4, request="monday").equals(first)
    assert fingerprint(campaign.store) == before
    with pytest.raises(InputError, match="'monday' was answered with 4 points; now 5"):
        campaign.ask(5, request="monday")
    assert not set(campaign.ask(4, request="tuesday")["compound"]) & set(first["compound"])
    campaign.close()


@pytest.fixture
def campaign(tmp_path):
    with create(tmp_path / "c.db") as made:
        yield made


def test_tell_takes_history_partial_plates_means_and_failures(campaign):
    asked = campaign.ask(4)["compound"].tolist()
    never = next(name for name in pool()["compound"] if name not in asked)
    table = pd.DataFrame(
        {
            "compound": [never, asked[2], asked[0], asked[0], asked[1]],
            "viability": [1.0, 2.0, 3.0, None, None],
            "sem": [None, 0.1, None, None, None],
            "count": [None, 3, 1, None, None],
            "status": ["ok", "", "Completed", "failed", "FAILED "],
            "plate": [7, 7, 7, 7, 8],
        }
    )
    told = campaign.tell(table)
    assert (told["rows"], told["completed"], told["failed"]) == (5, 2, 1)
    status = campaign.status()
    assert (status["measurements"], status["failed_wells"], status["pending"], status["batches"]) == (3, 2, 1, 2)
    with campaign.store.reading() as session:
        rows = [(r.value, r.sem, r.repeats, r.batch, r.status) for r in session.measurements()]
    assert rows == [
        (1.0, None, 1, "7", "ok"),
        (2.0, 0.1, 3, "7", "ok"),
        (3.0, None, 1, "7", "ok"),
        (None, None, 1, "7", "failed"),
        (None, None, 1, "8", "failed"),
    ]
    assert campaign.tell(table.sample(frac=1, random_state=1))["already"]  # in another order it says the same
    assert asked[1] in campaign.ask(56)["compound"].tolist()  # a failed well may come back, a pending point not


def test_a_column_that_was_sorted_alone_is_seen_by_the_features_beside_it(campaign):
    filled = campaign.ask(6).assign(viability=np.arange(6.0), plate="P1")
    for column in ("compound", "dose"):
        with pytest.raises(
            InputError, match=r"column 'dose': .* belongs to another row, .* was one column sorted alone"
        ):
            campaign.tell(filled.assign(**{column: filled[column].to_numpy()[[1, 2, 0, 3, 5, 4]]}))
    _, counts = campaign.check(filled.assign(compound=filled["compound"].to_numpy()[::-1]))
    assert counts["new"] < 6  # a row looks wrong, so the page stores nothing
    assert campaign.status()["measurements"] == 0
    sorted_as_a_whole = filled.sort_values("dose").round({"dose": 1})  # as a spreadsheet shows them
    assert campaign.tell(sorted_as_a_whole.head(4).assign(ph=0.5))["completed"] == 4  # somebody notes what was set
    assert campaign.tell(filled.astype({"dose": str}).assign(dose="about 3").tail(6))["pending"] == 0


def test_corrections_keep_the_old_row_with_time_and_author(campaign, tmp_path):
    campaign.tell(pd.DataFrame({"compound": ["c1", "c1", "c2"], "viability": [1.0, 2.0, 3.0], "plate": "p"}))
    campaign.author = "bob"
    fixed = pd.DataFrame({"compound": ["c1", "c1"], "viability": [1.5, 2.0], "plate": "p"})
    assert campaign.tell(fixed, correct=True)["superseded"] == 2
    assert campaign.tell(fixed, correct=True)["already"]
    files = {path.name: path for path in campaign.export(tmp_path / "out")}
    rows = pd.read_csv(files["measurements.csv"])
    assert rows.viability.tolist() == [1.0, 2.0, 3.0, 1.5, 2.0]
    assert rows.superseded_by.fillna(0).tolist() == [2, 2, 0, 0, 0]
    assert rows.author.tolist() == ["ada", "ada", "ada", "bob", "bob"]
    assert rows.superseded_author.fillna("").tolist() == ["bob", "bob", "", "", ""]
    assert rows.superseded_time.notna().tolist() == [True, True, False, False, False]
    assert campaign.status()["measurements"] == 3


def test_abandoned_points_do_not_come_back_unless_measured(campaign):
    asked = campaign.ask(3)["compound"].tolist()
    assert campaign.abandon(asked[:2]) == 2
    assert campaign.abandon(asked[0]) == 0
    rest = campaign.ask(57)["compound"].tolist()
    assert not set(rest) & set(asked)
    with pytest.raises(
        InputError, match=r"1 points were asked for and only 0 of 60 can be proposed \(58 are pending, 2"
    ):
        campaign.ask(1)
    campaign.tell(pd.DataFrame({"compound": [asked[0]], "viability": [1.0], "plate": "p"}))
    assert campaign.ask(1)["compound"].tolist() == [asked[0]]
    with pytest.raises(InputError, match="'nobody' is not the id of a candidate"):
        campaign.abandon(["nobody"])


def test_a_repeat_says_what_was_measured_before(tmp_path):
    with create(tmp_path / "c.db", strategy="lc") as campaign:
        names = pool()["compound"]
        rows = pd.DataFrame({"compound": [*names, *names[:10]], "plate": "p"})
        rows["viability"] = np.arange(len(rows)) % 7 * 0.1
        campaign.tell(rows)
        batch = campaign.ask(3)
        for row in batch.itertuples():
            values = rows.viability[rows["compound"] == row.compound]
            assert row.replicate == len(values) + 1
            told = f"{values.min():.3g}" + (f" to {values.max():.3g}" if len(values) > 1 else "")
            score = (
                f"lc: chosen by disagreement of the members: {row.reason_epistemic:.3g}, the largest that was left; "
            )
            assert row.reason.startswith(f"repeat, measured {len(values)}x before ({told}); {score}")
            assert row.reason_score == pytest.approx(row.reason_epistemic)
        assert batch.reason_score.is_monotonic_decreasing


def test_a_point_that_is_asked_for_twice_before_it_was_measured_says_so(tmp_path):
    """One candidate lies far from seven that are alike: all that is worth measuring is that one."""
    few = pd.DataFrame({"id": list("abcdefgh"), "x": [0] * 7 + [9]})
    with Campaign.create(tmp_path / "n.db", few, target="y") as campaign:
        campaign.tell(pd.DataFrame({"id": list("abc") * 2, "y": np.random.default_rng(1).normal(size=6)}))
        batch = campaign.ask(3)
    assert batch["id"].tolist() == ["h"] * 3
    assert batch.replicate.tolist() == [1, 2, 3]
    assert batch.reason.str.startswith("repeat of a point of this batch; ").tolist() == [False, True, True]
    assert not batch.reason.str.contains("before").any()


def test_where_noise_dominates_a_batch_repeats_points_and_says_why(tmp_path):
    """Four candidates with values that are nearly all noise: a plate of eight cannot hold new points only."""
    few = pd.DataFrame({"id": list("abcdefgh"), "x": range(8)})
    rng = np.random.default_rng(0)
    with Campaign.create(tmp_path / "n.db", few, target="y") as campaign:
        campaign.tell(pd.DataFrame({"id": list("abcdefgh") * 2, "y": rng.normal(size=16)}))
        batch = campaign.ask(6)
        repeats = batch[batch.duplicated("id", keep=False)]
        assert len(repeats)
        assert batch.reason.str.contains(r"repeat, measured 2x before \(-?[\d.]+ to -?[\d.]+\); default: ").any()
        assert repeats.reason.str.contains("a known point: one more measurement lowers the error expected").all()
        for name, rows in batch.groupby("id"):
            assert rows.replicate.tolist() == list(range(3, 3 + len(rows))), name
            assert rows.reason.str.startswith("repeat, measured 2x before (").all()
        assert all(check.ok for check in campaign.doctor())
        twice = repeats["id"].iloc[0]
        count = int((batch["id"] == twice).sum())
        told = campaign.tell(pd.DataFrame({"id": [twice], "y": [0.5]}))
        assert told["completed"] == 1  # one well of several: the others are still to come
        assert campaign.status()["pending"] == 5
        rest = pd.DataFrame({"id": [twice] * (count - 1), "y": 0.1 * np.arange(count - 1)})
        assert campaign.tell(rest)["completed"] == count - 1


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("random", "random: chosen by a random number: "),
        ("farthest", "to the nearest known or chosen point"),
        ("pemse:direct:eigen", "peak of mode 1 of the error matrix"),
        ("pemse:direct:eigen:difference", "peak of mode 1 of the error matrix"),
        ("br:quadratic:top", "chosen by expected bias of the ensemble: "),
    ],
)
def test_every_strategy_runs_and_says_why(tmp_path, strategy, words):
    with create(tmp_path / "c.db", strategy=strategy, ensemble="paper") as campaign:
        for number in range(3):
            batch = campaign.ask(6)
            campaign.tell(results(batch, f"p{number}", seed=number))
        batch = campaign.ask(7)
        assert words in batch.reason[0]
        assert len(set(batch["compound"])) == 7
        assert batch.reason_epistemic.notna().all()


def test_a_campaign_with_the_networks_alone_goes_on_where_it_was(tmp_path):
    with create(tmp_path / "paper.db", ensemble="paper") as campaign:
        campaign.tell(results(campaign.ask(10), "p1"))
        batch = campaign.ask(4)
        said = campaign.predict()
        assert campaign.status()["ensemble"] == "paper"
        assert campaign.models.current().predictor.combination is None
        assert all(check.ok for check in campaign.doctor())
    with Campaign.open(tmp_path / "paper.db") as again:
        pd.testing.assert_frame_equal(again.predict(), said)
        again.tell(results(batch, "p2"))
        assert len(again.ask(4)) == 4
        again.report(tmp_path / "report.html")
    with create(tmp_path / "combined.db") as other:  # the same networks, and more
        other.tell(results(other.ask(10), "p1"))
        np.testing.assert_allclose(other.predict()["ensemble"], said["ensemble"], rtol=1e-9)
        assert not np.allclose(other.predict()["mean"], said["mean"], rtol=1e-3)


def test_pending_points_push_the_next_batch_away(tmp_path):
    """On a line with both ends pending, the next point of a space-filling batch is in the middle."""
    line = pd.DataFrame({"id": [f"p{i}" for i in range(11)], "x": range(11)})
    with Campaign.create(tmp_path / "l.db", line, target="y", strategy="farthest") as campaign:
        assert campaign.ask(3)["id"].tolist() == ["p5", "p0", "p10"]
        assert campaign.ask(2)["id"].tolist() in (["p2", "p7"], ["p3", "p7"])  # p2 and p3 are equally far
        assert campaign.ask(1).reason_distance[0] == pytest.approx(1 / np.std(range(11)), rel=1e-6)


def test_the_campaign_itself_is_no_table(tmp_path):
    with create(tmp_path / "c.db") as campaign:
        for act in (campaign.tell, campaign.check, campaign.add):
            with pytest.raises(InputError, match="is the campaign itself; name another file"):
                act(tmp_path / "c.db")


def test_another_station_asks_while_this_one_computes(address, monkeypatch):
    """Whoever commits second chooses again: no point is handed out twice."""
    one, two = create(address), Campaign.open(address)
    plain = choice.choose
    taken = []

    def slow(campaign, *rest):
        rows = plain(campaign, *rest)
        if campaign is one and not taken:
            taken.extend(two.ask(5)["compound"])
        return rows

    monkeypatch.setattr(choice, "choose", slow)
    mine = one.ask(5)["compound"].tolist()
    assert len(taken) == 5
    assert not set(mine) & set(taken)
    assert all(check.ok for check in one.doctor())
    with one.store.reading() as session:
        assert [row.id for row in session.table(schema.asks)] == [1, 2]
    one.close()
    two.close()


def test_another_station_asks_and_tells_before_the_first_ask_is_kept(tmp_path, monkeypatch):
    """The first batch is chosen again, now with measurements there and still without a model."""
    one = create(tmp_path / "c.db")
    two = Campaign.open(tmp_path / "c.db")
    plain = choice.choose
    told = []

    def slow(campaign, *rest):
        rows = plain(campaign, *rest)
        if campaign is one and not told:
            told.append(two.tell(results(two.ask(5), "p1")))
        return rows

    monkeypatch.setattr(choice, "choose", slow)
    batch = one.ask(5)
    assert told[0]["completed"] == 5
    assert batch.reason.str.startswith("fills the space (nothing is measured yet): ").all()
    assert all(check.ok for check in one.doctor())
    one.close()
    two.close()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"strategy": "pemse:perfect:spread"}, "knows the truth"),
        ({"strategy": "magic"}, "unknown acquisition 'magic'"),
        ({"ensemble": "magic"}, "unknown ensemble 'magic'"),
        ({"ensemble": "auto"}, "unknown ensemble 'auto'"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"weight": 3}, "has no column 3"),
        ({"layout": 96, "controls": ["DMSO"]}, "controls are names and their wells, such as"),
        ({"id": "name"}, "has no column 'name'"),
        ({"target": "dose"}, "has a column 'dose', which is to hold the target"),
        ({"batch": "compound"}, "has a column 'compound', which is to hold the batch"),
        ({"target": "status"}, "the target column cannot be called 'status'"),
        ({"target": "plate"}, "target and batch are both called 'plate'"),
        ({"ignore": ["nothing"]}, "has no column 'nothing'"),
        ({"target": None}, "the target column needs a name; got None"),
        ({"target": " "}, "the target column needs a name; got ' '"),
        ({"target": "y\udcff"}, "the target column cannot be called .* not text in UTF-8"),
        ({"target": "Status "}, "the target column cannot be called 'Status'"),
        ({"target": "Compound"}, "which is to hold the target"),
        ({"batch": ""}, "the batch column needs a name"),
        ({"batch": "Viability"}, "target and batch are both called"),
        ({"batch": "p" * 201}, "a name of 201 characters; use at most 200"),
        ({"id": 5}, "the id column needs a name; got 5"),
        ({"target": "\u200b"}, "the target column needs a name"),
        ({"task": None}, "the task needs a name; got None"),
        ({"ensemble": ["paper"]}, "the ensemble needs a name"),
        ({"ignore": "note"}, "ignore is a list of names of columns; got 'note'"),
        ({"ignore": 5}, "ignore is a list of names of columns; got 5"),
        ({"author": "a" * 201}, "the author has a name of 201 characters"),
        ({"ignore": []}, None),
    ],
)
def test_a_campaign_that_cannot_be_meant_is_not_made(tmp_path, changes, sentence):
    if sentence is None:  # 60 different notes are few enough to be a category
        create(tmp_path / "c.db", **changes).close()
        return
    with pytest.raises(InputError, match=sentence):
        create(tmp_path / "c.db", **changes)
    assert list(tmp_path.iterdir()) == []


def test_without_results_there_is_nothing_to_predict(campaign):
    with pytest.raises(InputError, match="nothing is measured yet, so there is nothing to predict from"):
        campaign.predict()
    for wrong in (0, -1, 2.5, True, "abc", None, [1], 1j, np.nan, np.inf):
        with pytest.raises(InputError, match="at least one point"):
            campaign.ask(wrong)
    assert len(campaign.ask(2.0)) == len(campaign.ask(np.int64(2))) == 2


def test_arguments_of_another_kind_get_our_own_error(campaign, tmp_path):
    for wrong in ("", " ", 5, "a\x00", "\udcff", "r" * 201):
        with pytest.raises(InputError, match="a request "):
            campaign.ask(1, request=wrong)
    for wrong in (None, 5):
        with pytest.raises(InputError, match="a campaign is a file such as"):
            Campaign.create(wrong, pool(), target="y", id="compound")
        with pytest.raises(InputError, match="a campaign is a file such as"):
            Campaign.open(wrong)
        with pytest.raises(InputError, match="is not the id of a candidate"):
            campaign.abandon(wrong)
        for act in (campaign.report, campaign.export, lambda path: campaign.predict(path or 0)):
            with pytest.raises(InputError, match="expected the name of a file; got"):
                act(wrong)
    for huge in (10**400, 10**5000):
        with pytest.raises(InputError, match=r"^.{1,60} points were asked for and only"):
            campaign.ask(huge)
    with pytest.raises(InputError, match=r"'x{56}\.\.\. is not the id of a candidate; add it with 'aicau add'"):
        campaign.abandon(["x" * 1000])
    with pytest.raises(InputError, match="is not the id of a candidate"):
        campaign.abandon(["c1\udcff"])
    with pytest.raises(
        InputError, match="column 'dose': expected numbers, got struct<real: double, imaginary: double>"
    ):
        Campaign.create(tmp_path / "x.db", pool().assign(dose=1j), target="y", id="compound")
    with pytest.raises(InputError, match="a column called 'Count' has a meaning of its own"):
        Campaign.create(tmp_path / "x.db", pool().assign(Count=1), target="y", id="compound")
    assert not (tmp_path / "x.db").exists()


def test_a_repeat_after_a_failed_well_has_a_number_of_its_own(tmp_path):
    """Of two wells of each candidate the first failed: number 2 is taken."""
    with Campaign.create(tmp_path / "c.db", pool(4)[["compound", "ph"]], "y", id="compound", strategy="random") as made:
        wells = made.ask(4, replicates=2)[["compound", "replicate"]]
        made.tell(wells.assign(y=[None, 0.5] * 4, status=["failed", "ok"] * 4))
        again = made.ask(2)[["compound", "replicate"]]
        assert again["replicate"].tolist() == [3, 3]
        assert made.tell(again.assign(y=0.7))["completed"] == 2
