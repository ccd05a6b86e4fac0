"""Processes that ask and tell until they are killed, and what must hold of the campaign they leave behind."""

import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd

POOL = 400
# A server process that has imported everything and forks a worker in milliseconds.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["aicau.campaign", "aicau.choice", "safetensors.torch", "psycopg", "crashes"])


def create(address):
    from aicau import Campaign

    rng = np.random.default_rng(0)
    pool = pd.DataFrame({"id": [f"c{i}" for i in range(POOL)], "x": rng.random(POOL), "z": rng.random(POOL)})
    Campaign.create(address, pool, target="y", batch="plate", author="harness").close()


def work(address, acks, name, dies_at):
    """Ask a little, tell a lot; say in a file what was acknowledged. With `dies_at`, killed at that statement."""
    from sqlalchemy import event

    from aicau import Campaign

    campaign = Campaign.open(address, author=name)
    if dies_at is not None:
        seen = [0]

        def count(*_):
            seen[0] += 1
            if seen[0] >= dies_at:
                os.kill(os.getpid(), signal.SIGKILL)

        event.listen(campaign.store.engine, "before_cursor_execute", count)
        event.listen(campaign.store.engine, "commit", count)
    with Path(acks).open("a") as file:

        def acknowledge(**what):
            file.write(json.dumps(what) + "\n")
            file.flush()
            os.fsync(file.fileno())

        acknowledge(ready=True)
        rng = random.Random(name)
        for turn in range(10_000):
            request = f"{name}-{turn}"
            free = POOL - campaign.status()["pending"]
            batch = campaign.ask(min(1 + turn % 5, free), request=request)["id"].tolist() if free else []
            acknowledge(request=request, ids=batch)
            for plate in range(6):
                ids = batch if plate == 0 and batch else [f"c{rng.randrange(POOL)}" for _ in range(rng.randint(1, 12))]
                rows = pd.DataFrame({"id": ids, "y": [rng.random() for _ in ids]})
                rows["plate"] = f"{request}-{plate}"
                campaign.tell(rows)
                acknowledge(plate=f"{request}-{plate}", rows=len(rows))


def kill_once(address, folder, number, by_time):
    """Start a worker and kill it: at a random moment, or at a random statement. Gives what it had acknowledged."""
    rng = random.Random(number)
    acks = Path(folder) / f"acks-{number}"
    acks.touch()
    dies_at = None if by_time else rng.randint(1, 160)
    worker = SERVER.Process(target=work, args=(address, str(acks), f"w{number}", dies_at))
    worker.start()
    if by_time:
        while worker.is_alive() and not acks.read_text():
            time.sleep(0.002)
        worker.join(rng.random() * 1.2)
        worker.kill()
    worker.join(120)
    assert worker.exitcode == -signal.SIGKILL, f"worker {number} ended with {worker.exitcode} by itself"
    lines = acks.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def check(address, acknowledged):
    """Everything acknowledged is there, nothing is half there, and the next command works."""
    from aicau import Campaign

    with Campaign.open(address, author="after") as campaign:
        problems = [c for c in campaign.doctor() if not c.ok]
        assert not problems, problems
        with campaign.store.reading() as session:
            plates = {}
            for row in session.measurements(current=False):
                plates[row.batch] = plates.get(row.batch, 0) + 1
            asked = {}
            for what in acknowledged:
                if "request" in what and what["ids"]:
                    row = session.ask_of(what["request"])
                    assert row is not None, f"ask {what['request']} was acknowledged and is lost"
                    asked[what["request"]] = [f"c{p.candidate}" for p in session.proposals(row.id)]
        for what in acknowledged:
            if "plate" in what:
                assert plates.get(what["plate"]) == what["rows"], (
                    f"{what} was acknowledged, {plates.get(what['plate'])}"
                )
            elif what.get("ids"):
                assert asked[what["request"]] == what["ids"]
        before = campaign.status()["measurements"]
        campaign.tell(pd.DataFrame({"id": ["c0"], "y": [float(before)], "plate": f"after {before}"}))
        assert campaign.status()["measurements"] == before + 1
