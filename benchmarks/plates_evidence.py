"""What it is worth to take shifts of batches out only as far as there is evidence for them.

    python benchmarks/plates_evidence.py --data DIR [--sets bike,gas] [--runs 2] [--seed 900]

Points of `default` on 500 candidates of each set (40 random points, then ten rounds of five, a batch each), predicted
twice: with shifts of batches by REML as they are, and weighed by the probability that batches differ at all
(`aicau.gp.plates`). Prints the variance between batches before and after, the ratio of squared errors to the truth, and
the coverage of 90% intervals of a new measurement.
"""

import argparse
import math
import warnings
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch

from aicau.core import streams
from aicau.core.observations import Observations
from aicau.ensembles import MLP
from aicau.gp import plates
from aicau.prediction.regression import ValuePredictor
from aicau.problems import replay
from aicau.round import Round, round_keys
from prediction import BATCH, LEVEL, ROUNDS, measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", type=lambda text: text.split(","))
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=900)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| set, run | σ_b² as it is | weighed | squared error, weighed / as it is | coverage as it is | weighed |")
    print("|" + "---|" * 6)
    logs = []
    for folder in replay.folders(options.data):
        if options.sets and folder.name not in options.sets:
            continue
        problem = replay.load(folder, 500)
        for run in range(options.runs):
            keys = streams.runs(options.seed, run + 1)[-1:]
            rows = Observations(*(torch.from_numpy(part) for part in measured(problem, "default", keys).values()))
            every = torch.arange(problem.pool.n)[None]
            new = problem.measure(every, torch.zeros_like(every), keys, ROUNDS + 1)[0]
            fresh = rows.counts(problem.pool.n)[0] == 0
            found = []
            for sure in (True, False):
                always = patch.object(plates, "certainty", lambda fitted: torch.ones_like(fitted.shared))
                with always if sure else patch.object(plates, "certainty", plates.certainty):
                    state = Round(MLP()).fit(problem.pool.x, rows, round_keys(keys, ROUNDS))
                said = replace(ValuePredictor.fit(state).predict(state), level=LEVEL)
                held = ((said.new_low <= new) & (new <= said.new_high))[fresh].double().mean()
                found.append((float(state.shared[0]), float(((said.mean - problem.truth) ** 2).mean()), float(held)))
            (before, error, held), (after, other, now) = found
            logs.append(math.log(other / error))
            name = f"{folder.name}, {run}"
            print(f"| {name} | {before:.4f} | {after:.4f} | {other / error:.2f} | {held:.2f} | {now:.2f} |", flush=True)
    print(f"\n{math.exp(sum(logs) / len(logs)):.3f} over {len(logs)} runs of {ROUNDS} rounds of {BATCH}")


if __name__ == "__main__":
    main()
