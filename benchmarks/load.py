"""Eight processes tell 10,000 rows in all and ask in between, on SQLite and PostgreSQL, beside Optuna doing the like.

    python benchmarks/load.py [--processes 8] [--rows 10000] [--per-tell 25]

Optuna's RDB storage keeps one value per trial: its processes run `ask` and `tell` once per row, with random sampling.
An ask here is a real one: with results known it fits the model. Checked at the end: every row is there once, no
candidate is pending in two asks, no process saw an error. Every process computes with one thread: they share a machine.
"""

import importlib.util
import multiprocessing
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
import pandas as pd
import typer

import postgres
from aicau import Campaign
from common import command

POOL = 2000


def station(address: str, number: int, rows: int, per_tell: int, asks: int, queue: object, start: object) -> None:
    """One station: tells its share, asks now and then."""
    try:
        campaign = Campaign.open(address, author=f"station {number}")
        rng = np.random.default_rng(number)
        campaign.status()
        start.wait()
        begin, asking, handed = time.perf_counter(), 0.0, []
        turns = rows // per_tell
        for turn in range(turns):
            if asks and turn % max(1, turns // asks) == 0 and len(handed) < 4 * asks:
                before = time.perf_counter()
                handed += campaign.ask(4)["id"].tolist()
                asking += time.perf_counter() - before
            table = pd.DataFrame({"id": [f"c{i}" for i in rng.integers(POOL, size=per_tell)]})
            table["y"] = rng.normal(size=per_tell)
            table["plate"] = f"s{number}-{turn}"
            campaign.tell(table)
            if turn % 20 == 19:  # the verbs that change a campaign, among the others
                campaign.exclude(f"c{number}", "a test")
                campaign.include(f"c{number}")
                campaign.rename(f"s{number}-{turn}", f"s{number}-{turn} again")
                campaign.add(pd.DataFrame({"id": [f"n{number}-{turn}"], "x": [0.5], "z": [0.5]}))
                campaign.change(layout=96, controls={f"s{number}-{turn}": 2})
                told = campaign.tell(table[:1].assign(y=1e6, plate=f"s{number}-{turn} far"))
                campaign.confirm(table["id"][0])
                campaign.untell(told["tell"])
        queue.put((number, None, begin, time.perf_counter(), asking, handed))
    except BaseException as error:
        queue.put((number, f"{type(error).__name__}: {error}", 0.0, 0.0, 0.0, []))


def optuna_station(url: str, number: int, rows: int, queue: object, start: object) -> None:
    try:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        arguments = {"connect_args": {"timeout": 120}} if url.startswith("sqlite") else {}
        storage = optuna.storages.RDBStorage(url, engine_kwargs=arguments)
        study = optuna.load_study(study_name="load", storage=storage, sampler=optuna.samplers.RandomSampler(number))
        rng = np.random.default_rng(number)
        start.wait()
        begin = time.perf_counter()
        for _ in range(rows):
            trial = study.ask()
            trial.suggest_int("candidate", 0, POOL - 1)
            study.tell(trial, rng.normal())
        queue.put((number, None, begin, time.perf_counter(), 0.0, []))
    except BaseException as error:
        queue.put((number, f"{type(error).__name__}: {error}", 0.0, 0.0, 0.0, []))


def together(target, arguments: list[tuple], processes: int) -> list[tuple]:
    context = multiprocessing.get_context("spawn")
    queue, start = context.Queue(), context.Barrier(processes)
    workers = [context.Process(target=target, args=(*one, queue, start)) for one in arguments]
    for worker in workers:
        worker.start()
    found = [queue.get() for _ in workers]
    for worker in workers:
        worker.join()
    errors = [f"station {one[0]}: {one[1]}" for one in found if one[1]]
    if errors:
        sys.exit("\n".join(errors))
    return found


def ours(address: str, name: str, processes: int, rows: int, per_tell: int, asks: int) -> None:
    rng = np.random.default_rng(0)
    pool = pd.DataFrame({"id": [f"c{i}" for i in range(POOL)], "x": rng.random(POOL), "z": rng.random(POOL)})
    Campaign.create(address, pool, target="y", batch="plate").close()
    share = rows // processes
    found = together(station, [(address, i, share, per_tell, asks) for i in range(processes)], processes)
    wall = max(one[3] for one in found) - min(one[2] for one in found)
    asking = sum(one[4] for one in found)
    telling = max(one[3] - one[2] - one[4] for one in found)
    with Campaign.open(address) as campaign:
        status = campaign.status()
        assert all(check.ok for check in campaign.doctor()), campaign.doctor()
        with campaign.store.reading() as session:
            plates = pd.Series([row.batch for row in session.measurements()]).value_counts()
    expected = share // per_tell * processes
    assert len(plates) == expected, (len(plates), expected)
    assert (plates == per_tell).all()
    added = sum(turn % 20 == 19 for turn in range(share // per_tell)) * processes
    assert status["candidates"] == POOL + added, (status["candidates"], added)
    told = int(plates.sum())
    print(
        f"aicau on {name}: {told} rows in {expected} tells and {status['asks']} asks by {processes} processes,"
        f" nothing lost, nothing doubled, no error: {wall:.1f} s, {told / wall:.0f} rows/s in all;"
        f" asks, which fit a model, took {asking / processes:.1f} s: {told / telling:.0f} rows/s without them"
    )


def theirs(url: str, name: str, processes: int, rows: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.create_study(study_name="load", storage=url)
    found = together(optuna_station, [(url, i, rows // processes) for i in range(processes)], processes)
    wall = max(one[3] for one in found) - min(one[2] for one in found)
    kept = len(optuna.load_study(study_name="load", storage=url).trials)
    print(f"Optuna {optuna.__version__} on {name}: {kept} trials in {wall:.1f} s, {kept / wall:.0f} rows/s")


def main(
    processes: int = 8,
    rows: int = 10_000,
    per_tell: Annotated[int, typer.Option(help="Rows in one tell; 1 is Optuna's way")] = 25,
    asks: Annotated[int, typer.Option(help="Asks of each process")] = 3,
    optuna_rows: Annotated[int, typer.Option(help="It is slow: fewer rows, the rate is compared")] = 2_000,
) -> None:
    sizes = processes, rows, per_tell, asks
    os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}  # read by the processes when they start
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peer = importlib.util.find_spec("optuna") is not None
        ours(str(folder / "c.db"), "SQLite", *sizes)
        if peer:
            theirs(f"sqlite:///{folder / 'optuna.db'}", "SQLite", processes, optuna_rows)
        fresh = stack.enter_context(postgres.server(durable=True))
        if fresh is None:
            print("no PostgreSQL server binaries here")
            return
        ours(fresh(), "PostgreSQL", *sizes)
        if peer:
            theirs(fresh().replace("postgresql://", "postgresql+psycopg://"), "PostgreSQL", processes, optuna_rows)


if __name__ == "__main__":
    command(main)
