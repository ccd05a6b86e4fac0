"""A laptop dies, a disk is full: what was acknowledged is there, nothing is half there, the next command works."""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pandas as pd
import pytest

import crashes
from aicau import Campaign
from aicau.report.gather import gather
from aicau.store import open_store
from commands import fingerprint


@pytest.fixture(scope="module")
def three_rounds(tmp_path_factory):
    path = tmp_path_factory.mktemp("rounds") / "c.db"
    crashes.create(path, strategy="pemse:direct:top:difference")
    with Campaign.open(path) as campaign:
        for plate in range(3):
            batch = campaign.ask(8)
            campaign.tell(pd.DataFrame({"id": batch["id"], "y": batch.x**2 + batch.z + plate / 10, "plate": plate}))
        campaign.predict()
    return path


@pytest.fixture(scope="module")
def undamaged(three_rounds, tmp_path_factory):
    """What the campaign says and asks."""
    return looked_at(shutil.copy(three_rounds, tmp_path_factory.mktemp("whole") / "c.db"), [])


def looked_at(path, wrong):
    """Predictions and the next batch, after a report; what the doctor finds wrong is known."""
    with Campaign.open(path) as campaign:
        assert [check.name for check in campaign.doctor() if not check.ok] == wrong
        campaign.report(path.with_name("report.html"))
        said, asked = campaign.predict(), campaign.ask(5)["id"].tolist()
        campaign.export(path.with_name("out"))
        campaign.compact()
        assert all(check.ok for check in campaign.doctor())
    return said, asked


@pytest.mark.parametrize("damage", ["tensors = zeroblob(50)", "info = substr(info, 2)", "info = CAST(x'7bff' AS TEXT)"])
def test_a_kept_model_that_cannot_be_read_is_fitted_again(three_rounds, undamaged, tmp_path, damage):
    path = shutil.copy(three_rounds, tmp_path / "damaged.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE models SET {damage}")
    said, asked = looked_at(path, ["models"])
    assert said.equals(undamaged[0])
    assert asked == undamaged[1]


def test_compact_drops_what_no_batch_needs(three_rounds, tmp_path):
    paths = [shutil.copy(three_rounds, tmp_path / name) for name in ("whole.db", "compact.db")]
    with Campaign.open(paths[1]) as campaign:
        assert campaign.status()["models"] == 3
        before = campaign.status()["model_bytes"], paths[1].stat().st_size
        done = campaign.compact()
        assert done["dropped"] == 1
        assert campaign.status()["models"] == 2
        assert campaign.status()["model_bytes"] == before[0] - done["bytes"]
    assert paths[1].stat().st_size < before[1]
    said = []
    for path in paths:
        with Campaign.open(path) as campaign:
            assert len(gather(campaign).rounds) == 3
            said.append((campaign.predict(), campaign.ask(5)["id"].tolist()))
            campaign.report(tmp_path / "report.html")
            files = campaign.export(tmp_path / path.stem)
            assert sum(file.suffix == ".safetensors" for file in files) == (3 if path is paths[0] else 2)
    assert said[0][0].equals(said[1][0])
    assert said[0][1] == said[1][1]


def test_twenty_kills_on_sqlite(tmp_path):
    address = str(tmp_path / "c.db")
    crashes.create(address, ensemble="paper")  # fitted quickly: more of the time is the store's
    acknowledged = []
    for number in range(20):
        acknowledged += crashes.kill_once(address, tmp_path, number, by_time=number % 2 == 0, within=0.5)
        crashes.check(address, acknowledged)
    assert sum("plate" in what for what in acknowledged) > 5


def test_six_kills_on_postgresql(postgres, tmp_path):
    address = postgres()
    crashes.create(address, ensemble="paper")
    acknowledged = []
    for number in range(100, 106):
        acknowledged += crashes.kill_once(address, tmp_path, number, by_time=number % 2 == 0, within=0.5)
        crashes.check(address, acknowledged)


def test_threads_of_one_process_and_another_process_lose_nothing(tmp_path):
    address = str(tmp_path / "c.db")
    crashes.create(address)
    acknowledged, polls = crashes.threads(address, tmp_path, count=60, pause=0.001)
    assert len(acknowledged) == 180
    assert polls
    crashes.check(address, acknowledged)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder to copy, and a pending point of the campaign in it."""
    folder = tmp_path_factory.mktemp("prepared")
    return folder, crashes.prepare(folder, ensemble="paper")


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace: apt install strace")
@pytest.mark.parametrize("verb", ["init", "tell", "tell --correct", "abandon", "compact", "untell", "add"])
def test_kills_at_system_calls(verb, prepared, tmp_path):
    folder, pending = prepared
    assert crashes.kill_at_calls(verb, folder, tmp_path, pending, 3) > 50


def test_torn_logs(tmp_path):
    found = crashes.tear_logs(tmp_path, 30)
    assert found["part"]
    assert found["refused"] <= 6


def test_stations_that_tell_overlapping_files_at_once(address):
    crashes.overlap(address, stations=6)


TELL = "import sys; from aicau.cli import main; sys.argv[1:] = ['tell', *sys.argv[1:]]; main()"


@pytest.fixture(params=["small file system", "limit on file size"])
def full(request, tmp_path):
    """A folder, and how to start a program there that will find no room for more than a few hundred kilobytes."""
    if request.param == "limit on file size":

        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

        yield tmp_path, limited
        return
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(tmp_path)], capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot mount a small file system here: {done.stderr.decode().strip()}")
    yield tmp_path, None
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_changes_nothing_and_is_one_sentence(full, tmp_path_factory):
    folder, limited = full
    crashes.create(str(folder / "c.db"))
    rows = pd.DataFrame({"id": [f"c{i % 400}" for i in range(30_000)], "y": range(30_000), "plate": "large"})
    file = tmp_path_factory.mktemp("rows") / "rows.csv"
    rows.to_csv(file, index=False)
    before = fingerprint(open_store(folder / "c.db"))
    command = [sys.executable, "-c", TELL, str(folder / "c.db"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limited)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert "the disk is full or failing" in done.stderr
    assert done.stderr.count("\n") == 1
    assert fingerprint(open_store(folder / "c.db")) == before
    with Campaign.open(folder / "c.db") as campaign:
        assert all(check.ok for check in campaign.doctor())
        assert campaign.tell(rows.head(50))["rows"] == 50  # there is room for a small one


def test_no_room_for_a_new_campaign_leaves_nothing(full):
    folder, limited = full
    code = (
        "import sys, pandas as pd\nfrom aicau import Campaign\nfrom aicau.core.errors import StoreError\n"
        "pool = pd.DataFrame({'id': range(60_000), 'x': range(60_000)})\n"
        "try: Campaign.create(sys.argv[1], pool, target='y')\n"
        "except StoreError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "c.db")], capture_output=True, text=True, preexec_fn=limited
    )
    assert "the disk is full or failing" in done.stdout, done.stderr
    assert list(folder.iterdir()) == []
