import math

import pytest
import torch

from aicau.acquisition import ACQUISITIONS, View
from aicau.core.omega import Omega


@pytest.fixture
def view():
    """Two members on three points; bias 1, −2, 0."""
    predictions = torch.tensor([[[1.0, 2, 3], [3, 2, 7]]])
    every = torch.ones(1, 3, dtype=torch.bool)
    cobias = Omega(torch.tensor([[[1.0], [-2], [0]]]))
    return View(torch.rand(3, 2).double(), every, ~every, torch.zeros(1, dtype=torch.int64), predictions, cobias)


@pytest.mark.parametrize(
    ("name", "alpha"),
    [
        ("lc", [1, 0, 4]),
        ("br", [1, 4, 0]),
        ("pemse", [2, 4, 4]),
        ("bald", [0.5 * math.log(2), 0, 0.5 * math.log(5)]),
        ("farthest", [1, 1, 1]),
    ],
)
def test_values_by_hand(view, name, alpha):
    assert ACQUISITIONS[name]().score(view).alpha[0].tolist() == pytest.approx(alpha)


def test_bald_ranks_like_least_confidence(view):
    lc, bald = (ACQUISITIONS[name]().score(view).alpha for name in ("lc", "bald"))
    assert torch.equal(lc.argsort(), bald.argsort())


def test_difference_is_the_round_before_minus_this_one(view):
    before, now = ACQUISITIONS["pemse"]().score(view), ACQUISITIONS["br"]().score(view)
    score = now.difference(before)
    assert score.alpha[0].tolist() == pytest.approx([1, 0, 4])
    torch.testing.assert_close(score.omega.dense(), before.omega.dense() - now.omega.dense())
    assert ACQUISITIONS["bald"]().score(view).difference(before).omega is None


def test_random_is_uniform_over_the_pool(view):
    keys = torch.arange(3000)
    one = View(view.x, view.allowed.expand(3000, 3), view.measured.expand(3000, 3), keys)
    first = ACQUISITIONS["random"]().score(one).alpha.argmax(-1)
    assert torch.bincount(first).tolist() == pytest.approx([1000] * 3, abs=130)
