"""What an SQLite file can go through: foreign, from the future, damaged, locked, read-only; and kept secrets."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import traceback
from contextlib import closing, suppress
from pathlib import Path

import pytest

from aicau import Campaign, tables
from aicau.core.errors import InputError, StoreError
from aicau.store import Chunk, Measurement, add_tell, create_store, examine, open_store
from aicau.store.engine import connect, fault, label, locate
from commands import POOL, fingerprint, run

SETTINGS = {"candidates": 2, "id": "id", "target": "y", "batch": None, "strategy": "farthest", "columns": []}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "campaign.db"
    create_store(path, SETTINGS, [Chunk(2, b"ids", b"features")], "ada").close()
    return path


def add(store, value=0.5):
    with store.writing() as session:
        return add_tell(session, [Measurement(0, value, batch=f"plate {value}")], f"digest {value}", False, "ada")


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
        (b"", "is empty or no SQLite file"),
        (b"x", "is empty or no SQLite file"),
        (b"compound,a\nc1,2\n" * 100, "not an SQLite file"),
        (b"SQLite format 3\x00" + b"\x01" * 3000, "its beginning is damaged"),
    ],
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, content, sentence):
    path = tmp_path / "other.db"
    path.write_bytes(content)
    with pytest.raises((InputError, StoreError), match=sentence):
        open_store(path)
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["other.db"]


def test_a_folder_a_pipe_and_impossible_names_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name, words in {
        ".": "but a folder",
        "pipe": "but a pipe",
        "loop": "symbolic links",
        "x" * 300: "too long",
    }.items():
        with pytest.raises(InputError, match=words):
            open_store(tmp_path / name)
    with pytest.raises(InputError, match="no campaign at"):
        open_store(tmp_path / "pipe" / "x.db")


OPENED = """
import sys
from aicau.store import Measurement, add_tell, examine, open_store, schema
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
store = open_store(sys.argv[1])
with store.writing() as session:
    add_tell(session, [Measurement(0, 1.0)], "x", False, "ada")
examine(store)
with store.reading() as session:
    session.table(schema.chunks)
print([name for name in opened if name.startswith(sys.argv[1])])
"""


def test_nothing_but_sqlite_opens_a_campaign(path):
    """Closing any other descriptor would drop the locks of the process: see aicau.store.engine."""
    done = subprocess.run([sys.executable, "-c", OPENED, str(path)], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_a_campaign_is_no_table_and_no_output(tmp_path, monkeypatch):
    """Neither read as a table, which drops SQLite's locks, nor replaced, even by force."""
    (tmp_path / "pool.csv").write_text(POOL)
    name = tmp_path / "c.csv"
    assert run("init", name, tmp_path / "pool.csv", "--id", "compound", "--target", "y")[0] == 0
    plain = os.open

    def watched(path, *more, **options):
        assert str(path) != str(name)
        return plain(path, *more, **options)

    monkeypatch.setattr(os, "open", watched)
    with Campaign.open(name) as campaign:
        before = fingerprint(campaign.store)
        for act in (
            lambda: campaign.tell(str(name)),
            lambda: campaign.predict(name, force=True),
            lambda: campaign.report(name, force=True),
        ):
            with pytest.raises(InputError, match="is the campaign itself; name another file"):
                act()
        with campaign.store.reading() as session:  # so that it is in use
            session.meta()
            with pytest.raises(InputError, match="it is a database in use; expected a CSV or Parquet file"):
                tables.read(name)
    for words in (["ask", name, "1"], ["predict", name], ["pending", name]):
        code, _, err = run(*words, "--out", name, "--force")
        assert (code, "is the campaign itself" in err) == (2, True)
    assert fingerprint(open_store(name)) == before


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
    rows = [Measurement(value % 2, float(value), batch=f"plate {value}") for value in range(3000)]
    with store.writing() as session:
        add_tell(session, rows, "digest", False, "ada")
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


def test_a_number_of_more_than_64_bits_is_one_sentence(path):
    with (
        closing(open_store(path)) as store,
        pytest.raises(InputError, match="keeps no whole numbers of more than 64 bits; nothing was changed"),
        store.reading() as session,
    ):
        session.proposals(10**20)


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
from aicau.core.errors import StoreError
from aicau.store import Measurement, add_tell, open_store
try:
    store = open_store(sys.argv[1])
    with store.reading() as session:
        print(len(session.measurements()))
    with store.writing() as session:
        add_tell(session, [Measurement(1, 1.0)], "x", False, "ada")
