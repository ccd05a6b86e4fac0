"""What one temperature is worth: excess log loss of three classes far from the measured points.

Columns: no temperature (T = 1), the best one for these points (nobody knows it), and the one a campaign takes.
"""

from itertools import product

import numpy as np
import torch

from aicau.core import bregman, streams
from aicau.core.observations import Observations
from aicau.core.task import Task
from aicau.ensembles import MLP
from aicau.prediction import classification, mixture
from aicau.round import Round
from common import command, numbers

POOL = 500
TASK = Task("classification", 3)


def losses(points: int, labels: int, sharpness: float, seed: int) -> list[float]:
    """Of one run: T = 1, the best T, the T of a campaign."""
    x = torch.randn(POOL, 3, generator=torch.Generator().manual_seed(seed))
    first, second, _ = x.numpy().T.astype(float)
    scores = sharpness * np.stack([3 * np.sin(1.5 * first), 2 * second, np.zeros(POOL)], -1)
    truth = np.exp(scores - np.logaddexp.reduce(scores, -1, keepdims=True))
    rng = np.random.default_rng(seed)
    index = np.repeat(np.arange(points), labels)
    code = (truth[index].cumsum(-1) < rng.random(len(index))[:, None]).sum(-1).clip(max=2)
    y = torch.from_numpy(code).double()[None]
    rows = Observations(torch.from_numpy(index)[None], y, torch.zeros(len(index), dtype=torch.int64))
    state = Round(MLP(task=TASK), TASK).fit(x.double(), rows, streams.runs(seed, 1))
    said, tested = (part.numpy() for part in mixture.left_out(state))
    found, _, _ = classification.calibrate(said[tested], code[tested], index[tested], TASK.classes)
    members = TASK.members(state.predictions)[0].clamp_min(classification.TINY)  # (n, K, c)
    log = bregman.mean_of(bregman.KL, members)[points:].log()
    new = torch.from_numpy(truth[points:])

    def excess(temperature: float) -> float:
        return float(bregman.divergence("kl", new, torch.softmax(log / temperature, -1)).mean())

    every = [excess(float(t)) for t in classification.TEMPERATURES]
    return [excess(1.0), min(every), excess(found)]


def main(runs: int = 10, points: str = "10,30,100") -> None:
    print("points labels sharpness     T=1    best  campaign")
    for count, labels, sharpness in product(numbers(points), (1, 4), (0.5, 1.0, 3.0)):
        found = np.mean([losses(count, labels, sharpness, seed) for seed in range(runs)], 0)
        print(f"{count:6d} {labels:6d} {sharpness:9.1f} " + " ".join(f"{value:7.3f}" for value in found))


if __name__ == "__main__":
    command(main)
