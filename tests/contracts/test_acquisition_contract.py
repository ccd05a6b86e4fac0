"""Every word for what is maximised, on every task it is there for."""

import pytest
import torch

from aicau import Strategy
from aicau.acquisition import ACQUISITIONS
from aicau.core.errors import InputError
from aicau.core.task import Task

CLASSES_ONLY = {"entropy", "margin", "trust"}


@pytest.mark.parametrize("task", ["regression", "classification", "count"])
@pytest.mark.parametrize("name", ACQUISITIONS)
def test_alpha_is_finite_and_the_diagonal_of_its_matrix(fitted, name, task):
    view = fitted[task].view()
    acquisition = ACQUISITIONS[name]()
    if name in CLASSES_ONLY and task != "classification":
        with pytest.raises(InputError, match=f"{name}.*is about classes"):
            acquisition.score(view)
        return
    score = acquisition.score(view)
    assert score.alpha.shape == (3, 100)
    assert torch.isfinite(score.alpha).all()
    if score.omega is not None:
        dense = score.omega.dense().diagonal(dim1=-2, dim2=-1)
        torch.testing.assert_close(score.alpha, dense, rtol=1e-4, atol=1e-6)
    elif task == "regression" and acquisition.batching is None and name != "bald":
        pytest.fail("a score of values without a matrix")


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_a_run_does_not_depend_on_its_neighbours(fitted, name):
    view = fitted["classification"].view()
    whole = ACQUISITIONS[name]().score(view).alpha
    assert torch.equal(ACQUISITIONS[name]().score(view[1:2]).alpha, whole[1:2])


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_is_a_strategy_word_and_says_what_it_is(name):
    acquisition = ACQUISITIONS[name]()
    text = f"{name}:direct" if acquisition.needs_bias else name
    strategy = Strategy.parse(text, task=Task("classification", 3))
    assert strategy.acquisition == acquisition
    assert acquisition.meaning.strip()
    assert strategy.needs_model == acquisition.needs_model


@pytest.mark.parametrize("name", ACQUISITIONS)
def test_what_it_needs_is_all_that_it_looks_at(fitted, name):
    """Without a model where it needs none, and without a bias where it needs none."""
    one, acquisition = fitted["classification"], ACQUISITIONS[name]()
    view = one.view("direct" if acquisition.needs_bias else None)
    assert torch.equal(acquisition.score(view).alpha, acquisition.score(one.view()).alpha)
    if not acquisition.needs_model:
        from aicau import View

        bare = View(view.x, view.allowed, view.measured, view.keys)
        assert torch.equal(acquisition.score(bare).alpha, acquisition.score(view).alpha)
