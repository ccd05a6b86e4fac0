"""What knowing the plate is worth: values with the plate effect taken out, against batch ids ignored.

    python benchmarks/plates.py --runs 20

A plate a round (10 rounds of 10 points); noise of standard deviation 0.5, a share ICC of its variance in common. Where
the plate is known, the round takes its shift out before networks are trained, and the bias is estimated with what a
plate shares; where it is ignored, neither. Prints final errors to the truth of the ensemble's mean and of the debiased
prediction, and their paired ratios with 95% intervals.
"""

import argparse

import numpy as np

from aicau.bias import Posterior
from aicau.core import checks, streams
from aicau.core.statistics import paired_ratio
from aicau.ensembles import MLP
from aicau.problems import plates
from aicau.round import Round
from aicau.simulation.loop import Lane, Loop
from aicau.strategy import Strategy

parser = argparse.ArgumentParser()
parser.add_argument("--runs", type=int, default=20)
parser.add_argument("--rounds", type=int, default=10)
parser.add_argument("--device", default="auto")
parser.add_argument("--icc", type=float, action="append")
parser.add_argument("--sigma", type=float, default=0.5)
arguments = parser.parse_args()


def errors(icc: float, known: bool) -> dict[tuple[str, str], np.ndarray]:
    """Final squared errors per run, by strategy and by what predicts."""
    estimator = Posterior() if known else Posterior(batches="none")
    strategies = [Strategy.parse("random"), Strategy.parse("default", bias=estimator)]
    problem = plates(icc=icc, sigma=arguments.sigma)
    keys = streams.runs(0, arguments.runs)
    device = checks.pick_device(arguments.device)
    how = Round(MLP(), plates=known)
    loop = Loop([Lane(problem, one) for one in strategies], 10, 10, arguments.rounds, keys, device, how)
    while not loop.done:
        loop.advance()
    assert loop.fitted is not None
    found: dict[tuple[str, str], list[float]] = {}
    for at, strategy in enumerate(strategies):
        for run in range(arguments.runs):
            state = loop.fitted[at][run : run + 1]
            said = how.predictor(state, estimator).predict(state)
            for what, mean in (("ensemble", said.ensemble), ("debiased", said.mean)):
                error = float(((mean - loop.truth[at]) ** 2).mean())
                found.setdefault((strategy.name, what), []).append(error)
    return {key: np.array(values) for key, values in found.items()}


print("| ICC | strategy | prediction | error, plate known | error, plate ignored | ratio | 95% interval |")
print("|---|---|---|---|---|---|---|")
for icc in arguments.icc or [0.0, 0.5, 0.8]:
    known, ignored = errors(icc, True), errors(icc, False)
    for (strategy, what), value in known.items():
        other = ignored[strategy, what]
        ratio = paired_ratio(value, other)
        print(
            f"| {icc} | {strategy} | {what} | {value.mean():.3f} | {other.mean():.3f} | {ratio.mean:.2f}"
            f" | {ratio.low:.2f} to {ratio.high:.2f} |",
            flush=True,
        )
