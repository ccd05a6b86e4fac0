from dataclasses import replace

import pytest
import torch

from aicau import Eigen, Omega, Score, Spread, Top, View
from aicau.core.errors import InputError


def view_of(n, allowed=None, measured=None, x=None):
    every = torch.ones(1, n, dtype=torch.bool)
    mask = every if allowed is None else torch.tensor([[i in allowed for i in range(n)]])
    seen = ~every if measured is None else torch.tensor([[i in measured for i in range(n)]])
    x = torch.arange(n, dtype=torch.double)[:, None] if x is None else x
    return View(x, mask, seen, torch.zeros(1, dtype=torch.int64))


def score_of(alpha):
    return Score(torch.tensor([alpha], dtype=torch.double))


def test_top_takes_the_largest_allowed():
    assert Top().select(score_of([5.0, 1, 9, 7]), view_of(4, allowed={0, 1, 3}), 2).index.tolist() == [[3, 0]]


def test_eigen_takes_one_peak_per_mode_in_the_order_of_the_eigenvalues():
    factor = torch.zeros(1, 6, 3).double()
    factor[0, 4, 0], factor[0, 1, 1], factor[0, 2, 2] = 3, 2, 1
    omega = Omega(factor)
    assert Eigen().select(Score.of(omega), view_of(6), 3).index.tolist() == [[4, 1, 2]]


def test_eigen_over_a_difference_uses_positive_modes_only_then_fills():
    factor = torch.zeros(1, 6, 2).double()
    factor[0, 4, 0], factor[0, 1, 1] = 1, 5
    omega = Omega(factor, [1.0, -1.0])  # the large mode is negative
    found = Eigen().select(Score.of(omega), view_of(6), 4)
    chosen = found.index[0].tolist()
    assert chosen[0] == 4
    assert len(set(chosen)) == 4
    assert found.parts["mode"][0].tolist() == [1, 0, 0, 0]  # one mode, the rest is drawn
    assert Eigen().reason(found.numbers(0, 1), "bias").startswith("drawn at random")


def test_eigen_draws_the_rest_from_the_stream_of_the_run():
    factor = torch.tensor([[[5.0], [4], [3], [2], [1], [0.5], [0.4], [0.3]]]).double()
    score, view = Score.of(Omega(factor)), view_of(8)
    chosen = Eigen().select(score, view, 4).index[0].tolist()
    assert chosen[0] == 0
    assert chosen != [0, 1, 2, 3]
    other = replace(view, keys=torch.ones(1, dtype=torch.int64))
    assert Eigen().select(score, view, 4).index[0].tolist() == chosen
    assert Eigen().select(score, other, 4).index[0].tolist() != chosen


def test_two_modes_with_one_peak_take_different_points():
    omega = Omega(torch.tensor([[[3.0, 1.0], [1.0, -0.8], [0.5, 0.1]]]).double())
    vectors = omega.top_eigenpairs(2)[1].abs()[0]
    chosen = Eigen().select(Score.of(omega), view_of(3), 2).index[0].tolist()
    assert chosen[0] == int(vectors[:, 0].argmax())
    order = vectors[:, 1].argsort(descending=True).tolist()
    assert chosen[1] == next(i for i in order if i != chosen[0])


def test_eigen_modes_live_on_candidates_only():
    factor = torch.tensor([[[10.0, 0], [1, 0], [0, 2]]]).double()
    # With point 0 allowed the first mode is the first column; without it the second column is larger.
    assert Eigen().select(Score.of(Omega(factor)), view_of(3), 1).index.tolist() == [[0]]
    assert Eigen().select(Score.of(Omega(factor)), view_of(3, allowed={1, 2}), 1).index.tolist() == [[2]]


def test_eigen_needs_a_matrix():
    with pytest.raises(InputError, match="needs an acquisition with a matrix"):
        Eigen().select(score_of([1.0, 2.0]), view_of(2), 1)


def test_spread_by_hand():
    # Points 0..9 on a line, 0 measured. Distances squared 0, 1, 4, …, 81; α flat: 9, then the middle.
    assert Spread().select(score_of([1.0] * 10), view_of(10, measured={0}), 3).index[0].tolist() == [9, 4, 2]
    # α of point 3 outweighs the distance of 9 (9·20 > 81).
    alpha = [1.0] * 3 + [20.0] + [1.0] * 6
    assert Spread().select(score_of(alpha), view_of(10, measured={0}), 1).index[0].tolist() == [3]


def test_spread_with_nothing_measured_starts_at_the_centre():
    assert Spread().select(score_of([1.0] * 9), view_of(9), 3).index[0].tolist() == [4, 0, 8]


def test_spread_without_any_positive_score_goes_by_distance():
    assert Spread().select(score_of([-1.0] * 10), view_of(10, measured={0}), 1).index[0].tolist() == [9]


@pytest.mark.parametrize("batching", [Top(), Eigen(), Spread()])
def test_more_points_than_there_are_is_refused(batching):
    score = Score.of(Omega(torch.rand(1, 4, 2)))
    with pytest.raises(InputError, match="3 points were asked for and only 2 can still be measured"):
        batching.select(score, view_of(4, allowed={1, 2}), 3)


def test_spread_turns_to_known_points_when_no_other_is_left():
    """A new point first, then the largest α over one more than the measurements: 6/2, 8/4, 3/2."""
    view = replace(view_of(4, measured={0, 1, 2}), times=torch.tensor([[3, 1, 1, 0]]))
    assert Spread().select(score_of([8.0, 3, 6, 1]), view, 4).index.tolist() == [[3, 2, 0, 1]]
    once = view_of(3, measured={0, 1, 2})
    assert Spread().select(score_of([1.0, 3, 2]), once, 3).index.tolist() == [[1, 2, 0]]
