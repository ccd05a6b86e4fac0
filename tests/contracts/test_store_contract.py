"""What every database must do for a campaign: the same suite on SQLite and on PostgreSQL."""

import json
import threading

import pytest

from aicau.core.errors import InputError, StoreError
from aicau.store import Chunk, Measurement, Moment, add_tell, changes, create_store, examine, open_store, schema
from commands import fingerprint

SETTINGS = {"candidates": 10, "id": "id", "target": "y", "batch": "plate", "strategy": "farthest", "columns": []}


def chunk(text, size):
    return Chunk(size, text.encode(), text.encode() * 2)


@pytest.fixture
def store(address):
    made = create_store(address, SETTINGS, [chunk("a", 6), chunk("b", 4)], "ada")
    yield made
    made.close()


def ask(store, *candidates, request=None, round=1, basis=0):
    with store.writing() as session:
        return session.add_ask([(c, 1, "why", "{}") for c in candidates], request, round, basis, "farthest", "ada")


def tell(store, *rows, digest="d", correct=False):
    with store.writing() as session:
        return add_tell(session, [Measurement(*row) for row in rows], digest, correct, "bob", "file.csv")


def test_what_went_in_comes_out_after_reopening(store, address):
    ask(store, 3, 1, request="r1")
    tell(store, (3, 0.5, None, 1, "p1", 1), (1, None, None, 1, "p1", None), (7, 2.0, 0.1, 3, "p1", None))
    store.close()
    again = open_store(address)
    assert again.settings == SETTINGS
    with again.reading() as session:
        assert [bytes(part) for part in session.ids()] == [b"a", b"b"]
        assert [(n, bytes(i), bytes(f)) for n, i, f in session.features([1])] == [(1, b"b", b"bb")]
        assert [(p.candidate, p.status) for p in session.proposals()] == [(3, "completed"), (1, "failed")]
        rows = [
            (m.id, m.tell, m.candidate, m.status, m.value, m.sem, m.repeats, m.batch) for m in session.measurements()
        ]
        assert rows == [
            (1, 1, 3, "ok", 0.5, None, 1, "p1"),
            (2, 1, 1, "failed", None, None, 1, "p1"),
            (3, 1, 7, "ok", 2.0, 0.1, 3, "p1"),
        ]
        kinds = [(e.kind, e.author, e.reference) for e in session.table(schema.events)]
        assert kinds == [("create", "ada", None), ("ask", "ada", 1), ("tell", "bob", 1)]
        detail = json.loads(session.table(schema.events)[2].detail)
        assert detail == {
            "rows": 3,
            "completed": 1,
            "failed": 1,
            "superseded": 0,
            "source": "file.csv",
            "answered": [[1, 0], [1, 1]],
        }
        assert session.ask_of("r1").size == 2
        assert session.ask_of("r2") is None
    assert all(check.ok for check in examine(again))
    again.close()


def test_the_same_rows_again_change_nothing(store):
    assert not tell(store, (1, 0.5), digest="x").already
    before = fingerprint(store)
    assert tell(store, (1, 0.5), digest="x").already
    assert fingerprint(store) == before


def test_a_correction_supersedes_and_can_be_corrected_back(store):
    tell(store, (1, 0.5, None, 1, "p"), (1, 0.6, None, 1, "p"), (2, 0.7, None, 1, "p"), digest="first")
    told = tell(store, (1, 9.0, None, 1, "p"), digest="second", correct=True)
    assert (told.tell, told.superseded) == (2, 2)
    tell(store, (1, 0.5, None, 1, "p"), digest="third", correct=True)
    # The second file once more: its row was superseded, so now it says something new.
    assert not tell(store, (1, 9.0, None, 1, "p"), digest="second", correct=True).already
    with store.reading() as session:
        assert [(m.candidate, m.value) for m in session.measurements()] == [(2, 0.7), (1, 9.0)]
        old = [(m.value, m.superseded_by) for m in session.measurements(current=False)]
        assert old == [(0.5, 2), (0.6, 2), (0.7, None), (9.0, 3), (0.5, 4), (9.0, None)]
    assert all(check.ok for check in examine(store))


