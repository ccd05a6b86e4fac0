"""What a short list costs: how much of the expected error a batch takes away, relative to looking closely at everyone.

    python benchmarks/short_lists.py [--rows 100000] [--features 16] [--measured 960] [--batch 96] [--seeds 3]
        [--screens 256,128,64,32]

The error is that under the full covariance, without landmarks, at 2,048 candidates that are no part of anything else.
Each line has one seed's ratios; the last one the mean and its standard error.
"""

import numpy as np
import torch

from aicau import MLP, Observations, Round, Strategy, streams
from aicau.batching import shortlist
from aicau.batching.base import positive
from aicau.batching.work import Covariance, evenly, noise_of
from aicau.core.pool import Frame
from aicau.proposal import Look, propose
from common import command, numbers

TESTED = 2048


def ratios(seed: int, n: int, d: int, measured: int, m: int, screens: list[int]) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, d, generator=generator)
    at = torch.randperm(n, generator=generator)
    index, z = at[:measured], at[measured : measured + TESTED]
    y = torch.sin(3 * x[index, 0]) + (x[index, 1] * x[index, 2] if d > 2 else 0)
    y = (y + 0.1 * torch.randn(measured, generator=generator)).double()
    how, strategy = Round(MLP()), Strategy.parse("default")
    state = how.fit(
        x, Observations(index[None], y[None], torch.zeros(measured, dtype=torch.long)), streams.runs(seed, 1)
    )
    known = state.observations.counts(n) > 0
    room, look = (~known).long(), Look(how, state)
    batches = []
    for listed, sketched in [(n, 1), *((16_384, one) for one in screens)]:
        shortlist.LISTED, shortlist.SKETCHED = listed, sketched
        batches.append(propose(strategy, [look], m, room, known).selection.index[0])
    batches.append(at[-m:])

    some = torch.cat([index, z, *batches]).unique()
    score, view = look.scored(strategy, room, known, 0, None, some, Frame.of(x))
    place = torch.searchsorted(some, torch.cat([index, z]))
    covariance = Covariance(view, evenly(len(some), 512, view.x))
    alpha, noise = positive(score.alpha[0])[place[measured:]].double(), noise_of(view).double()

    def unknown(batch: torch.Tensor) -> float:
        rows = torch.cat([place[:measured], torch.searchsorted(some, batch)])
        a, b = (covariance.of(view.x[part], view.points[part]) for part in (rows, place[measured:]))
        inner = covariance.between(a, a).double() + torch.diag(noise[rows])
        cross = covariance.between(a, b).double()
        return float(alpha @ (covariance.variance(b).double() - (cross * torch.linalg.solve(inner, cross)).sum(0)))

    before = unknown(index[:0])
    gains = [before - unknown(batch) for batch in batches]
    return [gain / gains[0] for gain in gains[1:]]


def main(
    rows: int = 100_000,
    features: int = 16,
    measured: int = 960,
    batch: int = 96,
    seeds: int = 3,
    screens: str = "256,128,64,32",
) -> None:
    print("landmarks of the screen:", screens, "; random points")
    found = []
    for seed in range(seeds):
        found.append(ratios(seed, rows, features, measured, batch, numbers(screens)))
        print(seed, *(f"{one:.3f}" for one in found[-1]), flush=True)
    mean, error = np.mean(found, 0), np.std(found, 0) / max(1, seeds - 1) ** 0.5
    print("mean", *(f"{a:.3f}±{b:.3f}" for a, b in zip(mean, error, strict=True)))


if __name__ == "__main__":
    command(main)
