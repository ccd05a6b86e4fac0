"""Three classes on the grid: probabilities, labels that follow them, labels of one round that are wrong together."""

import math

import pytest
import torch

from aicau import problems
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.task import REGRESSION, Task
from aicau.problems import class1, class2, class3


def labels(problem, runs, round=1, repeat=1):
    index = torch.arange(problem.pool.n).repeat(repeat).expand(runs, -1)
    return problem.measure(index, torch.zeros_like(index), streams.runs(0, runs), round)


@pytest.mark.parametrize("name", ["class1", "class2", "class3"])
class TestEveryClassProblem:
    def test_truth_noise_and_measurements_fit_together(self, name):
        problem = problems.make(name, grid=6)
        n, keys = problem.pool.n, streams.runs(0, 3)
        assert problem.task == Task("classification", 3)
        assert problem.truth.shape == (n, 3)
        assert problem.aleatoric.shape == problem.capacity.shape == (n,)
        torch.testing.assert_close(problem.truth.sum(-1), torch.ones(n).double())
        assert problem.noise(keys[:, None]).shape == (3, 1, n)
        assert torch.equal(problem.noise(keys[:2, None]), problem.noise(keys[:, None])[:2])
        y = labels(problem, 3)
        assert y.dtype == torch.double
        assert torch.equal(y, labels(problem, 3))
        assert set(y.unique().tolist()) <= {0.0, 1.0, 2.0}
        assert problem.realisations(2, keys).shape == (3, 2, n)
        assert torch.equal(problem.known(10, keys), problem.truth.expand(3, -1, -1))

    def test_labels_have_the_probabilities_the_problem_states(self, name):
        problem = problems.make(name, grid=6, noise_scale=3)
        y = labels(problem, 4000).long()
        share = torch.nn.functional.one_hot(y, 3).double().mean(0)
        assert float((share - problem.truth).abs().max()) < 5 * math.sqrt(0.25 / 4000)

    def test_the_three_classes_share_the_square(self, name):
        share = torch.bincount(problems.make(name).label) / 2500
        assert float(share.min()) > 0.2


def test_without_label_noise_labels_are_right_and_points_are_never_measured_twice():
    problem = class1(grid=8)
    assert torch.equal(labels(problem, 2).long(), problem.label.expand(2, -1))
    assert int(problem.capacity.max()) == 1
    assert int(class2(grid=8).capacity.min()) > 10**6
    assert float(problem.aleatoric.max()) == 0
    assert not problem.pure_noise.any()


def test_noise_depends_on_place_and_scale():
    problem, strong = class2(), class2(noise_scale=4)
    pure, left = problem.pure_noise, problem.pool.x[:, 0] == 0
    assert 0.1 < float(pure.double().mean()) < 0.2
    torch.testing.assert_close(problem.truth[pure], torch.full((int(pure.sum()), 3), 1 / 3).double())
    assert float(problem.aleatoric[pure].min()) == pytest.approx(math.log(3))
    assert float(problem.truth[left].amax(-1).min()) > 0.999
    assert bool((strong.confusion >= problem.confusion).all())
    assert float(strong.confusion.mean()) > 1.5 * float(problem.confusion.mean())


def test_labels_of_one_round_are_wrong_together_in_class3_only():
    x = class2(grid=12).pool.x
    near = torch.cdist(x, x)
    close = (near > 0.1) & (near < 0.7)

    def together(problem):
        wrong = (labels(problem, 600) != problem.label).double()
        wrong = (wrong - wrong.mean(0)) / wrong.std(0).clamp_min(1e-9)
        inside = close & problem.pure_noise & problem.pure_noise[:, None]
        return float((wrong.mT @ wrong / 600)[inside].mean())

    assert abs(together(class2(grid=12))) < 0.05
    assert together(class3(grid=12)) > 0.2


def test_two_strategies_see_the_same_label_and_repeats_differ_without_a_shared_error():
    one = labels(class2(grid=6, noise_scale=5), 5, repeat=2).reshape(5, 2, -1)
    assert not torch.equal(one[:, 0], one[:, 1])
    shared = labels(class3(grid=6, noise_scale=5), 5, repeat=2).reshape(5, 2, -1)
    assert torch.equal(shared[:, 0], shared[:, 1])


def test_tasks():
    assert REGRESSION.divergence == "squared"
    assert Task("classification", 3).divergence == "kl"
    assert Task("count").divergence == "poisson"
    for wrong, message in (
        (("ranks",), "known"),
        (("classification",), "classes"),
        (("count", 2), "only classification"),
    ):
        with pytest.raises(InputError, match=message):
            Task(*wrong)
    with pytest.raises(InputError, match="known: class1"):
        problems.make("class9")
