"""Debiased prediction and its 90% intervals: error against the ensemble's own, and how often they hold.

    python benchmarks/intervals.py [--runs 10] [--data DIR]

On the toy after 110 points chosen by `farthest`, on replayed data sets (a folder of them) after ten random rounds.
`truth` is the share of pool points whose truth lies in its interval, `new` the share of points never measured whose
next measurement does.
"""

from pathlib import Path

import torch

from aicau import problems
from aicau.core import checks, streams
from aicau.ensembles import MLP
from aicau.problems import replay
from aicau.round import Round
from aicau.simulation.loop import Lane, Loop, Work
from aicau.strategy import Strategy
from common import command, folders, header, row

TOY = ["type1", "type2", "type3", "type2x5", "type3x5"]  # type3x5: with five times the noise


def shares(
    problem: problems.Problem, strategy: str, initial: int, batch_size: int, count: int, place: str
) -> list[str]:
    """The ratio of errors, and what intervals held."""
    keys, device = streams.runs(0, count), checks.pick_device(place)
    how = Round(MLP())
    loop = Loop(Work([Lane(problem, Strategy.parse(strategy))], initial, batch_size, 10, keys, device, how))
    while not loop.done:
        loop.advance()
    assert loop.fitted is not None
    truth, seen, state = loop.truth[0], loop.observations[0], loop.fitted[0]
    runs = [state[run : run + 1] for run in range(count)]
    said = [how.predictor(one).predict(one) for one in runs]
    mean, ensemble, low, high, new_low, new_high = (
        torch.stack([getattr(one, name) for one in said])
        for name in ("mean", "ensemble", "low", "high", "new_low", "new_high")
    )
    every = torch.arange(len(truth), device=device).expand(count, -1)
    # A point of the replay that has no measurement left is not asked for: only points never measured count below.
    home = loop.lanes[0].problem
    new = home.measure(every, torch.zeros_like(every), keys.to(device), loop.round + 1)
    fresh = seen.counts(len(truth)) == 0
    inside = ((new >= new_low) & (new <= new_high))[fresh]
    known = (truth >= low) & (truth <= high)
    ratio = ((mean - truth) ** 2).mean(-1) / ((ensemble - truth) ** 2).mean(-1)
    return [f"{float(part.double().mean()):.2f}" for part in (ratio, known, inside)]


def main(
    runs: int = 10,
    device: str = "auto",
    data: Path | None = None,
    most: int = 500,
    toy: list[str] = TOY,
) -> None:
    header("problem", "debiased MSE / MSE of the mean of F_k", "truth", "new")
    for word in toy:
        kind, _, scale = word.partition("x")
        problem = problems.make(kind, noise_scale=float(scale or 1))
        row(word, *shares(problem, "farthest", 10, 10, runs, device))
    for folder in folders(data) if data else []:
        problem = replay.load(folder, most, 0)
        row(folder.name, *shares(problem, "random", max(2, min(40, problem.pool.n // 10)), 5, runs, device))


if __name__ == "__main__":
    command(main)