def test_a_correction_of_one_replicate(store):
    tell(store, (1, 0.5, None, 1, "p", 1), (1, 0.6, None, 1, "p", 2), digest="first")
    assert tell(store, (1, 7.0, None, 1, "p", 2), digest="second", correct=True).superseded == 1
    with store.reading() as session:
        assert [m.value for m in session.measurements()] == [0.5, 7.0]
    before = fingerprint(store)
    with pytest.raises(InputError, match="row 12 corrects nothing"):
        tell(store, (1, 1.0, None, 1, "other plate", None, 12), digest="third", correct=True)
    assert fingerprint(store) == before


def test_an_error_in_the_middle_leaves_nothing(store):
    before = fingerprint(store)

    def interrupted():
        with store.writing() as session:
            session.add_ask([(1, 1, "why", "{}")], None, 1, 0, "farthest", "ada")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert fingerprint(store) == before


def test_abandoned_points_are_all_or_none(store):
    ask(store, 1, 2, 3)
    with store.writing() as session:
        assert changes.abandon(session, {1: "one", 2: "two"}, "eve") == 2
    before = fingerprint(store)
    with store.writing() as session:
        assert changes.abandon(session, {1: "one"}, "eve") == 0  # again: nothing to do
    with pytest.raises(InputError, match="'seven' is not pending"), store.writing() as session:
        changes.abandon(session, {3: "three", 7: "seven"}, "eve")
    assert fingerprint(store) == before
    with store.reading() as session:
        moment = Moment.read(session)
    assert (moment.pending, moment.barred) == ([3], [1, 2])


def test_a_round_begins_with_the_first_ask_after_a_tell(store):
    def round():
        with store.reading() as session:
            return Moment.read(session).round

    assert round() == 1
    ask(store, 1)
    assert round() == 1
    tell(store, (1, 0.5))
    assert round() == 2
    ask(store, 2, round=2, basis=1)
    assert round() == 2


def test_a_reader_sees_one_moment(store):
    with store.reading() as session:
        before = len(session.measurements())
        tell(store, (1, 0.5))
        assert len(session.measurements()) == before == 0
    with store.reading() as session:
        assert len(session.measurements()) == 1


def test_writers_come_one_after_another(store):
    """Twenty threads write at once; numbers have no gap and no double."""
    errors = []

    def work(number):
        try:
            tell(store, (number % 10, float(number), None, 1, f"p{number}"), digest=f"thread {number}")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    with store.reading() as session:
        assert [m.id for m in session.measurements()] == list(range(1, 21))
        assert sorted(m.value for m in session.measurements()) == [float(i) for i in range(20)]
    assert all(check.ok for check in examine(store))


def test_a_model_is_kept_once(store):
    with store.writing() as session:
        session.add_model(1, 2, b"tensors", "{}")
        session.add_model(1, 2, b"others", "{}")
    with store.reading() as session:
        assert bytes(session.model(1).tensors) == b"tensors"
        assert session.model(2) is None
        assert session.model_texts() == [(1, 2, "{}")]


def test_a_damaged_model_is_found_and_replaced(store):
    tell(store, (1, 0.5))
    for damage in (
        "tensors = (SELECT ids FROM chunks WHERE number = 0)",
        "info = '{'",
        "info = '{\"a\": 1}'",
        "digest = NULL",
    ):
        with store.writing() as session:
            session.add_model(1, 1, b"tensors", "{}")
            assert session.model(1) is not None
            session.connection.exec_driver_sql(f"UPDATE models SET {damage}")
            assert session.model(1) is None
            assert session.model_texts() == []
        wrong = [check.problem for check in examine(store) if not check.ok]
        assert [words[:42] for words in wrong] == ["the model kept after tell 1 cannot be read"]
    with store.writing() as session:
        session.add_model(1, 1, b"tensors", "{}")
    assert all(check.ok for check in examine(store))


