"""How long the first and the second `ask` of a process take, and how much of the second is the rule's arithmetic.

python benchmarks/second_ask.py [--candidates 2000] [--points 8]
"""

import cProfile
import pstats
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from aicau import Campaign
from common import command


def timed(campaign: Campaign, points: int) -> str:
    wall, processor = time.perf_counter(), time.process_time()
    campaign.ask(points)
    return f"{time.perf_counter() - wall:.2f} s ({time.process_time() - processor:.2f} s of processor time)"


def main(candidates: int = 2000, points: int = 8) -> None:
    rng = np.random.default_rng(0)
    pool = pd.DataFrame(rng.random((8, candidates)).T, columns=[f"x{j}" for j in range(8)])
    pool["id"] = [f"c{i}" for i in range(candidates)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.db"
        with Campaign.create(path, pool, "y") as campaign:
            batch = campaign.ask(24)
            campaign.tell(batch[["id"]].assign(y=3 * batch.x0 + np.sin(4 * batch.x1)))
        with Campaign.open(path) as campaign:
            print(f"first ask: {timed(campaign, points)}")
            profile = cProfile.Profile()
            profile.enable()
            said = timed(campaign, points)
            profile.disable()
    spent = {where[2]: part[3] for where, part in pstats.Stats(profile).stats.items() if where[2] in ("ask", "greedy")}
    print(f"second ask: {said}; {spent['greedy'] / spent['ask']:.0%} of it choosing by gain")


if __name__ == "__main__":
    command(main)
