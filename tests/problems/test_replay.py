"""Data sets in folders as problems; tables small enough to work out by hand."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from aicau import TableProblem, simulate
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.problems import replay

SHARED = Path(__file__).parents[3] / "shared" / "data"


def write(folder, data, x=None, packed=False):
    folder.mkdir(exist_ok=True)
    end = ".csv.gz" if packed else ".csv"
    pd.DataFrame(data).to_csv(folder / f"data{end}", index=False)
    if x is not None:
        pd.DataFrame(x).to_csv(folder / f"x{end}", index=False)
    return folder


POINTS = {"x_id": [7, 8, 9], "num_a": [1.0, 2.0, 3.0], "cat_b": ["u", "v", "u"]}
ROWS = {"x_id": [7, 7, 8, 9], "y": [1.0, 3.0, 4.0, 6.0], "batch": ["p", "q", "q", "p"]}


@pytest.mark.parametrize("packed", [False, True])
def test_a_replicated_set(tmp_path, packed):
    problem = replay.load(write(tmp_path / "set", ROWS, POINTS, packed), standardise=False)
    assert problem.name == "set"
    assert problem.pool.ids == ("7", "8", "9")
    assert problem.truth.tolist() == [2.0, 4.0, 6.0]
    assert problem.capacity.tolist() == [2, 1, 1]
    assert problem.batch.tolist() == [0, 1, 1, 0]
    root = 1.5**0.5  # a: mean 2, variance 2/3; u: 1, 0, 1 has mean 2/3, variance 2/9
    half, whole = 0.5**0.5, 2**0.5
    truth = [[-root, half, -half], [0, -whole, whole], [root, half, -half]]
    torch.testing.assert_close(problem.pool.x, torch.tensor(truth, dtype=torch.double))


def test_y_in_units_of_the_truth(tmp_path):
    problem = replay.load(write(tmp_path / "set", ROWS, POINTS))
    spread = (8 / 3) ** 0.5  # the means are 2, 4 and 6
    expected = torch.tensor([-3.0, -1.0, 0.0, 2.0], dtype=torch.double) / spread
    torch.testing.assert_close(problem.y, expected)
    assert float((problem.truth**2).mean()) == pytest.approx(1)


def test_a_plain_set_takes_equal_features_as_one_point(tmp_path):
    data = {"num_a": [1, 2, 1, 3], "cat_b": ["u", "u", "u", "u"], "y": [1.0, 5.0, 2.0, 9.0]}
    problem = replay.load(write(tmp_path / "set", data), standardise=False)
    assert problem.truth.tolist() == [1.5, 5.0, 9.0]
    assert problem.index.tolist() == [0, 1, 0, 2]
    assert problem.batch is None
    assert problem.pool.x[:, 1].tolist() == [0, 0, 0]  # one word only: a constant


def test_controls_and_copies_are_left_out(tmp_path):
    rows = {**ROWS, "is_control": [0, 0, 0, 1], "is_copy": [0, 1, 0, 0]}
    problem = replay.load(write(tmp_path / "set", rows, POINTS), standardise=False)
    assert problem.truth.tolist() == [1.0, 4.0]
    assert problem.pool.ids == ("7", "8")


def test_a_part_of_the_pool_depends_on_the_seed_only(tmp_path):
    data = {"num_a": range(50), "y": [float(i) for i in range(50)]}
    folder = write(tmp_path / "set", data)
    a, b, c = (replay.load(folder, most=10, seed=seed, standardise=False) for seed in (0, 0, 1))
    assert a.pool.n == 10
    assert torch.equal(a.y, b.y)
    assert not torch.equal(a.y, c.y)
    torch.testing.assert_close(a.pool.x.std(0, correction=0), torch.ones(1, dtype=torch.double))


@pytest.mark.parametrize(
    ("data", "x", "sentence"),
    [
        ({"x_id": [7]}, POINTS, "no column y"),
        ({"y": [1.0]}, POINTS, "no column x_id"),
        (ROWS, {"num_a": [1.0]}, "no column x_id"),
        (ROWS, {"x_id": [7, 8, 9]}, "no features"),
        (ROWS, {"x_id": [7, 8], "num_a": [1, 2]}, r"1 rows of data.csv have an x_id not in x.csv, e.g. 9"),
        (ROWS, {"x_id": [7, 7, 9], "num_a": [1, 2, 3]}, "must stand there once"),
        (ROWS, {**POINTS, "num_a": [1, None, 3]}, "feature num_a of x.csv has empty entries"),
        (ROWS, {**POINTS, "num_a": [1, "two", 3]}, "feature num_a must be finite numbers"),
        ({**ROWS, "y": [1.0, None, 4.0, 6.0]}, POINTS, "1 of 4 are not"),
        ({**ROWS, "y": [1.0, "much", 4.0, 6.0]}, POINTS, "y must be finite numbers"),
        ({**ROWS, "is_control": [1, 1, 1, 1]}, POINTS, "no measurement is left"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(tmp_path, data, x, sentence):
    with pytest.raises(InputError, match=sentence):
        replay.load(write(tmp_path / "set", data, x))


def test_folders(tmp_path):
    with pytest.raises(InputError, match="not a folder"):
        replay.load(tmp_path / "nothing")
    with pytest.raises(InputError, match="holds no data set"):
        replay.load(tmp_path)
    with pytest.raises(InputError, match="not a folder"):
        replay.folders(tmp_path / "nothing")
    with pytest.raises(InputError, match="holds no data set"):
        replay.folders(tmp_path)
    a, b = write(tmp_path / "b", ROWS, POINTS), write(tmp_path / "a", ROWS, POINTS)
    assert replay.folders(tmp_path) == [b, a]
    assert replay.folders(a) == [a]
    (a / "data.csv").write_bytes(b"\x00\xff\xfe")
    with pytest.raises(InputError, match="cannot be read as a table"):
        replay.load(a)
    (b / "data.csv").write_text("")
    with pytest.raises(InputError, match="cannot be read as a table"):
        replay.load(b)


def test_the_batch_is_that_of_the_row_handed_out():
    y, batch = [1.0, 2, 3, 4, 5], ["b", "a", "c", "a", "b"]
    table = TableProblem.from_arrays("t", [[0.0], [1.0]], "st", list("sssst"), y, batch)
    keys, index = streams.runs(0, 30), torch.tensor([[0, 1, 0, 0]] * 30)
    earlier = torch.tensor([[1, 0, 1, 1]] * 30)
    once = Observations(index[:, :1], torch.zeros(30, 1).double(), torch.zeros(1, dtype=torch.int64))
    values, batches = table.draw(index, once, keys, 3)
    assert torch.equal(values, table.measure(index, earlier, keys, 3))
    level = dict(zip(y, (1, 0, 2, 0, 1), strict=True))
    assert batches.tolist() == [[level[v] for v in row] for row in values.tolist()]
    plain = TableProblem.from_arrays("t", [[0.0], [1.0]], "st", list("sssst"), y)
    assert torch.equal(plain.measure(index, earlier, keys, 3), values)
    assert plain.draw(index, once, keys, 3)[1].unique().tolist() == [3]


@pytest.fixture
def days():
    """Point s on days 0, 1, 1 and 2; point t on day 1 only."""
    y, date = [10.0, 20, 21, 30, 99], ["mon", "tue", "tue", "wed", "tue"]
    order = {"mon": "0", "tue": "1", "wed": "2"}
    return TableProblem.from_arrays("t", [[0.0], [1.0]], "st", list("sssst"), y, [order[d] for d in date], daily=True)


def empty(runs):
    none = torch.zeros(runs, 0)
    return Observations(none.long(), none.double(), torch.zeros(0, dtype=torch.int64))


def test_a_round_is_a_day_where_a_row_of_that_day_is_left(days):
    keys, s = streams.runs(0, 40), torch.zeros(40, 1, dtype=torch.int64)
    history, seen = empty(40), []
    for round in (4, 1, 7, 2):  # days 1, 1, 1 and 2: in the third there is no row of day 1 left
        y, batch = days.draw(s, history, keys, round)
        history = history.append(s, y, round, batch)
        seen.append(y[:, 0])
    y = torch.stack(seen, -1)
    assert set(y[:, :2].flatten().tolist()) == {20.0, 21.0}
    assert y.sort(-1).values.tolist() == [[10.0, 20.0, 21.0, 30.0]] * 40  # each row once
    assert len(set(y[:, 2].tolist())) == 2  # any other row: Monday's in some runs, Wednesday's in others
    with pytest.raises(InputError, match="more often than the table holds"):
        days.draw(s, history, keys, 5)


def test_replicates_within_a_round_of_a_day(days):
    index = torch.tensor([[0, 1, 0, 0, 0]] * 20)
    y, batch = days.draw(index, empty(20), streams.runs(1, 20), 1)
    assert y[:, 1].tolist() == [99.0] * 20
    assert batch[:, [0, 2]].unique().tolist() == [1]
    assert y[:, [0, 2, 3, 4]].sort(-1).values.tolist() == [[10.0, 20.0, 21.0, 30.0]] * 20


def test_a_simulation_sees_days_as_batches(days):
    result = simulate(days, ["random", "farthest"], initial=2, batch_size=1, rounds=2, runs=2, device="cpu")
    assert result.mse.shape == (2, 2, 3)


def test_batch_ids_fit_the_rows():
    with pytest.raises(InputError, match="needs the batch of each"):
        TableProblem.from_arrays("t", [[0.0]], "s", "ss", [1.0, 2.0], daily=True)
    with pytest.raises(InputError, match="as many batch ids"):
        TableProblem.from_arrays("t", [[0.0]], "s", "ss", [1.0, 2.0], ["a"])


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not beside this checkout")
def test_the_shared_sets_load():
    problem = replay.load(SHARED / "lincs_a549", most=300)
    assert problem.daily
    assert int(problem.batch.max()) == 4
    assert problem.pool.x.shape == (300, 28)
    assert replay.load(SHARED / "agnp").pool.n == 164