def test_old_models_lose_their_tensors_and_keep_their_figures(store):
    for number in range(1, 6):
        tell(store, (number, 0.5), digest=str(number))
    with store.writing() as session:
        for basis, round in ((1, 1), (2, 2), (3, 2), (5, 3)):
            session.add_model(basis, round, b"tensors", f'{{"basis": {basis}}}')
        session.connection.exec_driver_sql("UPDATE models SET info = '' WHERE basis = 1")
    assert store.compact(rounds=2, author="eve") == (2, 14)
    assert store.compact(rounds=2, author="eve") == (0, 0)
    with store.reading() as session:
        assert session.model_rounds() == [(2, 2, 0), (3, 2, 7), (5, 3, 7)]
        assert session.model_texts() == [(b, r, f'{{"basis": {b}}}') for b, r in ((2, 2), (3, 2), (5, 3))]
        assert session.model(2) is None
        assert bytes(session.model(3).tensors) == b"tensors"
        last = session.table(schema.events)[-1]
        assert (last.kind, last.author, json.loads(last.detail)) == ("compact", "eve", {"models": 2, "bytes": 14})
    assert all(check.ok for check in examine(store))


def test_threads_that_wait_in_vain_get_one_sentence(store, address):
    """As many as a server gives no connections to, too."""
    impatient, said = open_store(address, wait=0.2), []

    def write():
        try:
            with impatient.writing():
                said.append("it has written")
        except StoreError as error:
            said.append(str(error))

    threads = [threading.Thread(target=write) for _ in range(8)]
    with store.writing():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(said) == 8
    assert all("is in use by another program; try again" in words for words in said), said
    write()
    assert said[-1] == "it has written"
    impatient.close()


def test_a_second_campaign_in_the_same_place_is_refused(store, address):
    before = fingerprint(store)
    with pytest.raises(InputError, match=r"already"):
        create_store(address, SETTINGS, [chunk("z", 10)], "eve")
    assert fingerprint(store) == before


def test_the_tables_are_those_of_the_schema(store):
    from sqlalchemy import inspect

    look = inspect(store.engine)
    for table in schema.metadata.sorted_tables:
        there = {c["name"]: c for c in look.get_columns(table.name)}
        assert set(there) == set(table.columns.keys())
        for column in table.columns:
            assert there[column.name]["nullable"] == column.nullable, (table.name, column.name)


def test_what_an_earlier_model_was_fitted_to(store):
    tell(store, (1, 0.5, None, 1, "p"), (2, 0.6, None, 1, "p"), digest="1")
    tell(store, (1, 0.9, None, 1, "p"), digest="2", correct=True)
    tell(store, (3, 0.7), (4, None), digest="3")
    with store.reading() as session:
        told = [[(m.candidate, m.value) for m in Moment.past(session, basis, 1).rows] for basis in (1, 2, 3)]
        assert told[2] == [(m.candidate, m.value) for m in Moment.read(session).rows]
    assert told == [[(1, 0.5), (2, 0.6)], [(2, 0.6), (1, 0.9)], [(2, 0.6), (1, 0.9), (3, 0.7)]]


def test_an_older_version_is_brought_up_to_date(store, address):
    known = schema.version()
    schema.MIGRATIONS.append("ALTER TABLE events ADD COLUMN note TEXT")
    try:
        newer = open_store(address)
        with newer.reading() as session:
            assert session.meta()["version"] == str(known + 1)
            assert session.connection.exec_driver_sql("SELECT note FROM events").all() == [(None,)]
        open_store(address).close()  # a second time: nothing to do
        newer.close()
    finally:
        schema.MIGRATIONS.pop()
    words = rf"newer aicau \(version {known + 1} of its tables, this one knows {known}\)"
    with pytest.raises(InputError, match=words):
        open_store(address)


def test_the_doctor_sees_what_is_wrong(store):
    ask(store, 1, 2)
    tell(store, (1, 0.5), (2, 0.6))
    with store.writing() as session:
        run = session.connection.exec_driver_sql
        run("DELETE FROM proposals WHERE position = 1")
        run("DELETE FROM measurements WHERE id = 2")
        run("UPDATE chunks SET features = ids WHERE number = 0")
        run("DELETE FROM events WHERE kind = 'ask'")
    wrong = {check.name: check.problem for check in examine(store) if not check.ok}
    assert wrong == {
        "candidates": "candidates of chunk 0 have changed",
        "asks": "ask 1 has 1 of its 2 points",
        "tells": "tell 1 has 1 of its 2 rows",
        "events": "the history does not name every ask and every tell once",
    }
