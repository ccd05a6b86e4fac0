"""Half of a batch, a rehearsal, the other half."""

from dataclasses import dataclass, replace

import pytest
import torch
from aicau.batching.rehearsed import _conditioned

from aicau import Strategy, View, simulate
from aicau.acquisition import Lesson, Score
from aicau.batching import Rehearsed, Spread
from aicau.bias import Belief
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.omega import Cobias, Omega
from aicau.core.task import Task


@dataclass(frozen=True)
class FittedNearest:
    x: torch.Tensor  # (..., l, d)
    y: torch.Tensor  # (..., l)

    def predict(self, x):  # (n, d) -> (..., 1, n)
        near = torch.cdist(x.expand(*self.x.shape[:-2], *x.shape), self.x).argmin(-1)
        return self.y.gather(-1, near)[..., None, :]


@dataclass(frozen=True)
class Nearest:
    """A model that predicts the value of the nearest point it knows."""

    def fit(self, x, y, keys):
        assert y.shape[:-1] == keys.shape
        return FittedNearest(x, y)


def plateau(**known):
    """Zero near 0, where it was measured; one on a wide plateau from 11 on; a peak at −3."""
    x = torch.tensor([[0.0], [-3], [11], [12], [14], [16], [18], [20]]).double()
    truth = torch.tensor([0.0, 1, 1, 1, 1, 1, 1, 1]).double()
    measured = torch.tensor([[True] + 7 * [False]])
    predictions = torch.zeros(1, 1, 8)
    lesson = Lesson(Nearest(), torch.tensor([[0]]), torch.zeros(1, 1).double())
    cobias = Omega((predictions[:, 0].double() - truth)[..., None])
    keys = streams.runs(0, 1)
    return View(x, ~measured, measured, keys, predictions, cobias, points=x, lesson=lesson, **known)


def test_the_second_half_goes_where_the_rehearsed_model_is_still_wrong():
    view = plateau()
    score = Score.of(view.cobias)
    # By distance alone the second and third points stand on the plateau, too; one value there is all that is needed.
    assert Spread().select(score, view, 3)[0].tolist() == [7, 2, 5]
    assert Rehearsed().select(score, view, 2)[0].tolist() == [7, 1]


def test_without_an_ensemble_for_one_point_and_for_classes_it_is_spread():
    view = plateau()
    score = Score.of(view.cobias)
    plain = Spread().select(score, view, 4)
    assert torch.equal(Rehearsed().select(score, replace(view, lesson=None), 4), plain)
    assert torch.equal(Rehearsed().select(score, view, 1), plain[:, :1])
    classes = replace(view, cobias=None, belief=Belief(torch.full((1, 8, 2), 0.5)), task=Task("classification", 2))
    assert torch.equal(Rehearsed().select(score, classes, 4), plain)


def test_a_known_value_tells_about_its_neighbours_as_in_a_dense_matrix():
    generator = torch.Generator().manual_seed(1)
    factor = torch.randn(2, 12, 5, generator=generator).double()
    extra = torch.rand(2, 12, generator=generator).double()
    chosen = torch.tensor([[3], [0]])
    left, rest = _conditioned(Omega(factor, None, extra), chosen)
    for run in range(2):
        at = int(chosen[run])
        dense = Omega(factor[..., 1:], None, extra).dense()[run]
        dense = dense - torch.outer(dense[at], dense[at]) / dense[at, at]
        others = [i for i in range(12) if i != at]
        torch.testing.assert_close(Omega(left, None, rest).dense()[run][others][:, others], dense[others][:, others])
    again, _ = _conditioned(Omega(torch.cat([factor[..., :1], left], -1), None, rest), torch.tensor([[5], [5]]))
    both, _ = _conditioned(Omega(factor, None, extra), torch.tensor([[3, 5], [0, 5]]))
    torch.testing.assert_close(both, again)


def test_repeats_are_weighed_in_both_halves():
    view = plateau()
    doubt, noise = torch.tensor([[4e4] + 7 * [0.0]]).double(), torch.full((1, 8), 1e6).double()
    cobias = Cobias(torch.full((1, 8, 1), 1.0), None, None, doubt, noise)
    room = torch.tensor([[3, 1, 1, 1, 1, 1, 1, 1]])
    view = replace(view, cobias=cobias, allowed=room > 0, room=room)
    chosen = Rehearsed().select(Score.of(cobias), view, 6)[0].tolist()
    assert chosen.count(0) == 3  # the noisy point as often as there is room, in both halves
    assert len(set(chosen)) == 4


def test_what_a_rehearsal_cannot_use_is_refused_in_one_sentence():
    with pytest.raises(InputError, match="needs a bias: br or pemse"):
        simulate("type2", ["lc:rehearsed"], 5, 4, 1, 1, device="cpu")
    with pytest.raises(InputError, match="with a sign: posterior, direct or perfect"):
        simulate("type2", ["br:quadratic:rehearsed"], 5, 4, 1, 1, device="cpu")
    with pytest.raises(InputError, match="not at changes; leave out 'difference'"):
        Strategy.parse("br:direct:rehearsed:difference")


def test_runs_do_not_depend_on_their_neighbours():
    alone, together = (
        simulate("type3", ["br:posterior:rehearsed", "pemse:direct:rehearsed"], 8, 4, 2, runs, device="cpu")
        for runs in (1, 3)
    )
    assert (alone.queried == together.queried[:, :1]).all()
    assert (alone.mse == together.mse[:, :1]).all()
