import math

import numpy as np
import pandas as pd
import pytest
import torch

from aicau import TableProblem, problems
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.problems import Problem, plates, type1, type2, type3
from aicau.problems.base import repeat_number


def test_truth_and_noise_of_table_2():
    problem = type2()
    assert problem.pool.x.shape == (2500, 2)
    assert problem.pool.x.min() == 0
    assert problem.pool.x.max() == 2 * math.pi
    x = problem.pool.x[1234]
    assert float(problem.truth[1234]) == pytest.approx(math.sin(1.5 * x[0]) * math.sin(1.5 * x[1]))
    assert float(problem.sigma[1234]) == pytest.approx(math.sqrt(1 - float(problem.truth[1234]) ** 2) / 10)
    assert float(type2(noise_scale=5).sigma[7] / problem.sigma[7]) == pytest.approx(5)


def test_type_1_has_no_noise_and_never_repeats():
    problem = type1(grid=6)
    index = torch.arange(5)[None]
    y = problem.measure(index, torch.zeros_like(index), streams.runs(0, 1), 1)
    assert torch.equal(y[0], problem.truth[:5])
    assert int(problem.capacity.max()) == 1
    assert int(type2(grid=6).capacity.min()) > 10**6


def test_empirical_covariance_of_type_3_is_rho():
    problem = type3(grid=7)
    draws = problem.noise(streams.runs(0, 4000)[:, None])[:, 0]
    scaled = (draws / problem.sigma)[:, problem.sigma > 1e-9]
    x = problem.pool.x[problem.sigma > 1e-9]
    rho = torch.exp(-2 * torch.cdist(x, x) / math.pi)
    assert torch.abs(scaled.mT @ scaled / 4000 - rho).max() < 5 / math.sqrt(4000)
    assert torch.abs(draws.mean(0)).max() < 5 * 0.1 / math.sqrt(4000)


def test_empirical_covariance_of_type_2_is_diagonal():
    problem = type2(grid=7)
    draws = problem.noise(streams.runs(0, 4000)[:, None])[:, 0]
    covariance = draws.mT @ draws / 4000
    assert torch.abs(covariance - torch.diag(problem.aleatoric)).max() < 5 * 0.01 / math.sqrt(4000)


def test_a_short_correlation_length_is_type_2_and_a_long_one_shifts_everything():
    near = type3(grid=8, correlation_length=1e-3).noise(streams.runs(0, 300)[:, None])[:, 0]
    far = type3(grid=8, correlation_length=1e3).noise(streams.runs(0, 300)[:, None])[:, 0]
    sigma = type3(grid=8).sigma
    keep = sigma > 0.05
    spread = [float((noise / sigma)[:, keep].std(1).mean()) for noise in (near, far)]
    assert spread[0] == pytest.approx(1, abs=0.1)
    assert spread[1] < 0.1


@pytest.mark.parametrize("problem", [type2(grid=9), type3(grid=9)])
def test_noise_is_paired_by_run_round_and_point(problem):
    keys = streams.runs(0, 3)
    a = torch.tensor([[3, 8, 40]] * 3)
    b = torch.tensor([[40, 11, 3]] * 3)
    none = torch.zeros_like(a)
    ya, yb = problem.measure(a, none, keys, 2), problem.measure(b, none, keys, 2)
    assert torch.equal(ya[:, 0], yb[:, 2])
    assert torch.equal(ya[:, 2], yb[:, 0])
    assert not torch.equal(ya, problem.measure(a, none, keys, 3))
    assert not torch.equal(ya[0], ya[1])


def test_the_same_point_twice_in_a_round():
    keys, index = streams.runs(0, 1), torch.tensor([[5, 5, 6]])
    fresh = type2(grid=9).measure(index, torch.zeros_like(index), keys, 1)[0]
    shared = type3(grid=9).measure(index, torch.zeros_like(index), keys, 1)[0]
    assert fresh[0] != fresh[1]
    assert shared[0] == shared[1]
    assert repeat_number(torch.tensor([5, 6, 5, 5])).tolist() == [0, 0, 1, 2]


def test_realisations_average_to_the_truth():
    problem = type3(grid=6)
    mean = problem.realisations(500, streams.runs(0, 4)).mean(1)
    assert torch.abs(mean - problem.truth).max() < 6 * 0.1 / math.sqrt(500)


class Line(Problem):
    """A user's own simulator: 30 points on a line, noise that grows along it."""

    name = "line"
    pool = problems.base.Pool(torch.linspace(0, 1, 30)[:, None])

    @property
    def truth(self):
        return self.pool.x[:, 0] ** 2

    @property
    def aleatoric(self):
        return (0.1 * self.pool.x[:, 0]) ** 2

    def noise(self, keys):
        return self.aleatoric.sqrt() * streams.normal(keys, 30)


