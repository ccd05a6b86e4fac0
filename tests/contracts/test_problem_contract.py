"""Every problem of the registry: truth, noise and measurements fit together."""

import pytest
import torch

from aicau import problems
from aicau.core import streams
from aicau.problems import PROBLEMS, Problem

SIZES = {"grid": 6}


@pytest.mark.parametrize("name", PROBLEMS)
class TestProblem:
    def test_is_made_by_its_name(self, name):
        assert isinstance(problems.make(name), Problem)
        assert problems.make(name).name == name

    def test_truth_noise_and_measurements_fit_together(self, name):
        problem = problems.make(name, **SIZES)
        n, keys, classes = problem.pool.n, streams.runs(0, 3), problem.task.classes
        assert problem.truth.shape == ((n, classes) if problem.task.probabilities else (n,))
        assert problem.aleatoric.shape == problem.capacity.shape == (n,)
        assert problem.noise(keys[:, None]).shape == (3, 1, n)
        assert torch.equal(problem.noise(keys[:2, None]), problem.noise(keys[:, None])[:2])
        index = torch.arange(4).expand(3, 4)
        y = problem.measure(index, torch.zeros_like(index), keys, 1)
        assert y.dtype == torch.double
        assert torch.equal(y, problem.measure(index, torch.zeros_like(index), keys, 1))
        assert torch.equal(y[:2], problem.measure(index[:2], torch.zeros_like(index[:2]), keys[:2], 1))
        assert problem.realisations(2, keys).shape == (3, 2, n)
        assert problem.known(2, keys).shape == (3, *problem.truth.shape)

    def test_measurements_have_the_moments_the_problem_states(self, name):
        problem = problems.make(name, **SIZES)
        index = torch.arange(problem.pool.n).expand(3000, -1)
        y = problem.measure(index, torch.zeros_like(index), streams.runs(0, 3000), 1)
        if problem.task.probabilities:
            share = torch.nn.functional.one_hot(y.long(), problem.task.classes).double().mean(0)
            torch.testing.assert_close(share, problem.truth, rtol=0, atol=0.05)
            return
        torch.testing.assert_close(y.var(0), problem.aleatoric, rtol=0.2, atol=1e-12)
        error = (y.mean(0) - problem.truth).abs()
        assert bool((error <= 5 * (problem.aleatoric / 3000).sqrt() + 1e-12).all())
