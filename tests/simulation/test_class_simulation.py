"""The same loop on classes: error, pairing, differences, messages; and `query`."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from aicau import Strategy, problems, simulate
from aicau.cli import app
from aicau.core import bregman, streams
from aicau.core.errors import InputError
from aicau.core.task import Task
from aicau.ensembles import MLP
from aicau.ensembles.kernels import MLPSettings
from aicau.round import Round

QUICK = MLP(task=Task("classification", 3), settings=MLPSettings(max_epochs=40))
SMALL = {"initial": 12, "batch_size": 4, "rounds": 3, "ensemble": QUICK, "device": "cpu"}


def test_error_is_the_divergence_of_the_dual_mean_from_the_truth():
    problem = problems.class2(grid=10)
    result = simulate(problem, ["random"], runs=2, **SMALL)
    assert result.error == "excess log loss"
    index = torch.from_numpy(result.queried[0, :, :12])
    y = problem.measure(index, torch.zeros_like(index), streams.runs(0, 2), 0)
    out = QUICK.fit(problem.pool.x[index], y, streams.fold(streams.runs(0, 2), 0)).predict(problem.pool.x)
    centre = bregman.dual_mean("kl", torch.softmax(out.double().log(), -1).movedim(1, -2))
    want = bregman.divergence("kl", problem.truth.expand(2, -1, -1), centre).mean(-1)
    np.testing.assert_allclose(result.mse[0, :, 0], want, rtol=1e-5)


@pytest.mark.parametrize("name", ["class1", "class3"])
def test_a_run_is_the_same_whoever_takes_part_and_however_many(name):
    problem = problems.make(name, grid=10)
    words = ["lc:difference", "br:posterior:spread", "pemse:direct:top:difference"]
    whole = simulate(problem, words, runs=2, **SMALL)
    for at, word in enumerate(words):
        alone = simulate(problem, [word], runs=1, **SMALL)
        assert np.array_equal(alone.mse[0], whole.mse[at, :1])
        assert np.array_equal(alone.queried[0], whole.queried[at, :1])


def test_knowing_the_probabilities_learns_faster_than_entropy():
    result = simulate("class2", ["entropy", "br:perfect:spread"], initial=20, rounds=4, runs=12, seed=1, device="cpu")
    assert result.paired("br:perfect:spread", "entropy").high < 1


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(InputError, match="class2 is classification, and the round is regression"):
        simulate(problems.class2(grid=10), ["random"], how=Round(MLP()), **SMALL)
    with pytest.raises(InputError, match="is about classes"):
        simulate(problems.type2(grid=10), ["entropy"], initial=12, batch_size=4, rounds=1, runs=1)
    with pytest.raises(InputError, match="no cobias matrix"):
        simulate(problems.class2(grid=10), ["br:perfect:eigen"], runs=1, **SMALL)


def test_query_with_classes():
    problem = problems.class2(grid=8)
    y = np.full(64, np.nan)
    y[::3] = problem.label[::3].numpy()
    for word in ("entropy", "br:posterior:spread", "br:direct:eigen:brier"):
        strategy = Strategy.parse(word, task=problem.task)
        chosen = strategy.query(problem.pool.x.numpy(), y, batch_size=3, ensemble=QUICK, task=problem.task)
        assert len(set(chosen.tolist())) == 3
        assert np.isnan(y[chosen]).all()


def test_the_command_line_names_the_error():
    arguments = ["simulate", "--problem", "class1", "--strategy", "random", "--strategy", "margin"]
    arguments += ["--initial", "12", "--batch-size", "4", "--rounds", "1", "--runs", "2"]
    arguments += ["--grid", "10", "--device", "cpu"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "final excess log loss" in shown.output
    told = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert set(told["strategies"]) == {"random", "margin"}
