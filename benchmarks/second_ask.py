"""How long the first and the second `ask` of a process take, and how much of the second is the rule's arithmetic.

python benchmarks/second_ask.py [--candidates 2000] [--points 8]
"""

import argparse
import cProfile
import pstats
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from aicau import Campaign


def timed(campaign: Campaign, points: int) -> str:
    wall, processor = time.perf_counter(), time.process_time()
    campaign.ask(points)
    return f"{time.perf_counter() - wall:.2f} s ({time.process_time() - processor:.2f} s of processor time)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=2000)
    parser.add_argument("--points", type=int, default=8)
    options = parser.parse_args()
    rng, n = np.random.default_rng(0), options.candidates
    pool = pd.DataFrame({"id": [f"c{i}" for i in range(n)], **{f"x{j}": rng.random(n) for j in range(8)}})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.db"
        with Campaign.create(path, pool, "y") as campaign:
            batch = campaign.ask(24)
            campaign.tell(batch[["id"]].assign(y=3 * batch.x0 + np.sin(4 * batch.x1)))
        with Campaign.open(path) as campaign:
            print(f"first ask: {timed(campaign, options.points)}")
            profile = cProfile.Profile()
            profile.enable()
            said = timed(campaign, options.points)
            profile.disable()
    spent = {where[2]: part[3] for where, part in pstats.Stats(profile).stats.items() if where[2] in ("ask", "greedy")}
    print(f"second ask: {said}; {spent['greedy'] / spent['ask']:.0%} of it choosing by gain")


if __name__ == "__main__":
    main()
