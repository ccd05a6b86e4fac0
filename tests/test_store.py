"""What only an SQLite file can go through: foreign, from the future, damaged, locked, read-only."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from aicau.errors import InputError, StoreError
from aicau.store import Chunk, Measurement, create_store, examine, open_store
from aicau.store.engine import fault, label, locate

SETTINGS = {"candidates": 2, "id": "id", "target": "y", "batch": None, "strategy": "farthest", "columns": []}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "campaign.db"
    create_store(path, SETTINGS, [Chunk(2, b"ids", b"features")], "ada").close()
    return path


def add(store, value=0.5):
    with store.writing() as session:
        return session.add_tell([Measurement(0, value, batch=f"plate {value}")], f"digest {value}", False, "ada")


def test_a_new_campaign_is_one_file_with_a_log_and_full_sync(path):
    assert sorted(p.name for p in path.parent.iterdir()) == ["campaign.db"]
    store = open_store(path)
    with store.reading() as session:
        run = session.connection.exec_driver_sql
        assert run("PRAGMA journal_mode").scalar() == "wal"
        assert run("PRAGMA synchronous").scalar() == 2
        assert run("PRAGMA busy_timeout").scalar() == 120_000


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "not an SQLite file"),
        (b"compound,a\nc1,2\n", "not an SQLite file"),
        (b"SQLite format 3\x00" + b"\x01" * 3000, "is damaged"),
    ],
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, content, sentence):
    path = tmp_path / "other.db"
    path.write_bytes(content)
    with pytest.raises((InputError, StoreError), match=sentence):
        open_store(path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["other.db"]


def test_another_programs_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE meta (key TEXT, value TEXT)")
        connection.execute("INSERT INTO meta VALUES ('format', 'something else')")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(InputError, match="holds no campaign of aicau"):
        open_store(path)
    assert path.read_bytes() == before


def test_a_file_from_the_future_is_refused_and_left_alone(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"newer aicau \(version 99"):
        open_store(path)
    assert path.read_bytes() == before


def test_a_damaged_file_is_one_sentence(path):
    store = open_store(path)
    for value in range(300):
        add(store, float(value))
    store.close()
    data = bytearray(path.read_bytes())
    data[4096 * 3 : 4096 * 12] = os.urandom(4096 * 9)
    path.write_bytes(data)

    def use():
        store = open_store(path)
        wrong = [check.problem for check in examine(store) if not check.ok]
        raise StoreError(wrong[0])

    with pytest.raises(StoreError, match="damaged"):
        use()


def test_a_truncated_file_is_one_sentence(path):
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(StoreError, match="damaged"):
        open_store(path)


def test_a_locked_file_is_one_sentence_and_readers_go_on(path):
    store = open_store(path, wait=0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="in use by another program"):
            add(store)
        with store.reading() as session:
            assert len(session.measurements()) == 0
        other.execute("ROLLBACK")
    assert add(store).rows == 1


def test_nothing_is_left_of_a_campaign_that_could_not_be_made(tmp_path):
    def chunks():
        yield Chunk(2, b"ids", b"features")
        raise InputError("the second chunk is wrong")

    with pytest.raises(InputError, match="second chunk"):
        create_store(tmp_path / "new.db", SETTINGS, chunks(), "ada")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="its folder does not exist"):
        create_store(tmp_path / "no" / "new.db", SETTINGS, [], "ada")
    with pytest.raises(InputError, match="there is no campaign at"):
        open_store(tmp_path / "new.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["mysql://host/db", "sqlite://", "sqlite:///:memory:", "", "nothing://", "://"])
def test_other_addresses_are_refused(word):
    with pytest.raises(InputError, match=r"campaign"):
        locate(word)


def test_addresses_and_how_messages_call_them():
    assert label(locate("sqlite:///folder/x.db")) == "folder/x.db"
    url = locate("postgresql://ada:secret@lab.example/screen")
    assert url.drivername == "postgresql+psycopg"
    assert label(url) == "the database 'screen' on lab.example"
    sentence = str(fault(label(url), Exception("connection failed: Connection refused")))
    assert sentence.startswith("the database 'screen' on lab.example cannot be reached")


def test_a_server_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(StoreError, match="nothing was changed"):
        open_store(f"postgresql://ada@/screen?host={tmp_path}")


READ_ONLY = """
import sys
from aicau.errors import StoreError
from aicau.store import Measurement, open_store
try:
    store = open_store(sys.argv[1])
    with store.reading() as session:
        print(len(session.measurements()))
    with store.writing() as session:
        session.add_tell([Measurement(1, 1.0)], "x", False, "ada")
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("folder_too", [False, True])
def test_a_read_only_file_can_be_read_and_not_written(path, folder_too):
    add(store := open_store(path))
    store.close()
    become = []
    if os.geteuid() == 0:  # root may write anywhere: become somebody else
        if shutil.which("setpriv") is None:
            pytest.skip("root can write to everything, and there is no setpriv to become another user")
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        if subprocess.run([*become, sys.executable, "-c", "import aicau.store"], capture_output=True).returncode:
            pytest.skip("another user cannot start this Python")
        for folder in [path.parent, *path.parents[1:4]]:
            folder.chmod(0o755)
    path.chmod(0o444)
    path.parent.chmod(0o555 if folder_too else 0o777)
    before = path.read_bytes()
    try:
        done = subprocess.run([*become, sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True)
    finally:
        path.parent.chmod(0o755)
    assert done.stdout.splitlines()[0] == "1", done.stderr
    assert "read-only" in done.stdout.splitlines()[1]
    assert path.read_bytes() == before
    assert Path(f"{path}-wal").exists() is False or not folder_too
