"""How the networks of classes should be trained: excess log loss of random designs under some settings.

    python benchmarks/class_settings.py --runs 6

Smoothing moves a share of every label to all classes alike; weight decay is Adam's L2 term. Each cell is the excess log
loss of the dual mean over the pool, mean over runs; the last column is the mean over all cells.
"""

import torch

from aicau import problems
from aicau.core import bregman, streams
from aicau.core.task import Task
from aicau.ensembles import MLP
from aicau.ensembles.kernels import MLPSettings
from common import command, header, numbers, row

SETTINGS = [(0.0, 0.0), (0.05, 0.0), (0.1, 0.0), (0.2, 0.0), (0.0, 1e-3), (0.0, 1e-2), (0.05, 1e-2)]
PROBLEMS = {"class1": 1.0, "class2": 1.0, "class2x4": 4.0, "class3": 1.0}


def excess(problem: problems.Problem, labels: int, runs: int, ensemble: MLP) -> float:
    keys = streams.runs(1, runs)
    index = streams.permutation(keys, problem.pool.n)[:, :labels]
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    predictions = ensemble.fit(problem.pool.x[index], y, keys).predict(problem.pool.x)
    centre = bregman.mean_of(bregman.KL, problem.task.members(predictions))
    return float(bregman.between(bregman.KL, problem.truth, centre).mean())


def main(runs: int = 6, labels: str = "20,60,120,200") -> None:
    made = {name: problems.make(name.removesuffix("x4"), noise_scale=scale) for name, scale in PROBLEMS.items()}
    cases = [(name, count) for name in made for count in numbers(labels)]
    header("smoothing", "weight decay", *(f"{name}, {count}" for name, count in cases), "mean")
    for smoothing, decay in SETTINGS:
        ensemble = MLP(task=Task("classification", 3), settings=MLPSettings(weight_decay=decay), smoothing=smoothing)
        cells = [excess(made[name], count, runs, ensemble) for name, count in cases]
        row(f"{smoothing:g}", f"{decay:g}", *(f"{cell:.2f}" for cell in [*cells, sum(cells) / len(cells)]))


if __name__ == "__main__":
    command(main)
