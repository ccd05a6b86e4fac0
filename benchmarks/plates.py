"""What knowing the plate is worth: values with the plate effect taken out, against batch ids ignored.

    python benchmarks/plates.py --runs 20

A plate a round (10 rounds of 10 points); noise of standard deviation 0.5, a share ICC of its variance in common. Where
the plate is known, the round takes its shift out before networks are trained, and the bias is estimated with what a
plate shares; where it is ignored, neither. Prints final errors to the truth of the ensemble's mean and of the debiased
prediction, and their paired ratios with 95% intervals.
"""

import numpy as np

from aicau.bias import Posterior
from aicau.core import checks, streams
from aicau.core.statistics import paired_ratio
from aicau.ensembles import MLP
from aicau.problems import Problem, plates
from aicau.round import Round
from aicau.simulation.loop import Lane, Loop, Work
from aicau.strategy import Strategy
from common import command, header, row


def errors(problem: Problem, known: bool, runs: int, rounds: int, device: str) -> dict[tuple[str, str], np.ndarray]:
    """Final squared errors per run, by strategy and by what predicts."""
    estimator = Posterior() if known else Posterior(batches="none")
    strategies = [Strategy.parse("random"), Strategy.parse("default", bias=estimator)]
    lanes, how = [Lane(problem, one) for one in strategies], Round(MLP(), plates=known)
    loop = Loop(Work(lanes, 10, 10, rounds, streams.runs(0, runs), checks.pick_device(device), how))
    while not loop.done:
        loop.advance()
    assert loop.fitted is not None
    found: dict[tuple[str, str], list[float]] = {}
    for at, strategy in enumerate(strategies):
        for run in range(runs):
            state = loop.fitted[at][run : run + 1]
            said = how.predictor(state, estimator).predict(state)
            for what, mean in (("ensemble", said.ensemble), ("debiased", said.mean)):
                error = float(((mean - loop.truth[at]) ** 2).mean())
                found.setdefault((strategy.name, what), []).append(error)
    return {key: np.array(values) for key, values in found.items()}


def main(
    runs: int = 20,
    rounds: int = 10,
    device: str = "auto",
    icc: list[float] = [0.0, 0.5, 0.8],  # noqa: B006
    sigma: float = 0.5,
) -> None:
    header("ICC", "strategy", "prediction", "error, plate known", "error, plate ignored", "ratio", "95% interval")
    for one in icc:
        problem = plates(icc=one, sigma=sigma)
        known, ignored = (errors(problem, told, runs, rounds, device) for told in (True, False))
        for (strategy, what), value in known.items():
            other = ignored[strategy, what]
            ratio = paired_ratio(value, other)
            cells = f"{value.mean():.3f}", f"{other.mean():.3f}", f"{ratio.mean:.2f}"
            row(one, strategy, what, *cells, f"{ratio.low:.2f} to {ratio.high:.2f}")


if __name__ == "__main__":
    command(main)
