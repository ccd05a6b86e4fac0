"""A campaign at scale: `ask 96` and `predict` on a million candidates after ten plates, `tell` beside executemany.

    python benchmarks/campaign_scale.py [--rows 1000000] [--features 16]
    python benchmarks/campaign_scale.py --in-place --rows 10000000 [--strategy pemse:direct:eigen]

Every step runs in a process of its own; its peak memory is what the operating system reports for it. What `ask 96`
takes after ten plates is measured three times, on copies of the file. With --in-place the candidates stay in Parquet
files of a million rows, in single precision; nothing is predicted.
"""

import os
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd

import common
from aicau import Campaign

PLATES, WELLS, PART = 10, 96, 1_000_000


def child(code: str, *arguments: str) -> dict:
    """Run code that prints JSON; its seconds (imports apart) and its peak memory."""
    return common.child(f"""
import json, sys, time
from aicau.campaign.campaign import Campaign
{code}
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # of this process alone
print(json.dumps(dict(out, peak_gb=int(peak.split()[1]) / 2**20)))
""", *arguments)  # fmt: skip


CREATE = """
begin = time.perf_counter()
Campaign.create(sys.argv[1], sys.argv[2], target="y", batch="plate", id="id", strategy=sys.argv[3],
                in_place=sys.argv[4] == "True").close()
out = {"seconds": time.perf_counter() - begin}
"""
ASK = """
begin = time.perf_counter()
c = Campaign.open(sys.argv[1])
opened = time.perf_counter()
c.models.features()
read = time.perf_counter()
from aicau.store import Moment
with c.store.reading() as session:
    moment = Moment.read(session)
if moment.rows:
    c.models.at(moment)
fitted = time.perf_counter()
frame = c.ask(int(sys.argv[2]))
out = {"seconds": time.perf_counter() - begin, "read": read - opened, "fit": fitted - read,
       "choose": time.perf_counter() - fitted, "ids": len(set(frame.id))}
"""
PREDICT = """
begin = time.perf_counter()
Campaign.open(sys.argv[1]).predict(sys.argv[2])
out = {"seconds": time.perf_counter() - begin}
"""
TELL = """
begin = time.perf_counter()
c = Campaign.open(sys.argv[1])
told = c.tell(sys.argv[2])
out = {"seconds": time.perf_counter() - begin, "rows": told["rows"]}
"""


def plain_executemany(path: Path, rows: list[tuple]) -> float:
    """The least it could cost: the same rows into the same columns, one commit that is synced."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(
            "CREATE TABLE m (id INTEGER NOT NULL PRIMARY KEY, tell INTEGER NOT NULL, candidate INTEGER NOT NULL,"
            " status TEXT NOT NULL, value REAL, sem REAL, repeats INTEGER NOT NULL, batch TEXT, replicate INTEGER,"
            " superseded_by INTEGER)"
        )
        begin = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(f"INSERT INTO m VALUES ({', '.join('?' * 10)})", rows)
        connection.execute("COMMIT")
        return time.perf_counter() - begin


def tell_ratio(folder: Path, rows: int = 10_000, candidates: int = 10_000, repeats: int = 5) -> dict:
    """`tell` of a CSV file in a process that has imported everything, against executemany in turn."""
    rng = np.random.default_rng(0)
    pool = pd.DataFrame({"id": [f"c{i}" for i in range(candidates)], "x": rng.random(candidates)})
    campaign = Campaign.create(folder / "tell.db", pool, target="y", batch="plate")
    ours, theirs = [], []
    for turn in range(repeats + 1):
        index = rng.integers(candidates, size=rows)
        frame = pd.DataFrame({"id": pool.id.to_numpy()[index], "y": rng.normal(size=rows), "plate": f"p{turn}"})
        frame.to_csv(folder / "told.csv", index=False)
        flat = [(i, 1, int(c), "ok", float(y), None, 1, f"p{turn}", None, None)
                for i, (c, y) in enumerate(zip(index, frame.y, strict=True))]  # fmt: skip
        theirs.append(plain_executemany(folder / f"plain{turn}.db", flat))
        begin = time.perf_counter()
        campaign.tell(folder / "told.csv")
        ours.append(time.perf_counter() - begin)
    ours, theirs = ours[1:], theirs[1:]  # the first turn warms up
    ratio = float(np.median(ours) / np.median(theirs))
    return {"tell_s": float(np.median(ours)), "executemany_s": float(np.median(theirs)), "ratio": ratio}


def part(file: Path, rng: np.random.Generator, start: int, rows: int, features: int, kind: type) -> np.ndarray:
    """A file with some candidates; gives their true values."""
    x = rng.random((rows, features)).astype(kind)
    pool = pd.DataFrame(x, columns=[f"f{j}" for j in range(features)])
    pool.insert(0, "id", [f"compound-{i}" for i in range(start, start + rows)])
    pool.to_parquet(file, row_group_size=100_000, index=False)
    return np.asarray(np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2])


def main(rows: int = 1_000_000, features: int = 16, in_place: bool = False, strategy: str = "default") -> None:
    rng = np.random.default_rng(0)
    print(f"{os.cpu_count()} cores; {rows:,} candidates x {features} features")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not in_place:
            print("tell 10,000 rows:", tell_ratio(folder), flush=True)
        pool, path = folder / "pool", str(folder / "scale.db")
        pool.mkdir()
        each, kind = (PART, np.float32) if in_place else (rows, np.float64)
        truth = np.concatenate(
            [
                part(pool / f"{start // each}.parquet", rng, start, min(each, rows - start), features, kind)
                for start in range(0, rows, each)
            ]
        )
        source = pool if in_place else pool / "0.parquet"
        print("create:", child(CREATE, path, str(source), strategy, str(in_place)), flush=True)
        print("size of the file, GB:", round(Path(path).stat().st_size / 2**30, 3))
        print("first ask 96:", child(ASK, path, "96"), flush=True)
        for plate in range(PLATES):
            index = rng.choice(rows, WELLS, replace=False)
            y = truth[index] + rng.normal(size=WELLS) * 0.1 + rng.normal() * 0.1
            table = pd.DataFrame({"id": [f"compound-{i}" for i in index], "y": y, "plate": f"p{plate}"})
            table.to_csv(folder / "plate.csv", index=False)
            print(f"tell plate {plate}:", child(TELL, path, str(folder / "plate.csv")))
        for turn in range(1 if in_place else 3):
            copy = str(folder / f"copy{turn}.db")
            shutil.copy(path, copy)
            print("ask 96 after ten plates:", child(ASK, copy, "96"), flush=True)
            Path(copy).replace(path) if in_place or turn == 2 else Path(copy).unlink()
        print("ask 96 again, model kept:", child(ASK, path, "96"))
        if not in_place:
            print("predict:", child(PREDICT, path, str(folder / "said.parquet")))


if __name__ == "__main__":
    common.command(main)
