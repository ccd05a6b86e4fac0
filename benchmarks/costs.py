"""What a budget buys: points by gain per cost, as `ask --budget` chooses, against a ranking that is filled up.

    python benchmarks/costs.py [--runs 10] [--most 30]

A smooth truth of four features with noise over 400 candidates whose costs spread over two orders of magnitude and have
nothing to do with the truth. Twelve random candidates are measured; then three rounds, each with a budget of ten times
the mean cost and at most `--most` points. Both ways have the same start, noise and model. Said is the ratio of their
root mean squared errors over all candidates after the last round, with its 95% interval over runs.
"""

import argparse
import math

import numpy as np
import torch

from aicau import MLP, Observations, Round, Strategy, streams

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
        estimate, budget = how.assess(strategy, state), MEAN_COSTS * float(cost.mean())

        def choose(m: int, state=state, estimate=estimate, **price) -> list[int]:
            return how.choose(strategy, state, estimate, m, **price).selection.index[0].tolist()

        if per_cost:
            index += choose(most, cost=cost[None], budget=budget)
        else:
            index += ranked(choose, cost, most, budget)
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--most", type=int, default=30)
    options = parser.parse_args()
    logs, points = [], []
    for seed in range(options.runs):
        ours, theirs = (campaign(seed, per_cost, options.most) for per_cost in (True, False))
        logs.append(math.log(ours[0] / theirs[0]))
        points.append((ours[1], theirs[1]))
        print(
            f"run {seed}: per cost {ours[0]:.3f} ({ours[1]} points), ranked {theirs[0]:.3f} ({theirs[1]})", flush=True
        )
    half = 1.96 * np.std(logs, ddof=1) / len(logs) ** 0.5
    middle, low, high = (math.exp(np.mean(logs) + part) for part in (0, -half, half))
    print(
        f"at most {options.most} points a round: error by gain per cost / ranked"
        f" {middle:.2f} ({low:.2f} to {high:.2f}), {options.runs} runs;"
        f" {np.mean(points, 0)[0]:.0f} and {np.mean(points, 0)[1]:.0f} points"
    )


if __name__ == "__main__":
    main()
