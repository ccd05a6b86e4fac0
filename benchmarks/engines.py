"""What Ray is worth: `simulate` and `predict` on one thread, on one worker, and on as many as there are cores.

    python benchmarks/engines.py [--runs 8] [--rounds 5] [--rows 200000] [--repeats 3]

Every way does the same work and must give the same numbers. Each starts in a process of its own, Ray is started before
the clock; a small piece of work goes first, so that every worker has imported what it needs. Ways take turns.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("runs", 8), ("rounds", 5), ("rows", 200_000), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    from aicau.campaign.campaign import Campaign

    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        pool = pd.DataFrame(rng.random((options.rows, 16)), columns=[f"f{j}" for j in range(16)])
        pool.insert(0, "id", [f"c{i}" for i in range(options.rows)])
        path = Path(folder) / "engines.db"
        with Campaign.create(path, pool, target="y", id="id") as campaign:
            index = rng.choice(options.rows, 200, replace=False)
            y = np.sin(3 * pool.f0.to_numpy()[index]) + rng.normal(size=200) * 0.1
            campaign.tell(pd.DataFrame({"id": pool.id.to_numpy()[index], "y": y}))
        found: dict[str, list[dict]] = {way: [] for way in dict.fromkeys(["thread", "1", str(cores)])}
        for _ in range(options.repeats):
            for way, kept in found.items():
                given = [way, str(options.runs), str(options.rounds), str(path)]
                done = subprocess.run([sys.executable, "-c", CHILD, *given], capture_output=True, text=True)
                if done.returncode:
                    sys.exit(done.stderr)
                kept.append(json.loads(done.stdout.splitlines()[-1]))
                print(way, {name: round(kept[-1][name], 2) for name in ("simulate", "predict")}, flush=True)
    assert len({tuple(one["same"]) for kept in found.values() for one in kept}) == 1, "numbers differ"
    for name in ("simulate", "predict"):
        best = {way: min(one[name] for one in kept) for way, kept in found.items()}
        ratios = ", ".join(f"{way} {best['thread'] / seconds:.2f}" for way, seconds in best.items())
        print(f"{name}: times as fast as one thread (best of {options.repeats}): {ratios}")


if __name__ == "__main__":
    main()
