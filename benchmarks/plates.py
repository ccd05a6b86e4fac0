"""What knowing the plate is worth: ensembles trained on values with the plate effect taken out, against raw values.

    python benchmarks/plates.py --runs 20

A plate a round (10 rounds of 10 points); noise of standard deviation 0.5, a share ICC of its variance in common.
Prints the paired ratio of final errors with its 95% interval.
"""

import argparse

from aicau import simulate
from aicau.problems import plates
from aicau.statistics import paired_ratio

parser = argparse.ArgumentParser()
parser.add_argument("--runs", type=int, default=20)
parser.add_argument("--device", default="auto")
parser.add_argument("--icc", type=float, action="append")
parser.add_argument("--sigma", type=float, default=0.5)
arguments = parser.parse_args()

print(
    "| ICC | strategy | error, plate known | error, plate ignored | ratio | 95% interval |\n|---|---|---|---|---|---|"
)
for icc in arguments.icc or [0.0, 0.5, 0.8]:
    for strategy in ("random", "default"):
        raw, known = (
            simulate(
                plates(icc=icc, sigma=arguments.sigma),
                [strategy],
                runs=arguments.runs,
                device=arguments.device,
                correct=correct,
            ).final(strategy)
            for correct in (False, True)
        )
        ratio = paired_ratio(known, raw)
        print(
            f"| {icc} | {strategy} | {known.mean():.3f} | {raw.mean():.3f} | {ratio.mean:.2f}"
            f" | {ratio.low:.2f} to {ratio.high:.2f} |",
            flush=True,
        )
