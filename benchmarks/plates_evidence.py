"""What it is worth to take shifts of batches out only as far as there is evidence for them.

    python benchmarks/plates_evidence.py --data DIR [--sets bike,gas] [--runs 2] [--seed 900]

Points of `default` on 500 candidates of each set (40 random points, then ten rounds of five, a batch each), predicted
twice: with shifts of batches by REML as they are, and weighed by the probability that batches differ at all
(`aicau.gp.plates`). Prints the variance between batches before and after, the ratio of squared errors to the truth, and
the coverage of 90% intervals of a new measurement.
"""

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from unittest.mock import patch

import torch
import typer

from aicau.core import streams
from aicau.ensembles import MLP
from aicau.gp import plates
from aicau.prediction.regression import ValuePredictor
from aicau.problems import replay
from aicau.round import Round, round_keys
from common import command, folders, header, row
from prediction import BATCH, LEVEL, ROUNDS, measured

COMPARED = plates.compared


def certain(*rows: torch.Tensor | None) -> tuple[plates.noise.Fitted, torch.Tensor]:
    """The fit, as if it were certain that batches differ."""
    fitted = COMPARED(*rows)[0]
    return fitted, torch.ones_like(fitted.shared)


def main(data: Annotated[Path, typer.Option()], sets: str = "", runs: int = 2, seed: int = 900) -> None:
    warnings.simplefilter("ignore")
    header("set, run", "σ_b² as it is", "weighed", "squared error, weighed / as it is", "coverage as it is", "weighed")
    logs = []
    for folder in folders(data, sets):
        problem = replay.load(folder, 500)
        for run in range(runs):
            keys = streams.runs(seed, run + 1)[-1:]
            rows = measured(problem, "default", keys)
            every = torch.arange(problem.pool.n)[None]
            new = problem.measure(every, torch.zeros_like(every), keys, ROUNDS + 1)[0]
            fresh = rows.counts(problem.pool.n)[0] == 0
            found = []
            for way in (certain, COMPARED):
                with patch.object(plates, "compared", way):
                    state = Round(MLP()).fit(problem.pool.x, rows, round_keys(keys, ROUNDS))
                said = replace(ValuePredictor.fit(state).predict(state), level=LEVEL)
                held = ((said.new_low <= new) & (new <= said.new_high))[fresh].double().mean()
                found.append((float(state.shared[0]), float(((said.mean - problem.truth) ** 2).mean()), float(held)))
            (before, error, held), (after, other, now) = found
            logs.append(math.log(other / error))
            shares = (f"{one:.2f}" for one in (other / error, held, now))
            row(f"{folder.name}, {run}", f"{before:.4f}", f"{after:.4f}", *shares)
    print(f"\n{math.exp(sum(logs) / len(logs)):.3f} over {len(logs)} runs of {ROUNDS} rounds of {BATCH}")


if __name__ == "__main__":
    command(main)
