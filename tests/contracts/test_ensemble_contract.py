"""Every ensemble of the registry, for every task it is there for."""

import pytest
import torch

from aicau import ensembles
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.task import REGRESSION, Task
from aicau.ensembles import ENSEMBLES

TASKS = (REGRESSION, Task("classification", 3), Task("count"))


def made(name, task):
    try:
        return ensembles.make(name, task)
    except InputError as error:
        if task.squared or "for regression only" not in str(error):
            raise
        pytest.skip(str(error))


def measured(task, *shape):
    """Features and what was measured of them."""
    x = torch.rand(*shape, 2, generator=torch.Generator().manual_seed(0)).double()
    y = x.sum(-1)
    return x, y if task.squared else (1.5 * y).floor()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@pytest.mark.parametrize("name", ENSEMBLES)
class TestEnsemble:
    def test_fit_then_predict(self, name, task):
        ensemble = made(name, task)
        x, y = measured(task, 2, 3, 11)
        fitted = ensemble.fit(x, y, streams.runs(0, 3).expand(2, 3))
        out = fitted.predict(torch.rand(7, 2).double())
        members = out.shape[2]
        assert out.shape == (2, 3, members, 7, *([3] if task.probabilities else []))
        assert fitted.unseen.shape == (2, 3, members, 11)
        assert torch.isfinite(out).all()
        if task.probabilities:
            torch.testing.assert_close(out.sum(-1), torch.ones_like(out[..., 0]))
        if not task.squared:
            assert float(out.min()) >= 0

    def test_a_run_does_not_depend_on_its_neighbours(self, name, task):
        ensemble = made(name, task)
        (x, y), keys = measured(task, 4, 11), streams.runs(0, 4)
        at = torch.rand(9, 2).double()
        whole = ensemble.fit(x, y, keys)
        part = ensemble.fit(x[2:3], y[2:3], keys[2:3])
        assert torch.equal(whole.predict(at)[2:3], part.predict(at))
        assert torch.equal(whole[2:3].predict(at), part.predict(at))
        assert torch.equal(whole.unseen[2:3], part.unseen)

    def test_replicates_of_one_point_never_stand_in_two_folds(self, name, task):
        ensemble = made(name, task)
        x, y = measured(task, 3, 9)
        again = torch.tensor([0, 4, 4, 8])
        x, y = (torch.cat([part, part[:, again]], 1) for part in (x, y))
        unseen = ensemble.fit(x, y, streams.runs(1, 3)).unseen
        assert torch.equal(unseen[..., 9:], unseen[..., again])

    def test_one_row_is_enough(self, name, task):
        out = made(name, task).fit(torch.rand(1, 1, 2), torch.ones(1, 1), streams.runs(0, 1)).predict(torch.rand(5, 2))
        assert torch.isfinite(out).all()
