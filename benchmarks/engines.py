"""What Ray is worth: `simulate` and `predict` on one thread, on one worker, and on as many as there are cores.

    python benchmarks/engines.py [--runs 8] [--rounds 5] [--rows 200000] [--repeats 3]

Every way does the same work and must give the same numbers. Each starts in a process of its own, Ray is started before
the clock; a small piece of work goes first, so that every worker has imported what it needs. Ways take turns.
"""

import os
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from aicau import Campaign
from common import child, command

CHILD = """
import hashlib, json, sys, time
import torch
from aicau import Engine, simulate
from aicau.campaign.campaign import Campaign
from aicau.core.engine import one_thread
way, runs, rounds, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
if way == "thread":
    one_thread()
    engine = Engine()
else:
    import ray
    ray.init(num_cpus=int(way), include_dashboard=False, log_to_driver=False)
    engine = Engine("ray")
def work(runs, rounds):
    return simulate("type2", ["random", "default"], initial=20, batch_size=10, rounds=rounds, runs=runs, engine=engine)
work(max(2, engine.width), 1)
begin = time.perf_counter()
frame = work(runs, rounds).to_frame()
simulated = time.perf_counter() - begin
campaign = Campaign.open(path)
next(campaign.predictions())  # the model is fitted, or loaded
begin = time.perf_counter()
said = campaign.predict(engine=engine)
predicted = time.perf_counter() - begin
def same(table):
    return hashlib.sha256(table.to_csv(index=False).encode()).hexdigest()
print(json.dumps({"simulate": simulated, "predict": predicted, "same": [same(frame), same(said)]}))
"""


def main(runs: int = 8, rounds: int = 5, rows: int = 200_000, repeats: int = 3) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        pool = pd.DataFrame(rng.random((rows, 16)), columns=[f"f{j}" for j in range(16)])
        pool.insert(0, "id", [f"c{i}" for i in range(rows)])
        path = Path(folder) / "engines.db"
        with Campaign.create(path, pool, target="y", id="id") as campaign:
            index = rng.choice(rows, 200, replace=False)
            y = np.sin(3 * pool.f0.to_numpy()[index]) + rng.normal(size=200) * 0.1
            campaign.tell(pd.DataFrame({"id": pool.id.to_numpy()[index], "y": y}))
        found: dict[str, list[dict]] = {way: [] for way in dict.fromkeys(["thread", "1", str(os.cpu_count() or 1)])}
        for _ in range(repeats):
            for way, kept in found.items():
                kept.append(child(CHILD, way, runs, rounds, path))
                print(way, {name: round(kept[-1][name], 2) for name in ("simulate", "predict")}, flush=True)
    assert len({tuple(one["same"]) for kept in found.values() for one in kept}) == 1, "numbers differ"
    for name in ("simulate", "predict"):
        least = {way: min(one[name] for one in kept) for way, kept in found.items()}
        ratios = ", ".join(f"{way} {least['thread'] / seconds:.2f}" for way, seconds in least.items())
        print(f"{name}: times as fast as one thread (best of {repeats}): {ratios}")


if __name__ == "__main__":
    command(main)
