"""What a budget buys: points by gain per cost, as `ask --budget` chooses, against a ranking that is filled up.

    python benchmarks/costs.py [--runs 10] [--most 30]

A smooth truth of four features with noise over 400 candidates whose costs spread over two orders of magnitude and have
nothing to do with the truth. Twelve random candidates are measured; then three rounds, each with a budget of ten times
the mean cost and at most `--most` points. Both ways have the same start, noise and model. Said is the ratio of their
root mean squared errors over all candidates after the last round, with its 95% interval over runs.
"""

import numpy as np
import torch

from aicau import MLP, Observations, Round, Strategy, streams
from aicau.core.statistics import paired_ratio
from common import command, ends

N, FIRST, ROUNDS, NOISE, MEAN_COSTS = 400, 12, 3, 0.1, 10
OVERSAMPLE = 3  # points that are ranked for each that may be asked for


def ranked(choose, cost: torch.Tensor, most: int, budget: float) -> list[int]:
    """The best first; those that no longer fit are passed over."""
    found: list[int] = []
    for at in choose(min(OVERSAMPLE * most, N // 2)):
        if len(found) < most and float(cost[at]) <= budget:
            found.append(at)
            budget -= float(cost[at])
    return found


def campaign(seed: int, per_cost: bool, most: int) -> tuple[float, int]:
    """The error at the end, and how many points were measured."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(N, 4)))
    truth = torch.sin(1.5 * x[:, 0]) + x[:, 1] * x[:, 2] / 2 + 0.1 * x[:, 3]
    cost = torch.from_numpy(np.exp(rng.normal(scale=1.2, size=N)))
    noise = torch.from_numpy(rng.normal(scale=NOISE, size=N))
    index = rng.choice(N, FIRST, replace=False).tolist()
    how, strategy = Round(MLP()), Strategy.parse("default")
    for round in range(ROUNDS + 1):
        rows = torch.tensor(index)[None]
        keys = streams.fold(streams.runs(seed, 1), round)
        state = how.fit(x, Observations(rows, (truth + noise)[rows], torch.zeros(len(index), dtype=torch.long)), keys)
        if round == ROUNDS:
            said = torch.as_tensor(how.predictor(state, strategy.bias).predict(state).mean)
            return float(((said - truth) ** 2).mean().sqrt()), len(index)
        estimate, budget = how.estimate(strategy.bias, state), MEAN_COSTS * float(cost.mean())

        def choose(m: int, state=state, estimate=estimate, **price) -> list[int]:
            return how.choose(strategy, state, estimate, m, **price).selection.index[0].tolist()

        if per_cost:
            index += choose(most, cost=cost[None], budget=budget)
        else:
            index += ranked(choose, cost, most, budget)
    raise AssertionError


def main(runs: int = 10, most: int = 30) -> None:
    found = []
    for seed in range(runs):
        found.append([campaign(seed, per_cost, most) for per_cost in (True, False)])
        (ours, some), (theirs, others) = found[-1]
        print(f"run {seed}: per cost {ours:.3f} ({some} points), ranked {theirs:.3f} ({others})", flush=True)
    errors, points = np.moveaxis(np.array(found), -1, 0)
    ratio, counts = ends(paired_ratio(*errors.T)), "{:.0f} and {:.0f}".format(*points.mean(0))
    print(f"at most {most} points a round: error by gain per cost / ranked {ratio}, {runs} runs; {counts} points")


if __name__ == "__main__":
    command(main)
