"""Mixtures of labels and counts: weights by hand, and better than the networks alone where trees know."""

import numpy as np
import pytest
import torch

from aicau.core import streams
from aicau.core.observations import Observations
from aicau.core.task import Task
from aicau.ensembles import MLP
from aicau.ensembles.kernels import MLPSettings
from aicau.prediction import outcome
from aicau.prediction.classification import calibrate
from aicau.prediction.mixture import likeliest, on_simplex
from aicau.round import Round


def test_weights_follow_the_labels():
    told = torch.eye(2).double().repeat(20, 1)
    right, wrong = 0.8 * told + 0.1, 0.8 * (1 - told) + 0.1
    found = likeliest({"right": right, "wrong": wrong}, told)
    assert found["right"] == pytest.approx(1 - found["wrong"])
    # The fixed point: 40 labels of which r go to `right`, four more for each model, of 48.
    w = found["right"]
    assert w == pytest.approx((40 * 0.9 * w / (0.9 * w + 0.1 * (1 - w)) + 4) / 48, abs=1e-9)


def test_shares_are_probabilities():
    found = on_simplex(torch.tensor([[1.2, -0.2], [0.5, 0.5]]).double())
    assert found.sum(-1).tolist() == pytest.approx([1, 1])
    assert float(found[0, 1]) == pytest.approx(0.01 / 1.21)


def test_without_a_left_out_label_probabilities_stay_as_they_are():
    none = np.zeros(0, dtype=np.int64)
    assert calibrate(np.zeros((0, 2)), none, none, 2) == (pytest.approx(1.0), None, ((0, 0), (0, 0)))


@pytest.mark.parametrize("task", [Task("classification", 2), Task("count")])
def test_a_mixture_beats_networks_that_cannot_learn(task):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((200, 2)))
    high = (x[:, 0] > 0).numpy()
    y = high.astype(float) if task.classes else rng.poisson(np.where(high, 9.0, 1.0)).astype(float)
    index = torch.arange(60)[None]
    rows = Observations(index, torch.from_numpy(y)[index], torch.zeros_like(index[0]))
    state = Round(MLP(task=task, settings=MLPSettings(max_epochs=1)), task).fit(x, rows, streams.runs(0, 1))
    loss = []
    for combine in (False, True):
        predictor = outcome(task.name).predictor.fit(state, None, ["0", "1"][: task.classes], combine)
        said = predictor.predict(state, torch.arange(60, 200))
        new = [str(int(v)) for v in y[60:]] if task.classes else y[60:]
        loss.append(float(said.check(new).loss.mean()))
        assert sum(predictor.weights.values()) == pytest.approx(1)
    assert loss[1] < 0.6 * loss[0]
