"""What makes a measurement the same one: a file told again, grown or reordered."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicau import Campaign
from aicau.core.errors import InputError
from aicau.store import Measurement
from aicau.store.identity import known
from aicau.tables.candidates import look_alikes
from aicau.tables.results import summary
from commands import fingerprint

POOL = pd.DataFrame({"id": [f"c{i}" for i in range(30)], "x": np.linspace(0, 1, 30)})


def create(address, **changes):
    return Campaign.create(address, POOL, **({"target": "y", "batch": "plate", "strategy": "farthest"} | changes))


@pytest.fixture
def campaign(tmp_path):
    with create(tmp_path / "c.db") as made:
        yield made


def table(ids, y, plate="P1", **columns):
    return pd.DataFrame({"id": ids.split(), "y": y, "plate": plate, **columns})


def values(campaign):
    with campaign.store.reading() as session:
        return sorted((f"c{m.candidate}", m.value, m.batch) for m in session.measurements())


def test_a_grown_file_adds_only_what_is_more(address):
    with create(address) as campaign:
        campaign.tell(table("c1 c2", [1.0, 2.0]))
        told = campaign.tell(table("c3 c2 c1", [3.0, 2.0, 1.0]))
        assert (told["rows"], told["new"], told["known"], told["unrequested"]) == (3, 1, 2, 1)
        assert values(campaign) == [("c1", 1.0, "P1"), ("c2", 2.0, "P1"), ("c3", 3.0, "P1")]
        before = fingerprint(campaign.store)
        for some in ("c1", "c3 c1", "c1 c2 c3"):  # any part of it
            again = campaign.tell(table(some, [float(name[1]) for name in some.split()]))
            assert again["already"]
            assert again["known"] == again["rows"] == len(some.split())
        assert fingerprint(campaign.store) == before
        assert all(check.ok for check in campaign.doctor())


def test_unlabelled_replicates_are_as_many_as_the_largest_file_had(campaign):
    campaign.tell(table("c1 c1 c2", [1.0, 1.0, 2.0]))  # two equal values are two replicates
    assert len(values(campaign)) == 3
    assert campaign.tell(table("c1 c2", [1.0, 2.0]))["already"]
    assert campaign.tell(table("c1 c1 c1 c1", [1.0, 1.5, 1.0, 1.0]))["new"] == 2
    assert campaign.tell(table("c1 c1 c1 c1 c2", [1.5, 1.0, 1.0, 1.0, 2.0]))["already"]
    assert len(values(campaign)) == 5


@pytest.mark.parametrize(
    ("told", "again", "sentence"),
    [
        (table("c1", 1.0), table("c1", 1.1), "row 2 says 1.1, and 1 is known .* use --correct; .* the number 2 in a"),
        (table("c1 c1", [1.0, 2.0]), table("c1 c1", [2.0, 3.0]), "row 3 says 3, and 1 is known"),
        (table("c1", 1.0, replicate=1), table("c1", 1.1, replicate=1), "says 1.1, and 1 is known .* use --correct"),
        (table("c1", 1.0), table("c1", 1.1, replicate=1), "without a replicate number; a new measurement. number it 2"),
        (table("c1", 1.0), table("c1", 1.0, status="failed"), "row 2 says failed, and 1 is known .* use --correct"),
        (table("c1", 1.0, status="failed"), table("c1", 1.0), "row 2 says 1, and failed is known .* use --correct"),
        (table("c1", 1.0), table("c1", 1.0, sem=0.1, count=3), r"row 2 says 1 ± 0.1 \(3 times\), and 1 is known"),
        (table("c2", 1.0), table("c1 c1", [1.0, 2.0], replicate=4), "rows 2 and 3 are both replicate 4 of one id"),
    ],
)
def test_a_known_row_with_another_value_is_refused(campaign, told, again, sentence):
    campaign.tell(told)
    before = fingerprint(campaign.store)
    with pytest.raises(InputError, match=f"the table, .*{sentence}"):
        campaign.tell(pd.concat([again, table("c9", 9.0)], ignore_index=True))
    assert fingerprint(campaign.store) == before  # the good row neither
    if "--correct" in sentence:
        assert campaign.tell(again, correct=True)["superseded"] == 1
        assert campaign.tell(again)["already"]


def test_a_replicate_with_a_number_of_its_own_is_new_and_numbers_are_optional(campaign):
    campaign.tell(table("c1", 1.0))
    assert campaign.tell(table("c1 c1", [1.0, 1.1], replicate=[1, 2]))["new"] == 1
    assert campaign.tell(table("c1 c1", [1.1, 1.0]))["already"]
    assert campaign.tell(table("c1 c1 c1", [1.1, 1.0, 1.1], replicate=[2, None, 2]))["already"]
    assert campaign.tell(table("c1", 1.1, "P2", replicate=2))["new"] == 1  # on another plate
    assert campaign.tell(table("c1 c1", [0.1234567890123456, 0.123456789012346], "P3", replicate=1))["new"] == 1


def test_a_point_that_waits_for_a_value_gets_it(tmp_path):
    """Without batches and numbers a second value is new only where one was asked for."""
    with create(tmp_path / "c.db", batch=None) as campaign:
        campaign.tell(POOL.assign(y=POOL.x)[["id", "y"]])
        asked = campaign.ask(2)["id"].tolist()
        told = campaign.tell(pd.DataFrame({"id": asked, "y": [5.0, 6.0]}))
        assert (told["new"], told["completed"], told["pending"]) == (2, 2, 0)
        with pytest.raises(InputError, match="row 2 says 7, and"):
            campaign.tell(pd.DataFrame({"id": asked[:1], "y": 7.0}))
        again = campaign.ask(1)["id"].tolist()
        failed = pd.DataFrame({"id": again, "y": None, "status": "failed", "replicate": 3})
        assert campaign.tell(failed)["failed"] == 1
        campaign.store.settings["strategy"] = "random"
        while again[0] not in campaign.ask(1)["id"].tolist():
            pass
        assert campaign.tell(pd.DataFrame({"id": again, "y": 8.0, "replicate": 3}))["completed"] == 1


def test_equal_labels_of_a_pending_point_are_pointed_out(tmp_path):
    with create(tmp_path / "c.db", batch=None, task="classification") as campaign:
        campaign.tell(pd.DataFrame({"id": POOL["id"], "y": "hit"}))
        asked = campaign.ask(2)
        told = campaign.tell(pd.DataFrame({"id": asked["id"], "y": "hit"}))
        assert told["already"]
        assert told["warnings"][0].startswith("2 pending points have rows that equal known ones")
        assert campaign.tell(asked[["id", "replicate"]].assign(y="hit"))["completed"] == 2


def test_corrections_that_say_nothing_new_change_nothing(campaign):
    campaign.tell(table("c1 c1 c2 c3", [1.0, 2.0, 3.0, 4.0], replicate=[1, 2, 1, None]))
    before = fingerprint(campaign.store)
    assert campaign.tell(table("c1 c2 c3", [2.0, 3.0, 4.0], replicate=[2, 1, None]), correct=True)["already"]
    assert campaign.tell(table("c1 c1", [2.0, 1.0]), correct=True)["already"]
    assert fingerprint(campaign.store) == before
    fixed = table("c1 c2 c3", [2.0, 3.5, 4.0], replicate=[2, 1, None])
    told = campaign.tell(fixed, correct=True)
    assert (told["new"], told["known"], told["superseded"]) == (1, 2, 1)
    after = fingerprint(campaign.store)
    assert campaign.tell(fixed, correct=True)["already"]
    # The instrument's own file, which still has the old value, and a new row: the correction stays.
    assert fingerprint(campaign.store) == after
    told = campaign.tell(table("c2 c4", [3.0, 5.0], replicate=1))
    assert (told["new"], told["known"]) == (1, 1)
    assert told["warnings"] == ("1 of the known rows was corrected since; corrections stay",)
    assert ("c2", 3.5, "P1") in values(campaign)


def test_a_correction_of_one_of_two_replicates_says_that_both_gave_way(campaign):
    campaign.tell(table("c1 c1 c2", [1.0, 2.0, 3.0], replicate=[1, 2, 1]))
    told = campaign.tell(table("c1 c2", [2.5, 3.5]), correct=True)
    assert told["superseded"] == 3
    assert "1 corrected candidate has fewer values than before" in told["warnings"][0]
    campaign.untell(told["tell"])
    assert campaign.tell(table("c1", [2.5], replicate=[2]), correct=True)["warnings"] == ()
    assert [value for _, value, _ in values(campaign)] == [1.0, 2.5, 3.0]


def test_a_correction_does_not_answer_a_pending_point(campaign):
    campaign.tell(table(" ".join(POOL["id"]), POOL.x))
    asked = campaign.ask(1)["id"][0]
    told = campaign.tell(table(asked, 7.0), correct=True)
    assert (told["completed"], told["unrequested"], told["pending"]) == (0, 0, 1)


def test_labels_are_checked_where_they_are_stored(tmp_path):
    with create(tmp_path / "c.db", task="classification") as campaign, Campaign.open(tmp_path / "c.db") as other:
        campaign.tell(table("c1 c2", ["1", "2"]))
        with pytest.raises(
            InputError, match=r"row 2: the class '1\.0' looks like '1'; write '1', or add --new '1.0' if"
        ):
            campaign.tell(table("c2", "1.0"), correct=True)
        with pytest.raises(InputError, match="row 51: this is class number 51, and there can be 50"):
            campaign.tell(table(" ".join(["c2"] * 50), [f"k{i}" for i in range(50)]), correct=True)
        campaign.tell(table("c1", "1.0"), correct=True)  # nothing says '1' any more
        assert campaign.status()["classes"] == ["1.0", "2"]
        plain = campaign.store.reading

        def slow():  # another station tells after this one has looked, and before it writes
            campaign.store.__dict__.pop("reading", None)
            other.tell(table("c3", "3"))
            return plain()

        object.__setattr__(campaign.store, "reading", slow)
        with pytest.raises(InputError, match=r"row 2: the class '3\.0' looks like '3'"):
            campaign.tell(table("c4", "3.0"))


def test_columns_are_found_in_any_case(campaign):
    rows = table("c1 c2", [99.0, 2.0], **{" Status": ["failed", "ok"], "SEM": [None, 0.1], "Count ": [None, 3]})
    rows = rows.rename(columns={"y": "Y", "plate": "Plate ", "id": "ID"}).assign(REPLICATE=[1, 2])
    campaign.tell(rows)
    with campaign.store.reading() as session:
        found = [(m.status, m.value, m.sem, m.repeats, m.replicate) for m in session.measurements()]
    assert found == [("failed", None, None, 1, 1), ("ok", 2.0, 0.1, 3, 2)]
    with pytest.raises(InputError, match="columns 'status' and 'Status' both read as 'status'; rename one"):
        campaign.tell(table("c3", 1.0, status="ok", Status="failed"))


@pytest.mark.parametrize("name", ["Sta tus", "\ufeffstatus", "status\u200b", "\u00a0STATUS", "ｓtatus", "st\u00adatus"])
def test_columns_with_marks_that_nobody_sees_are_found(campaign, name):
    campaign.tell(table("c1", 99.0, **{name: "failed"}))
    assert campaign.status()["failed_wells"] == 1
    assert values(campaign) == [("c1", None, "P1")]


def test_names_that_look_alike_need_a_decision(tmp_path):
    with create(tmp_path / "c.db", task="classification") as campaign:
        assert campaign.tell(table("c1 c2", ["Good", "bad"], [" P1", "1"]))["warnings"] == ()
        assert campaign.tell(table("c3", "bad", "P1 "))["new"] == 1  # blanks around do not count
        assert campaign.status()["batches"] == 2
        before = fingerprint(campaign.store)
        for wrong, sentence in (
            (
                table("c4 c5", "bad", ["P2", "p1"]),
                "row 3: the batch 'p1' looks like 'P1'; write 'P1', or add --new 'p1'",
            ),
            (table("c4", "bad", "1.0"), r"row 2: the batch '1.0' looks like '1'; write '1'"),
            (table("c4 c5", "bad", ["Q1", "q1"]), "row 3: the batch 'q1' looks like 'Q1'"),
            (
                table("c4", "good"),
                "the class 'good' looks like 'Good'; write 'Good', or add --new 'good' if it is another",
            ),
        ):
            with pytest.raises(InputError, match=sentence):
                campaign.tell(wrong)
        assert fingerprint(campaign.store) == before
        assert campaign.tell(table("c4 c5", "good", "1.0"), new=["1.0", "good"])["new"] == 2
        assert campaign.tell(table("c6", "good", "1.0"))["warnings"] == ()  # decided once
        assert campaign.tell(pd.DataFrame({"id": ["c7"], "y": "bad", "plate": [1.0]}))["new"] == 1  # a number: plate 1
        assert campaign.status()["batches"] == 3
    assert look_alikes(["P1", "cafe\u0301", "p 1", "Ｐ1", "q", "caf\u00e9"]) == [
        ("p 1", "P1"),
        ("Ｐ1", "P1"),
        ("caf\u00e9", "cafe\u0301"),
    ]


def test_the_words():
    none = dict.fromkeys(["new", "known", "completed", "failed", "unrequested", "superseded", "placed", "pending"], 0)
    told = none | {"already": False}
    counts = {"new": 24, "known": 12, "completed": 20, "failed": 2, "unrequested": 4, "pending": 6}
    assert summary(told | counts) == (
        "24 new measurements, 12 known already; 20 points completed, 2 failed, 4 not asked for; 6 still pending"
    )
    assert summary(told | {"new": 1, "completed": 1}) == "1 new measurement; 1 point completed; 0 still pending"
    assert summary(told | {"known": 1, "already": True}) == "nothing new: the row is known already; 0 still pending"


CELLS = st.tuples(st.integers(0, 3), st.sampled_from([None, 0.1, 0.2, 1 / 3]), st.sampled_from(["P1", "P2"]))
ROWS = st.lists(CELLS.map(lambda cell: Measurement(*cell[:2], batch=cell[2])), min_size=1, max_size=12)


@settings(max_examples=300, deadline=None)
@given(ROWS, st.booleans(), st.data())
def test_any_order_of_files_of_one_truth_ends_at_the_same_rows(truth, numbered, data):
    """Files with replicate numbers may be cut anywhere; without them each file grew from the one before."""
    if numbered:
        truth = [row._replace(replicate=at + 1) for at, row in enumerate(truth)]
    truth = [row._replace(line=at) for at, row in enumerate(truth)]
    files = [truth]
    for _ in range(data.draw(st.integers(1, 4))):
        if numbered:
            files.append(data.draw(st.lists(st.sampled_from(truth), min_size=1, unique=True)))
        else:
            files.append(truth[: data.draw(st.integers(1, len(truth)))])
    stored = []
    for tell, file in enumerate(data.draw(st.permutations(files))):
        file = data.draw(st.permutations(file))
        for row in known(file, stored, Counter()).new:
            stored.append(SimpleNamespace(**row._asdict(), status=row.status, tell=tell, superseded_by=None))
        assert known(file, stored, Counter()).new == []

    def facts(rows):
        return Counter((row.candidate, row.value, row.batch, row.replicate) for row in rows)

    assert facts(stored) == facts(truth)
