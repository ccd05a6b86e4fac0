"""A run does not depend on its neighbours: the same bits alone and beside others, step by step, for every task."""

import pytest
import torch

from aicau import Strategy

WORDS = {
    "regression": ["default", "pemse:direct:eigen", "br:posterior:spread", "lc", "random", "farthest"],
    "classification": ["default", "br:posterior:spread", "pemse:direct:eigen:brier", "margin"],
    "count": ["default", "pemse:direct:top"],
}
CASES = [(task, word) for task, words in WORDS.items() for word in words]


@pytest.mark.parametrize("task", WORDS)
def test_fit(fitted, task):
    one = fitted[task]
    for run in range(3):
        some = slice(run, run + 1)
        alone = one.round.fit(one.state.x, one.rows[some], one.state.keys[some])
        for name in ("predictions", "shift", "scale", "shared"):
            assert torch.equal(getattr(alone, name), getattr(one.state, name)[some]), name
        assert torch.equal(alone.observations.y, one.state.observations.y[some])
        assert torch.equal(alone.fitted.unseen, one.state.fitted.unseen[some])
        assert torch.equal(alone.skill(), one.state.skill()[some])


@pytest.mark.parametrize(("task", "word"), CASES)
def test_assess_and_choose(fitted, task, word):
    one = fitted[task]
    strategy = Strategy.parse(word, task=one.state.task)
    whole = one.round.choose(strategy, one.state, one.round.estimate(strategy.bias, one.state), 4)
    for run in range(3):
        state = one.state[run : run + 1]
        choice = one.round.choose(strategy, state, one.round.estimate(strategy.bias, state), 4)
        assert torch.equal(choice.selection.index[0], whole.selection.index[run])
        assert torch.equal(choice.alpha[0], whole.alpha[run])
        for name, part in choice.selection.parts.items():
            assert torch.equal(part[0], whole.selection.parts[name][run]), name


@pytest.mark.parametrize("task", WORDS)
def test_replicates_of_one_point_never_stand_in_two_folds(fitted, task):
    one = fitted[task]
    unseen, index = one.state.fitted.unseen, one.rows.index
    assert torch.equal(index[:, :4], index[:, 20:])
    assert torch.equal(unseen[..., :4], unseen[..., 20:])
