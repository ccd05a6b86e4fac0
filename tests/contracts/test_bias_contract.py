"""Every bias estimator of the registry: a matrix for values, a belief for classes and counts."""

import pytest
import torch

from aicau.bias import BIASES, Belief, assess
from aicau.core.errors import InputError
from aicau.core.omega import Omega


def assessed(one, name, runs=slice(None)):
    try:
        return one.round.estimate(BIASES[name](), one.state[runs], one.oracle(len(one.state.keys[runs])))
    except InputError as error:
        assert not one.state.task.squared, "every estimator is there for regression"
        pytest.skip(str(error))


@pytest.mark.parametrize("task", ["regression", "classification", "count"])
@pytest.mark.parametrize("name", BIASES)
class TestBias:
    def test_gives_finite_numbers_over_the_pool(self, fitted, name, task):
        found = assessed(fitted[task], name)
        if task == "regression":
            assert isinstance(found, Omega)
            assert found.factor.shape[:2] == (3, 100)
            assert torch.isfinite(found.diagonal()).all()
            assert float(found.diagonal().min()) > -1e-5
            return
        assert isinstance(found, Belief)
        assert found.mean.shape == (3, 100, 3 if task == "classification" else 1)
        assert torch.isfinite(found.mean + found.variance()).all()
        assert float(found.variance().min()) >= 0

    def test_a_run_does_not_depend_on_its_neighbours(self, fitted, name, task):
        whole, one = assessed(fitted[task], name), assessed(fitted[task], name, slice(1, 2))
        if task == "regression":
            assert torch.equal(one.factor, whole.factor[1:2])
            assert torch.equal(one.diagonal(), whole.diagonal()[1:2])
            return
        assert torch.equal(one.mean, whole.mean[1:2])
        assert torch.equal(one.variance(), whole.variance()[1:2])


@pytest.mark.parametrize("name", BIASES)
def test_an_estimate_that_is_not_finite_is_refused(fitted, name, monkeypatch):
    from aicau.core.errors import TrainingError

    estimator = BIASES[name]()
    broken = Omega(torch.full((3, 100, 1), torch.nan))
    monkeypatch.setattr(type(estimator), "estimate", lambda self, evidence: broken)
    with pytest.raises(TrainingError, match=f"the {name} estimate of the bias diverged"):
        assess(estimator, fitted["regression"].state.evidence())
