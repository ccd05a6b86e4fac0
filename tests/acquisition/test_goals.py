import pytest
import torch

from aicau import Omega, Score, Strategy, View
from aicau.acquisition.goals import Goal
from aicau.core import streams
from aicau.core.errors import InputError


def test_best_twentieth_of_certain_predictions_is_the_best_twentieth():
    mean = torch.randn(200, generator=torch.Generator().manual_seed(0)).double()
    weight = Goal("max").weights(mean, torch.zeros(200).double())
    best = mean.topk(10).indices
    assert weight[best].min() > 0.4  # the tenth stands on the edge
    assert float(weight.sum()) == pytest.approx(10, abs=0.51)
    torch.testing.assert_close(Goal("min").weights(-mean, torch.zeros(200).double()), weight)


def test_as_many_are_expected_beyond_the_edge_as_are_looked_for():
    mean, variance = torch.linspace(0, 1, 400).double(), torch.linspace(0.1, 2, 400).double()
    weight = Goal("max").weights(mean, variance)
    assert float(weight.sum()) == pytest.approx(20)
    assert float(weight[-1]) > float(weight[0])


def test_thresholds_by_hand():
    mean, variance = torch.tensor([1.0, 3.0]).double(), torch.tensor([4.0, 1.0]).double()
    expected = torch.tensor([0.15865525, 0.5]).double()
    torch.testing.assert_close(Goal.parse("above:3").weights(mean, variance), expected)
    torch.testing.assert_close(Goal.parse("below:3").weights(mean, variance), 1 - expected)
    assert Goal.parse(" MAP ").weights(mean, variance) is None
    assert str(Goal.parse("above:3.50")) == "above:3.5"
    assert Goal.parse("below:2").meaning == "chance that it lies below 2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("maxx", "did you mean 'max'"),
        ("above", "write above:3.5"),
        ("max:3", "write max"),
        ("above:x", "needs a number behind the colon"),
        ("above:nan", "needs a number behind the colon"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        Goal.parse(text)


def test_weights_multiply_scores_and_matrices():
    score = Score.of(Omega(torch.tensor([[1.0, 2.0], [3.0, 1.0]]), torch.tensor([1.0, -1.0]), torch.tensor([1.0, 2.0])))
    weight = torch.tensor([4.0, 0.25])
    weighed = score.weigh(weight)
    torch.testing.assert_close(weighed.alpha, score.alpha * weight)
    root = weight.sqrt()
    torch.testing.assert_close(weighed.omega.dense(), root[:, None] * score.omega.dense() * root)


def test_a_strategy_chooses_by_what_counts():
    none = torch.zeros(1, 6, dtype=torch.bool)
    weight = torch.tensor([[0.0, 0, 0, 0, 1, 0]])
    view = View(torch.linspace(0, 1, 6)[:, None], ~none, none, streams.runs(0, 1), torch.rand(1, 3, 6), weight=weight)
    assert Strategy.parse("lc:top").choose(view, 1).selection.index.tolist() == [[4]]
