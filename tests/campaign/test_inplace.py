"""Candidates that stay in their Parquet files: the same campaign as a copy, and no other one once a file changed."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from aicau import Campaign
from aicau.campaign.models import Models
from aicau.core.errors import InputError, StoreError
from aicau.core.pool import Rows
from commands import fingerprint


def pool_of(n=90):
    draw = np.random.default_rng(0)
    found = pd.DataFrame(draw.random((n, 3)).astype(np.float32), columns=["a", "b", "c"])
    found["d"] = draw.integers(5, size=n)
    found["kind"] = draw.choice(["x", "y"], n)
    found.insert(0, "id", [f"m{i}" for i in range(n)])
    return found


@pytest.fixture
def folder(tmp_path):
    """Two files, and row groups of different sizes."""
    (tmp_path / "pool").mkdir()
    whole = pool_of()
    whole[:50].to_parquet(tmp_path / "pool" / "one.parquet", row_group_size=20, index=False)
    whole[50:].to_parquet(tmp_path / "pool" / "two.parquet", index=False)
    return tmp_path


def play(campaign):
    """Ids of two batches, predictions and counts."""
    first = campaign.ask(8)
    campaign.tell(pd.DataFrame({"id": first["id"], "y": first["a"] + first["b"] ** 2}))
    second = campaign.ask(5)
    return [*first["id"], *second["id"]], campaign.predict(), campaign.status()["measured"]


def test_it_is_the_same_campaign_as_a_copy(folder):
    with (
        Campaign.create(folder / "copy.db", pool_of(), target="y") as copy,
        Campaign.create(folder / "there.db", folder / "pool", target="y", in_place=True) as there,
    ):
        one, other = play(copy), play(there)
        assert one[0] == other[0]
        pd.testing.assert_frame_equal(one[1], other[1])
        assert one[2] == other[2] == 8
        assert all(check.ok for check in there.doctor())
        there.export(folder / "out")
    with Campaign.import_(folder / "out", folder / "again.db") as again:
        pd.testing.assert_frame_equal(again.predict(), other[1])
    with Campaign.open(folder / "there.db") as there, there.store.reading() as session:
        kept = [(len(ids), columns[:11]) for _, ids, columns in session.features()]
    assert [columns for _, columns in kept] == [b'{"in_place"'] * 4


@pytest.fixture
def large(monkeypatch):
    """What is done with very many candidates, with few."""
    monkeypatch.setattr("aicau.campaign.models.EXACT", 0)
    for name, value in (("SAMPLED", 24), ("LISTED", 20), ("STAGES", 2)):
        monkeypatch.setattr(f"aicau.batching.shortlist.{name}", value)
    monkeypatch.setattr("aicau.batching.portions.DRAWN", 24)
    monkeypatch.setattr("aicau.proposal.DRAWN", 24)
    monkeypatch.setattr("aicau.batching.spread.LISTED", 12)
    monkeypatch.setattr("aicau.core.runs.PORTION", 16)


ALL = (
    *("default", "pemse:direct:eigen", "lc:eigen", "lc:top", "pemse:direct:spread", "farthest", "random", "bald"),
    *("pemse:quadratic:eigen", "pemse:tau:top", "br:posterior:eigen", "pemse:direct:eigen:difference"),
)


@pytest.mark.parametrize("strategy", ALL)
def test_rows_that_are_read_when_they_are_wanted_give_the_same_batches(folder, large, monkeypatch, strategy):
    """In place and as a copy, and as a tensor in memory: index for index."""
    found = []
    for name, pool in (("copy.db", pool_of()), ("there.db", folder / "pool"), ("memory.db", pool_of())):
        if name == "memory.db":
            monkeypatch.setattr(Models, "features", lambda self, rows=Models.features: rows(self)[:])
        with Campaign.create(folder / name, pool, target="y", in_place=name == "there.db", strategy=strategy) as made:
            found.append(play(made))
            assert isinstance(made.models.features(), Rows) == (name != "memory.db")
    copy, there, memory = found
    assert copy[0] == there[0] == memory[0]
    pd.testing.assert_frame_equal(there[1], copy[1])
    pd.testing.assert_frame_equal(memory[1], copy[1], rtol=1e-3)  # networks predict other portions at a time


TASKS = (
    *(("classification", word) for word in ("default", "lc:top", "br:posterior:top", "pemse:direct:spread")),
    *(("classification", "br:posterior:eigen:brier"), ("count", "default"), ("count", "pemse:posterior:spread")),
)


@pytest.mark.parametrize(("task", "strategy"), TASKS)
def test_labels_and_counts_too(folder, large, monkeypatch, task, strategy):
    """In place and as a tensor in memory; and who opens the campaign again gets the same."""
    found = []
    for name in ("there.db", "memory.db"):
        if name == "memory.db":
            monkeypatch.setattr(Models, "features", lambda self, rows=Models.features: rows(self)[:])
        pool = folder / "pool"
        with Campaign.create(folder / name, pool, "y", in_place=True, task=task, strategy=strategy) as made:
            first = made.ask(12)
            size = (3 * first["a"] + first["b"]).round().astype(int)
            made.tell(pd.DataFrame({"id": first["id"], "y": size if task == "count" else (size > 1).map(str)}))
            said = made.predict()
        with Campaign.open(folder / name) as again:
            pd.testing.assert_frame_equal(again.predict(), said)
            found.append((list(first["id"]), list(again.ask(6)["id"]), said))
    assert found[0][:2] == found[1][:2]
    pd.testing.assert_frame_equal(found[0][2], found[1][2], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("strategy", ["default", "pemse:direct:eigen", "lc:top", "pemse:direct:spread", "farthest"])
def test_a_large_pool_is_never_in_memory_as_a_whole(folder, large, monkeypatch, strategy):
    """Also with a goal, and when nothing is measured yet: no request for many rows at once."""
    most, find = [], Rows._found

    def counted(self, index):
        most.append(len(index))
        return find(self, index)

    monkeypatch.setattr(Rows, "_found", counted)
    monkeypatch.setattr("aicau.core.pool.HELD", 0)
    monkeypatch.setattr("aicau.campaign.choice.AT_ONCE", 30)
    with Campaign.create(folder / "there.db", folder / "pool", target="y", in_place=True, strategy=strategy) as there:
        first = there.ask(8)
        assert max(most) < 90
        there.tell(pd.DataFrame({"id": first["id"], "y": first["a"] + first["b"] ** 2}))
        there.predict()  # averages over so small a pool are over all of it
        most.clear()
        there.models._x.held = torch.zeros(0, dtype=torch.long), torch.zeros(0, 6)
        there.ask(3)
        there.ask(3, goal="max")
        assert 0 < max(most) < 90


def test_a_changed_file_is_refused(folder):
    with Campaign.create(folder / "there.db", folder / "pool", target="y", in_place=True) as there:
        there.ask(3)
    file = folder / "pool" / "two.parquet"
    os.utime(file)  # another time, the same content
    with Campaign.open(folder / "there.db") as there:
        assert len(there.ask(3)) == 3
        table = pq.read_table(file)
        pq.write_table(table.set_column(1, "a", pa.array(np.zeros(len(table), np.float32))), file)
        with pytest.raises(StoreError, match=r"two.parquet holds the candidates.*has changed.*put the old file back"):
            there.tell(pd.DataFrame({"id": ["m1"], "y": [1.0]}))
        assert [check.name for check in there.doctor() if not check.ok]
        file.unlink()
        with pytest.raises(StoreError, match="cannot be read"):
            there.tell(pd.DataFrame({"id": ["m1"], "y": [1.0]}))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_refused(folder):
    with Campaign.create(folder / "there.db", folder / "pool", target="y", in_place=True) as there:
        with pytest.raises(InputError, match="sees no CUDA device"):
            there.ask(3, device="cuda")
        with pytest.raises(InputError, match="unknown device 'abacus'"):
            there.ask(3, device="abacus")
        assert there.status()["pending"] == 0


def test_only_parquet_can_stay_in_place(tmp_path):
    pool_of().to_csv(tmp_path / "pool.csv", index=False)
    for pool in (tmp_path / "pool.csv", tmp_path, tmp_path / "none.parquet", pool_of()):
        with pytest.raises(InputError, match="can stay in place"):
            Campaign.create(tmp_path / "there.db", pool, target="y", in_place=True)
    assert not (tmp_path / "there.db").exists()


def test_a_killed_ask_leaves_no_trace(tmp_path):
    """Killed in the middle of an ask over many candidates: nothing changed, and it can be asked again."""
    draw = np.random.default_rng(1)
    pool = pd.DataFrame(draw.random((70_000, 3)), columns=list("abc"))
    pool.insert(0, "id", [f"m{i}" for i in range(len(pool))])
    pool.to_parquet(tmp_path / "pool.parquet")
    path = tmp_path / "big.db"
    with Campaign.create(path, tmp_path / "pool.parquet", target="y", in_place=True) as campaign:
        some = pool[::3500]
        campaign.tell(pd.DataFrame({"id": some["id"], "y": some["a"]}))
        campaign.predict(tmp_path / "said.parquet")  # the model is kept
        before = fingerprint(campaign.store)
        marked = tmp_path / "choosing"
        code = f"""
from pathlib import Path
from aicau import Campaign
from aicau.batching import shortlist
gains = shortlist.Pass.gains
def without_end(self, part):
    Path({str(marked)!r}).touch()
    while True:
        gains(self, part)
shortlist.Pass.gains = without_end
Campaign.open({str(path)!r}).ask(8)
"""
        child = subprocess.Popen([sys.executable, "-c", code], env=os.environ)
        while not marked.exists() and child.poll() is None:
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert fingerprint(campaign.store) == before
        assert list(campaign.ask(8, preview=True)["id"]) == list(campaign.ask(8)["id"])
