"""What a campaign's predictions hold when every plate has a shift of its own.

    python benchmarks/campaign_intervals.py [--runs 24]

Plates of 12 candidates in two wells each, shifts of standard deviation 0.3, noise of 0.15, random candidates of 300.
The error of what is handed out over the ensemble's is of variances, up to the one constant that plates share. Shares
are of 95% intervals: truths, with and without what the shifts of all plates have in common, and new measurements on a
new plate.
"""

from dataclasses import replace

import numpy as np
import torch

from aicau import MLP, Observations, Round, streams
from common import command, header, row

WELLS, SHIFT, NOISE, POOL = 12, 0.3, 0.15, 300


def one(run: int, plates: int) -> tuple[float, ...]:
    rng = np.random.default_rng(1000 + run)
    x = rng.random((POOL, 2))
    truth = np.sin(5 * x[:, 0]) + np.cos(4 * x[:, 1]) * x[:, 0]
    index = np.tile(rng.choice(POOL, WELLS * plates, replace=False), 2)
    plate = np.tile(np.repeat(np.arange(plates), WELLS), 2)
    y = truth[index] + SHIFT * rng.normal(size=plates)[plate] + NOISE * rng.normal(size=len(index))
    which, values, together = (torch.from_numpy(part)[None] for part in (index, y, plate))
    rows, how = Observations(which, values, torch.zeros(len(y), dtype=torch.int64), together), Round(MLP())
    state = how.fit(torch.from_numpy((x - 0.5) * 12**0.5).float(), rows, streams.runs(run, 1))
    predictor = how.predictor(state)
    known = replace(predictor, batches=float("inf"))  # as if the shifts were known to be 0 on average
    said, narrow = (one.predict(state).columns() for one in (predictor, known))
    new = truth + SHIFT * rng.normal(size=(200, 1)) + NOISE * rng.normal(size=(200, POOL))
    return (
        np.var(said["mean"] - truth) / np.var(said["ensemble"] - truth),
        np.mean((said["low"] <= truth) & (truth <= said["high"])),
        np.mean((narrow["low"] <= truth) & (truth <= narrow["high"])),
        np.mean((said["new_low"] <= new) & (new <= said["new_high"])),
    )


def main(runs: int = 24) -> None:
    header("plates", "handed out / ensemble", "truth", "truth, shifts taken as known", "new")
    for plates in (3, 6, 12):
        ratio, *shares = np.array([one(run, plates) for run in range(runs)]).T
        row(plates, f"{np.exp(np.log(ratio).mean()):.2f}", *(f"{share.mean():.2f}" for share in shares))


if __name__ == "__main__":
    command(main)
