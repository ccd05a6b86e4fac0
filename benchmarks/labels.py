"""Labels and counts that are handed out: the mixture against the networks alone, on candidates that were not measured.

    python benchmarks/labels.py [--data DIR] [--sets bike,airfoil] [--runs 4] [--points 60]

Three classes of the toy (`class1`, `class2`), data sets cut into thirds of y, and counts drawn from a Poisson
distribution around exp(1 + y). Points are random. Log loss or Poisson divergence of a new measurement, and how far
stated probabilities are from what came (mean absolute difference in ten bins), or what 90% intervals held.
"""

import time
import warnings
from pathlib import Path

import numpy as np
import torch

from aicau.core import streams
from aicau.core.observations import Observations
from aicau.core.task import Task
from aicau.ensembles import MLP
from aicau.prediction import outcome
from aicau.problems import make, replay
from aicau.round import Round
from common import command, folders, header, one_thread, row


def calibration(stated: np.ndarray, true: np.ndarray) -> float:
    """Mean absolute difference of stated probabilities and frequencies, in ten bins."""
    place = np.minimum((stated * 10).astype(int), 9).ravel()
    size = np.bincount(place, minlength=10)
    off = np.bincount(place, (true - stated).ravel(), minlength=10)
    return float(np.abs(off).sum() / size.sum())


def case(x: torch.Tensor, task: Task, y: np.ndarray, new: np.ndarray, points: int, run: int) -> list[float]:
    """Losses and calibration: networks alone, mixture, and seconds of each."""
    index = torch.from_numpy(np.random.default_rng([run, 1]).choice(len(x), points, replace=False))[None]
    rows = Observations(index, torch.from_numpy(y).double()[index], torch.zeros_like(index[0]))
    state = Round(MLP(task=task), task).fit(x, rows, streams.runs(run, 1))
    fresh = np.setdiff1d(np.arange(len(x)), index.numpy())
    found = []
    for combine in (False, True):
        begin = time.process_time()
        labels = [str(i) for i in range(task.classes)]
        said = outcome(task.name).predictor.fit(state, None, labels, combine).predict(state, torch.from_numpy(fresh))
        seconds = time.process_time() - begin
        check = said.check([str(int(v)) for v in new[fresh]] if task.classes else new[fresh])
        wrong = calibration(check.stated, check.true) if task.classes else check.true[:, 8].mean()
        found += [float(check.loss.mean()), float(wrong), seconds]
    return found


def draw(truth: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts around their rates (n,), or labels by their probabilities (n, c)."""
    if truth.ndim == 1:
        return rng.poisson(truth).astype(float)
    steps = truth.cumsum(1) / truth.sum(1, keepdims=True)
    return (rng.random(len(truth))[:, None] > steps[:, :-1]).sum(1).astype(float)


def main(data: Path | None = None, sets: str = "", runs: int = 4, points: int = 60) -> None:
    one_thread()
    warnings.simplefilter("ignore")
    calibrated = "calibration (classes) or 90% coverage: networks"
    header("problem", "loss: networks", "mixture", "ratio", calibrated, "mixture", "s")
    cases = []
    for name in ("class1", "class2"):
        problem = make(name)
        cases.append((name, problem.pool.x[::5], Task("classification", 3), problem.truth[::5].numpy()))
    for folder in folders(data, sets) if data else []:
        problem = replay.load(folder, 500)
        thirds = np.searchsorted(np.quantile(problem.truth.numpy(), [1 / 3, 2 / 3]), problem.truth.numpy())
        cases.append((f"{folder.name}, thirds", problem.pool.x, Task("classification", 3), np.eye(3)[thirds]))
        rate = np.exp(1 + problem.truth.clamp(-3, 3).numpy())
        cases.append((f"{folder.name}, counts", problem.pool.x, Task("count"), rate))
    for name, x, task, truth in cases:
        found = []
        for run in range(runs):
            rng = np.random.default_rng([run, 0])
            found.append(case(x, task, draw(truth, rng), draw(truth, rng), points, run))
        before, wrong, _, after, right, seconds = np.mean(found, 0)
        ratio = np.exp(np.mean([np.log(one[3] / one[0]) for one in found]))
        cells = (f"{one:.3f}" for one in (wrong, right))
        row(name, f"{before:.3f}", f"{after:.3f}", f"{ratio:.2f}", *cells, f"{seconds:.1f}")


if __name__ == "__main__":
    command(main)