except StoreError as error:
    print(error)
"""


@pytest.fixture
def another(path):
    """Runs READ_ONLY as a user who may read the file; `shared`: who may make files beside it, too."""
    become = []
    if os.geteuid() == 0:  # root may write anywhere: become somebody else
        if shutil.which("setpriv") is None:
            pytest.skip("root can write to everything, and there is no setpriv to become another user")
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        if subprocess.run([*become, sys.executable, "-c", "import aicau.store"], capture_output=True).returncode:
            pytest.skip("another user cannot start this Python")
        for folder in [path.parent, *path.parents[1:4]]:
            folder.chmod(0o755)

    def run(shared):
        path.chmod(0o444)
        path.parent.chmod(0o777 if shared else 0o555)
        try:
            done = subprocess.run([*become, sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True)
        finally:
            path.parent.chmod(0o755)
            path.chmod(0o644)
        assert done.stderr == ""
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize("shared", [True, False])
def test_a_read_only_file_can_be_read_and_not_written(path, another, shared):
    add(store := open_store(path))
    store.close()
    before = path.read_bytes()
    count, sentence = another(shared)
    assert count == "1"
    assert "read-only" in sentence
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]  # no log that its owner could not write


def test_a_reader_without_rights_sees_what_is_still_in_the_log(path, another):
    with closing(sqlite3.connect(path)) as owner:  # as long as it is there, the log is
        owner.execute("SELECT * FROM meta").fetchall()
        add(store := open_store(path))
        assert Path(f"{path}-wal").stat().st_size > 0
        count, sentence = another(True)
        assert count == "1"
        assert "read-only" in sentence
        add(store, 0.7)
    assert list(path.parent.iterdir()) == [path]


def test_a_reader_without_rights_does_not_use_what_was_written_meanwhile(path, monkeypatch):
    monkeypatch.setattr("aicau.store.engine.writable", lambda _: False)
    reader = open_store(path)
    with (
        pytest.raises(StoreError, match="written by another user while it was read; try again"),
        reader.reading(),
        closing(sqlite3.connect(path)) as owner,
        owner,
    ):
        owner.execute("UPDATE meta SET value = '3' WHERE key = 'format'")


def test_who_may_only_read_an_older_campaign_is_told_so(path, another):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = '1' WHERE key = 'version'")
    before = path.read_bytes()
    (sentence,) = another(True)
    assert "made by an older aicau, and you may only read it; ask its owner" in sentence
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "[]",
        "{}",
        {"candidates": "two"},
        {"candidates": -5},
        {"batch": 5},
        {"seed": "x"},
        {"task": 1},
        {"columns": [5]},
        {"columns": [{"name": "x"}]},
        {"columns": [{"name": "x", "kind": "word"}]},
        {"columns": [{"name": "x", "kind": "number", "shift": 0.0}]},
        {"columns": [{"name": "x", "kind": "category", "levels": ["a"], "shift": [], "scale": 1.0}]},
    ],
    ids=str,
)
def test_damaged_settings_are_one_sentence(path, damage):
    text = damage if isinstance(damage, str) else json.dumps(SETTINGS | damage)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'settings'", (text,))
    with pytest.raises(StoreError, match=r"the settings of .* are damaged; restore it from a copy"):
        open_store(path)


def test_a_campaign_is_made_where_hard_links_are_refused(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    add(create_store(tmp_path / "new.db", SETTINGS, [Chunk(2, b"ids", b"features")], "ada"))
    assert list(tmp_path.iterdir()) == [tmp_path / "new.db"]

    def slow():  # while it is made, another takes the name
        (tmp_path / "other.db").write_text("mine")
        yield Chunk(2, b"ids", b"features")

    with pytest.raises(InputError, match="exists already"):
        create_store(tmp_path / "other.db", SETTINGS, slow(), "ada")
    assert (tmp_path / "other.db").read_text() == "mine"
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StoreError, match=r"cannot make .*: Operation not permitted; nothing was changed"):
        create_store(tmp_path / "third.db", SETTINGS, [], "ada")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.db", "other.db"]


def test_what_a_killed_init_left_goes_with_the_next_one(tmp_path):
    names = [".new.db.0123abcd.partial", ".new.db.0123abcd.partial-wal", "new.db"]
    for name in [*names, ".new.db.mine.partial", ".newxdb.0123abcd.partial"]:
        (tmp_path / name).touch()

    def meanwhile():
        (tmp_path / "new.db").write_text("mine")
        with pytest.raises(InputError, match="exists already"):  # it leaves alone what is being made
            create_store(tmp_path / "new.db", SETTINGS, [], "eve")
        (tmp_path / "new.db").unlink()
        yield Chunk(2, b"ids", b"features")

    create_store(tmp_path / "new.db", SETTINGS, meanwhile(), "ada").close()
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == [".new.db.mine.partial", ".newxdb.0123abcd.partial", "new.db"]


SECRETS = [
    "postgresql://ada:s3cret@localhost:1/screen",
    "postgresql://ada:s3cret%40x@localhost:1/screen",
    "postgresql://localhost:1/screen?user=ada&password=s3cret",
    "postgresql://localhost:1/screen?user=ada&sslPassword=s3cret",
    "postgresql:/ada:s3cret@localhost:1/screen",  # no address, so it is taken for a file
    "postgresql://ada:s3cret@localhost:port/screen",
    "mysql://ada:s3cret@localhost/screen",
    "postgresql://ada:s3cret@localhost:1/screen?nonsense=1",
    "postgresql://ada:s3@s3cret@localhost:1/screen",  # signs that an address has to encode
    "postgresql://ada:s3@a/s3cret@localhost:1/screen",
    "postgresql://ada:a s3cret@localhost:1/screen",
    "postgresql://ada:s3cret%zz@localhost:1/screen",
    "postgresql://localhost:1/screen?user=ada&passwd=s3cret&pwd=s3cret",
    "postgresql://localhost:1/screen?password=a s3cret",
    "postgresql://localhost:1/screen?options=-c%20password%3Ds3cret",
    "host=localhost user=ada password='a s3cret' dbname=screen",  # no addresses, and no names of files either
    "postgresql:ada:s3cret@localhost/screen",
    "ada:s3cret@localhost/screen",
]


@pytest.mark.parametrize("address", SECRETS)
def test_no_password_is_said(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for act in (open_store, lambda name: create_store(name, SETTINGS, [], "ada")):
        with pytest.raises((InputError, StoreError)) as caught:
            act(address)
        assert "s3cret" not in "".join(traceback.format_exception(caught.value))
    for words in (["status", address], ["status", "x.db", address], ["--db", address], [address]):
        code, out, err = run(*words)
        assert code in (1, 2)
        assert "s3cret" not in out + err
    with suppress(InputError):
        assert "s3cret" not in f"{connect(locate(address))!r} {label(locate(address))}"
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_a_folder_with_the_signs_of_an_address(tmp_path):
    (folder := tmp_path / "plates:of@today").mkdir()
    create_store(folder / "new.db", SETTINGS, [Chunk(2, b"ids", b"features")], "ada").close()
    assert label(locate(folder / "new.db")) == str(folder / "new.db")


@pytest.mark.parametrize("among_parameters", [False, True])
def test_no_verb_prints_or_keeps_a_password(postgres, among_parameters, tmp_path):
    plain = postgres()  # postgresql://aicau@/name?host=folder, and any password will do
    address = f"{plain}&password=s3cret" if among_parameters else plain.replace("aicau@", "aicau:s3cret@")
    (tmp_path / "pool.csv").write_text(POOL)
    (tmp_path / "told.csv").write_text("compound,viability\n" + "".join(f"c{i},{i}\n" for i in range(6)))
    said = [run("init", address, tmp_path / "pool.csv", "--id", "compound", "--target", "viability")]
    for words in (
        ["ask", 2, "--json"],
        ["tell", tmp_path / "told.csv"],
        ["status"],
        ["predict", "--out", tmp_path / "p.csv"],
        ["report", "--out", tmp_path / "r.html"],
        ["export", tmp_path / "all"],
        ["doctor"],
    ):
        said.append(run(words[0], address, *words[1:]))
    assert [code for code, _, _ in said] == [0] * len(said), said
    with Campaign.open(address) as campaign:
        with campaign.store.writing() as session:
            session.connection.exec_driver_sql("UPDATE chunks SET features = ids")
        said += [run("doctor", address), run("init", address, tmp_path / "pool.csv", "--target", "y")]
        said += [run("status", "x.db", address), run("status", address.replace("campaign_", "nothing_")), run(address)]
        assert [code for code, _, _ in said[-5:]] == [1, 2, 2, 1, 2]
        words = f"{said} {campaign!r} {campaign.store!r} {campaign.store.engine!r} {campaign.store.engine.url}"
    assert "s3cret" not in words
    for file in tmp_path.rglob("*.*"):
        assert file.is_dir() or b"s3cret" not in file.read_bytes(), file
