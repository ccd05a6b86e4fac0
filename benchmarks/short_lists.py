"""What a short list costs: the worth of a batch from a part of the pool, relative to looking closely at everyone.

    python benchmarks/short_lists.py [--rows 100000] [--features 16] [--measured 960] [--batch 96] [--seeds 3]
        [--screens 256,128,64,32]

The worth is what the rule itself expects of the points it chose. Each line has one seed's ratios; the last one the mean
and its standard error. The last column is a list of candidates at random, as long as that of the screens.
"""

import numpy as np
import torch

from aicau import MLP, Observations, Round, Strategy, streams
from aicau.batching import shortlist
from aicau.proposal import Look, propose
from common import command, numbers

LISTED = shortlist.LISTED


def ratios(seed: int, n: int, d: int, measured: int, m: int, screens: list[int]) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, d, generator=generator)
    at = torch.randperm(n, generator=generator)
    index = at[:measured]
    y = torch.sin(3 * x[index, 0]) + (x[index, 1] * x[index, 2] if d > 2 else 0)
    y = (y + 0.1 * torch.randn(measured, generator=generator)).double()
    how, strategy = Round(MLP()), Strategy.parse("default")
    state = how.fit(
        x, Observations(index[None], y[None], torch.zeros(measured, dtype=torch.long)), streams.runs(seed, 1)
    )
    known = state.observations.counts(n) > 0
    room, look = (~known).long(), Look(how, state)

    def worth(listed: int, sketched: int, open: torch.Tensor) -> float:
        shortlist.LISTED, shortlist.SKETCHED = listed, sketched
        return float(propose(strategy, [look], m, open, known).selection.parts["worth"].sum())

    every = worth(n, 1, room)
    some = torch.zeros_like(room).index_fill(1, at[-LISTED:], 1) * room
    return [*(worth(LISTED, one, room) / every for one in screens), worth(n, 1, some) / every]


def main(
    rows: int = 100_000,
    features: int = 16,
    measured: int = 960,
    batch: int = 96,
    seeds: int = 3,
    screens: str = "256,128,64,32",
) -> None:
    print("landmarks of the screen:", screens, "; a list at random")
    found = []
    for seed in range(seeds):
        found.append(ratios(seed, rows, features, measured, batch, numbers(screens)))
        print(seed, *(f"{one:.3f}" for one in found[-1]), flush=True)
    mean, error = np.mean(found, 0), np.std(found, 0) / max(1, seeds - 1) ** 0.5
    print("mean", *(f"{a:.3f}±{b:.3f}" for a, b in zip(mean, error, strict=True)))


if __name__ == "__main__":
    command(main)
