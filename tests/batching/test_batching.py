from dataclasses import replace

import pytest
import torch

from aicau import Eigen, Omega, Score, Spread, Top, View
from aicau.batching import BATCHINGS
from aicau.batching.joint import places
from aicau.batching.spread import REPEAT
from aicau.core.errors import InputError
from aicau.core.omega import Cobias


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


def predicted(view, members, skill):
    """The view with what members predict, and how much of it holds."""
    return replace(view, predictions=torch.tensor([members]), skill=torch.tensor([skill]))


def test_joint_tells_points_apart_that_are_predicted_apart():
    # 2 is next to the measured point in x and far from it in what comes out; 9 is the farthest in x.
    view = view_of(10, measured={1})
    members = [[0.0, 0, 9, 0, 0, 0, 0, 0, 0, 0]] * 2
    flat = score_of([1.0] * 10)
    assert BATCHINGS["joint"]().select(flat, predicted(view, members, 1.0), 1).index.tolist() == [[2]]
    assert BATCHINGS["joint"]().select(flat, predicted(view, members, 0.0), 1).index.tolist() == [[9]]


def test_joint_places_by_hand():
    view = predicted(view_of(3), [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]], 0.125)
    # x and the predictions both vary by 2/3 in all; of twice that an eighth holds, so predictions count half.
    expected = torch.tensor([[0.0, 0.5, 1.0], [1.0, 1.0, 1.0], [2.0, 1.5, 1.0]]).double()
    torch.testing.assert_close(places(view)[0], expected)
    without = view_of(3)
    assert places(without) is without.x


def test_joint_is_spread_where_members_say_nothing():
    view, score = view_of(8, measured={2}), score_of([3.0, 1, 2, 5, 1, 1, 2, 1])
    plain = Spread().select(score, view, 4).index
    assert torch.equal(BATCHINGS["joint"]().select(score, view, 4).index, plain)
    constant = predicted(view, [[4.0] * 8], 1.0)
    assert torch.equal(BATCHINGS["joint"]().select(score, constant, 4).index, plain)


def test_joint_gives_every_run_its_own_distances():
    view = view_of(6, measured={0})
    one, other = [[0.0, 0, 0, 0, 9, 0]], [[0.0, 0, 0, 9, 0, 0]]
    both = View(
        view.x,
        view.allowed.expand(2, -1),
        view.measured.expand(2, -1),
        torch.zeros(2, dtype=torch.int64),
        torch.tensor([one, other]),
        skill=torch.ones(2),
    )
    score = Score(torch.ones(2, 6).double())
    together = BATCHINGS["joint"]().select(score, both, 3).index
    assert together[:, 0].tolist() == [4, 3]
    apart = [BATCHINGS["joint"]().select(score[run : run + 1], both[run : run + 1], 3).index for run in (0, 1)]
    assert torch.equal(torch.cat(apart), together)


def test_spread_with_nothing_measured_starts_at_the_centre():
    assert Spread().select(score_of([1.0] * 9), view_of(9), 3).index[0].tolist() == [4, 0, 8]


def test_spread_without_any_positive_score_goes_by_distance():
    assert Spread().select(score_of([-1.0] * 10), view_of(10, measured={0}), 1).index[0].tolist() == [9]


@pytest.mark.parametrize("batching", [Top(), Eigen(), Spread()])
def test_more_points_than_there_are_is_refused(batching):
    score = Score.of(Omega(torch.rand(1, 4, 2)))
    with pytest.raises(InputError, match="3 points were asked for and only 2 can still be measured"):
        batching.select(score, view_of(4, allowed={1, 2}), 3)


def doubtful(doubt, noise, **known):
    """Two measured points far apart, and new ones at 1 and 2 from the second."""
    scaled = (torch.tensor([part]).double() / REPEAT for part in (doubt, noise))
    x = torch.tensor([[0.0], [10], [11], [12]]).double()
    return replace(view_of(4, measured={0, 1}, x=x), cobias=Cobias(torch.ones(1, 4, 1), None, None, *scaled), **known)


def test_spread_turns_to_known_points_when_no_other_is_left():
    """A new point first, then the largest α over one more than the measurements: 6/2, 8/4, 3/2."""
    view = replace(view_of(4, measured={0, 1, 2}), times=torch.tensor([[3, 1, 1, 0]]))
    assert Spread().select(score_of([8.0, 3, 6, 1]), view, 4).index.tolist() == [[3, 2, 0, 1]]
    once = view_of(3, measured={0, 1, 2})
    assert Spread().select(score_of([1.0, 3, 2]), once, 3).index.tolist() == [[1, 2, 0]]


def test_spread_repeats_a_point_whose_noise_hides_more_than_new_points_offer():
    flat = score_of([1.0] * 4)
    assert Spread().select(flat, doubtful([0.0] * 4, [1.0] * 4), 2).index[0].tolist() == [3, 2]
    assert Spread().select(flat, doubtful([5.0, 0, 0, 0], [1.0] * 4), 2).index[0].tolist() == [0, 3]  # √5 beats 2


def test_a_repeat_inside_a_batch_leaves_less_to_hide_each_time():
    # Doubt 9, noise 9: after one more measurement 9·9/18 = 4.5, then 3; the new points offer 4 and 1.
    view = doubtful([9.0, 0, 0, 0], [9.0] * 4)
    flat = score_of([1.0] * 4)
    assert Spread().select(flat, view, 3).index[0].tolist() == [0, 3, 2]  # without room a batch holds a point once
    roomy = replace(view, room=torch.full((1, 4), 9))
    assert Spread().select(flat, roomy, 4).index[0].tolist() == [0, 0, 3, 0]
    assert Spread().select(flat, replace(view, room=torch.tensor([[1, 9, 9, 9]])), 2).index[0].tolist() == [0, 3]


def test_a_new_point_of_a_batch_may_be_repeated_in_it():
    view = doubtful([0.0, 0, 0, 8], [8.0] * 4, room=torch.full((1, 4), 9))
    assert Spread().select(score_of([1.0] * 4), view, 3).index[0].tolist() == [3, 3, 3]  # 8, then 4, then 8/3


def test_noise_without_doubt_changes_nothing():
    alpha = score_of([3.0, 1, 2, 5])
    view = doubtful([0.0] * 4, [0.0] * 4)
    plain = Spread().select(alpha, replace(view, cobias=None), 3)
    assert torch.equal(Spread().select(alpha, view, 3).index, plain.index)
