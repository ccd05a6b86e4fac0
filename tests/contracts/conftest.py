"""What the suites share: a fitted round of each task, and the views that parts see."""

from dataclasses import dataclass, field
from functools import cached_property

import pytest
import torch

from aicau import MLP, Observations, View, problems
from aicau.bias import BIASES
from aicau.core import streams
from aicau.core.task import REGRESSION, Task
from aicau.ensembles.kernels import MLPSettings
from aicau.prediction import State
from aicau.round import Round

LABELS = ["a", "b", "c"]
TASKS = (REGRESSION, Task("classification", 3), Task("count"))


@dataclass(frozen=True)
class Fitted:
    """Three runs of 24 measurements on two plates, four of them repeats, and the round fitted to them."""

    round: Round
    rows: Observations
    state: State
    truth: torch.Tensor  # (n,), or (n, c)
    views: dict = field(default_factory=dict)  # that were made, by the estimator of the bias

    def oracle(self, runs=3):
        return lambda count: self.truth.expand(runs, *self.truth.shape)

    def view(self, bias="direct"):
        """What a strategy sees."""
        if bias not in self.views:
            self.views[bias] = self._view(bias)
        return self.views[bias]

    def _view(self, bias):
        state, counts = self.state, self.rows.counts(len(self.state.x))
        estimate = None if bias is None else self.round.estimate(BIASES[bias](), state, self.oracle())
        every = counts < 0
        view = View(
            problems.type2(grid=10).pool.coordinates,
            ~every & (counts == 0),
            counts > 0,
            state.keys,
            state.predictions,
            fitted=state.fitted,
            observations=state.observations,
            points=state.x,
            task=state.task,
            skill=state.skill(),
            times=counts,
        )
        return view.with_estimate(estimate)

    @cached_property
    def handed_out(self):
        """The second run, and what predicts after it."""
        state = self.state[1:2]
        return state, self.round.predictor(state, labels=LABELS if state.task.probabilities else ())


def fit(task):
    keys = streams.runs(3, 3)
    problem = problems.class2(grid=10) if task.probabilities else problems.plates(grid=10)
    index = streams.permutation(keys, 100)[:, :20]
    index = torch.cat([index, index[:, :4]], -1)
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    truth = problem.truth
    if task.name == "count":
        y, truth = (4 + 3 * y).round().clamp_min(0), (4 + 3 * truth).clamp_min(0)
    plate = (torch.arange(24) % 2).expand(3, -1)
    if task.squared:
        y = y + 2 * plate
    rows = Observations(index, y, torch.zeros(24, dtype=torch.int64), plate)
    round = Round(MLP(settings=MLPSettings(max_epochs=60), task=task), task)
    return Fitted(round, rows, round.fit(problem.pool.x, rows, keys), truth)


@pytest.fixture(scope="session")
def fitted():
    """By the name of the task."""
    return {task.name: fit(task) for task in TASKS}
