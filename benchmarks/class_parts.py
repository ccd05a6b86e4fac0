"""Are the parts of the error of classifiers what they are said to be? Estimates by `posterior` against the truth.

    python benchmarks/class_parts.py --runs 5

Random labels in batches (20, then 10 at a time) on the class problems, means over the pool and the runs.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from scipy import stats

from aicau import ensembles, problems
from aicau.acquisition import terms
from aicau.bias import Evidence, Posterior
from aicau.core import bregman, streams
from aicau.core.observations import Observations
from common import command, header, numbers, row

sys.path.append(str(Path(__file__).parents[1]))

from bench import classes as bench_classes

PANELS = ("class1", "class2", "class2x4", "class3x4")


def measured(problem: problems.Problem, labels: int, keys: torch.Tensor) -> Observations:
    """Labels of random points, as rounds would bring them."""
    index = streams.permutation(keys, problem.pool.n)[:, :labels]
    told = Observations(index[:, :0], torch.zeros(1, 0).double(), torch.zeros(0, dtype=torch.int64))
    for number, part in enumerate([index[:, :20], *index[:, 20:].split(10, -1)]):
        if part.shape[-1]:
            values, batch = problem.draw(part, told, keys, number)
            told = told.append(part, values, number, batch)
    return told


def parts(problem: problems.Problem, labels: int, seed: int) -> list[float]:
    """Noise, what is unknown of p, and bias, each as said and as it is; and the rank correlation of the two biases."""
    keys = streams.runs(seed, 1)
    told = measured(problem, labels, keys)
    fitted = ensembles.make(task=problem.task).fit(problem.pool.x[told.index], told.y, keys)
    predictions = fitted.predict(problem.pool.x)
    belief = Posterior().believe(Evidence(problem.pool.x, told, predictions, keys, fitted.unseen, task=problem.task))
    centre = bregman.mean_of(bregman.KL, problem.task.members(predictions)[0])
    mean = belief.mean[0]
    unknown = terms.unknown(bregman.KL, mean, belief.variance()[0])
    noise = (torch.special.entr(mean).sum(-1) - unknown).clamp_min(0)
    said, true = bregman.between(bregman.KL, mean, centre) + unknown, bregman.between(bregman.KL, problem.truth, centre)
    pairs = (noise, problem.aleatoric, unknown, bregman.between(bregman.KL, problem.truth, mean), said, true)
    return [*(float(part.mean()) for part in pairs), float(stats.spearmanr(said.numpy(), true.numpy()).statistic)]


def main(runs: int = 5, labels: str = "20,60,120") -> None:
    header("problem", "labels", "noise (true)", "unknown of p (true)", "bias (true)", "rank correlation")
    for name in PANELS:
        kind, scale = bench_classes.KINDS[name]
        problem = problems.make(kind, noise_scale=scale)
        for count in numbers(labels):
            found = np.mean([parts(problem, count, 50 + run) for run in range(runs)], axis=0)
            said = [f"{found[i]:.2f} ({found[i + 1]:.2f})" for i in (0, 2, 4)]
            row(name, count, *said, f"{found[6]:.2f}")


if __name__ == "__main__":
    command(main)