def test_a_problem_of_ones_own_runs_in_a_simulation():
    from aicau import simulate

    with pytest.raises(InputError, match="a problem is a name such as 'type2', or a Problem of your own; got <class"):
        simulate(Line, ["random"], initial=5, batch_size=2, rounds=2, runs=2)

    result = simulate(Line(), ["random", "lc"], initial=5, batch_size=2, rounds=2, runs=2, device="cpu")
    assert result.problem == "line"
    assert result.mse.shape == (2, 2, 3)
    assert np.isfinite(result.mse).all()


@pytest.fixture
def table():
    return TableProblem.from_arrays("t", [[0.0], [1.0], [2.0]], "abc", list("aabbba"), [1.0, 3, 5, 6, 7, 2])


def test_a_table_is_replayed_without_replacement(table):
    keys = streams.runs(0, 40)
    index = torch.zeros(40, 3, dtype=torch.int64)
    y = table.measure(index, torch.zeros_like(index), keys, 1)
    assert y.sort(-1).values.tolist() == [[1, 2, 3]] * 40
    assert len({tuple(row) for row in y.tolist()}) > 3  # the order differs between runs
    one = table.measure(index[:, :1], torch.full((40, 1), 1), keys, 2)
    assert torch.equal(one, y[:, 1:2])  # the second replicate, whenever it is asked for
    assert table.pool.ids == ("a", "b")  # "c" was never measured
    assert table.truth.tolist() == [2, 6]
    assert table.aleatoric.tolist() == [1, 1]
    assert table.capacity.tolist() == [3, 3]


def test_batch_ids_of_a_table_may_be_an_array_or_a_column():
    arrays = "t", [[0.0], [1.0]], ["a", "b"], ["a", "a", "b"], [1.0, 3.0, 5.0]
    for batch in (np.array([2, 1, 2]), pd.Series([2, 1, 2]), [2, 1, 2], np.array(["y", "x", "y"]), ["p", 1, "p"]):
        assert TableProblem.from_arrays(*arrays, batch=batch).batch.tolist() == [1, 0, 1]
    for gap in (None, float("nan")):
        with pytest.raises(InputError, match="measurement 1 has no batch id"):
            TableProblem.from_arrays(*arrays, batch=["p", gap, "p"])


def test_a_table_refuses_what_it_does_not_hold(table):
    index = torch.zeros(1, 1, dtype=torch.int64)
    with pytest.raises(InputError, match="more often than the table holds"):
        table.measure(index, torch.full((1, 1), 3), streams.runs(0, 1), 1)
    with pytest.raises(InputError, match=r"not among the points, e\.g\. 'z'"):
        TableProblem.from_arrays("t", [[0.0]], "a", "az", [1.0, 2])
    with pytest.raises(InputError, match="finite"):
        TableProblem.from_arrays("t", [[0.0]], "a", "a", [float("inf")])
    with pytest.raises(InputError, match="distinct ids"):
        TableProblem.from_arrays("t", [[0.0], [1.0]], "aa", "a", [1.0])
    with pytest.raises(InputError, match="at least one"):
        TableProblem.from_arrays("t", [[0.0]], "a", [], [])


def test_a_real_data_set_becomes_a_problem(data_folder):
    x = pd.read_csv(data_folder / "crossed_barrel" / "x.csv")
    rows = pd.read_csv(data_folder / "crossed_barrel" / "data.csv")
    problem = TableProblem.from_arrays("barrel", x.filter(like="num_"), x["x_id"], rows["x_id"], rows["y"])
    means = rows.groupby("x_id")["y"].mean().to_numpy()
    np.testing.assert_allclose(problem.truth.numpy(), means)
    np.testing.assert_allclose(problem.aleatoric.numpy(), rows.groupby("x_id")["y"].var().to_numpy(), atol=1e-12)
    assert problem.capacity.tolist() == [3] * 600


def test_unknown_problems_and_parameters_are_refused():
    with pytest.raises(
        InputError, match=r"unknown problem 'type4'; .*known: class1, class2, class3, plates, type1, type2, type3"
    ):
        problems.make("type4")
    with pytest.raises(InputError, match="noise scale"):
        problems.make("type2", noise_scale=float("nan"))
    with pytest.raises(InputError, match="correlation length"):
        problems.make("type3", correlation_length=0.0)
    with pytest.raises(InputError, match="grid"):
        problems.make("type3", grid=0)
    with pytest.raises(InputError, match="at most 10,000 points"):
        type3(grid=101).noise(streams.runs(0, 1)[:, None])


def test_a_plate_shifts_all_its_values():
    problem, keys = plates(grid=30, icc=0.75, sigma=2.0), streams.runs(0, 400)
    field = problem.noise(keys)  # (400, 900)
    shift = field.mean(-1)
    assert float(shift.var()) == pytest.approx(3.0, rel=0.2)
    assert float((field - shift[:, None]).var()) == pytest.approx(1.0, rel=0.05)
    assert float(problem.aleatoric.mean()) == pytest.approx(4.0)
    with pytest.raises(InputError, match="icc lies between"):
        plates(icc=1.5)
