"""Attacks on a campaign, and what must hold after each: kills, threads, torn logs, stations that overlap."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd

POOL = 400
# A server process that has imported everything and forks a worker in milliseconds.
SERVER = multiprocessing.get_context("forkserver")
OURS = ["cli", "campaign.campaign", "campaign.choice", "campaign.export", "report.gather", "report.page"]
SERVER.set_forkserver_preload([*(f"aicau.{name}" for name in OURS), "safetensors.torch", "psycopg", "crashes"])


def create(address, **settings):
    from aicau import Campaign

    rng = np.random.default_rng(0)
    pool = pd.DataFrame({"id": [f"c{i}" for i in range(POOL)], "x": rng.random(POOL), "z": rng.random(POOL)})
    options = {"target": "y", "batch": "plate", "author": "harness"} | settings
    Campaign.create(address, pool, **options).close()


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
        if rng.random() < 0.5:  # half of them are killed among the verbs that change a campaign
            alter(campaign, f"{name}-first", 0, acknowledge)
        for turn in range(10_000):
            request = f"{name}-{turn}"
            free = campaign.n - campaign.status()["pending"]
            plate = {"layout": 96} if turn % 3 == 1 else {}
            batch = campaign.ask(min(1 + turn % 5, free), request=request, **plate)["id"].tolist() if free else []
            acknowledge(request=request, ids=batch)
            for plate in range(6):
                ids = batch if plate == 0 and batch else [f"c{rng.randrange(POOL)}" for _ in range(rng.randint(1, 12))]
                rows = pd.DataFrame({"id": ids} | {name: [rng.random() for _ in ids] for name in campaign.targets})
                rows["plate"] = f"{request}-{plate}"
                campaign.tell(rows)
                acknowledge(plate=f"{request}-{plate}", rows=len(rows) * len(campaign.targets))
            alter(campaign, request, turn, acknowledge)


def alter(campaign, request, turn, acknowledge):
    """The verbs that change a campaign, one after another; what they leave is acknowledged, too."""
    name = f"c{turn % POOL}"
    rows = pd.DataFrame({"id": [name], "y": [float(turn)], "plate": [f"{request}-slip"]})
    campaign.tell(rows)
    campaign.rename(f"{request}-slip", f"{request}-renamed")
    acknowledge(plate=f"{request}-renamed", rows=1)
    if turn % 2:
        campaign.untell(campaign.history().number.dropna().iloc[-1])
    campaign.exclude(name, "a test")
    campaign.include(name)
    campaign.add(pd.DataFrame({"id": [f"n-{request}"], "x": [0.5], "z": [0.5]}))
    acknowledge(candidate=f"n-{request}")
    campaign.change(strategy="farthest" if campaign.settings["strategy"] == "default" else "default")
    campaign.change(layout="none" if campaign.settings.get("layout") else 384)
    told = campaign.tell(rows.assign(y=1e9, plate=f"{request}-far"))
    if any("is far from" in words for words in told["warnings"]):
        campaign.confirm(name)
    campaign.untell(told["tell"])


def kill_once(address, folder, number, by_time, within=1.2):
    """Start a worker and kill it: at a random moment `within` so many seconds, or at a random statement. Gives what it
    had acknowledged."""
    rng = random.Random(number)
    acks = Path(folder) / f"acks-{number}"
    acks.touch()
    dies_at = None if by_time else rng.randint(1, 160)
    worker = SERVER.Process(target=work, args=(address, str(acks), f"w{number}", dies_at))
    worker.start()
    if by_time:
        while worker.is_alive() and not acks.read_text():
            time.sleep(0.002)
        worker.join(rng.random() * within)
        worker.kill()
    worker.join(120)
    assert worker.exitcode == -signal.SIGKILL, f"worker {number} ended with {worker.exitcode} by itself"
    lines = acks.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def tell_often(address, acks, name, count, seconds):
    """Tell one row, say in a file that it was acknowledged, and again; from one campaign that stays open."""
    from aicau import Campaign

    end = time.monotonic() + seconds
    with Campaign.open(address, author=name) as campaign, Path(acks).open("a") as file:
        for turn in range(count):
            campaign.tell(pd.DataFrame({"id": [f"c{turn % POOL}"], "y": [float(turn)], "plate": f"{name}-{turn}"}))
            file.write(json.dumps({"plate": f"{name}-{turn}", "rows": 1}) + "\n")
            file.flush()
            if time.monotonic() > end:
                return


def threads(address, folder, count=10**9, seconds=10**9, pause=0.05):
    """A notebook and a station: in this process one thread polls and two tell, and another process tells, too.

    Each tells `count` times or for so many seconds. Gives what was acknowledged and how often the state was read.
    """
    from aicau import Campaign

    names, errors, polls = ["thread-0", "thread-1", "process"], [], [0]
    acks = {name: Path(folder) / f"acks-{name}" for name in names}
    done = threading.Event()

    def caught(work, *arguments):
        try:
            work(*arguments)
        except Exception as error:
            errors.append(error)

    def poll():
        while not done.wait(pause):
            with Campaign.open(address) as campaign:
                campaign.status()
            polls[0] += 1

    other = SERVER.Process(target=tell_often, args=(address, str(acks[names[2]]), names[2], count, seconds))
    tellers = [
        threading.Thread(target=caught, args=(tell_often, address, acks[name], name, count, seconds))
        for name in names[:2]
    ]
    poller = threading.Thread(target=caught, args=(poll,))
    for worker in [other, *tellers, poller]:
        worker.start()
    for worker in [other, *tellers]:
        worker.join()
    done.set()
    poller.join()
    assert not errors, errors
    assert other.exitcode == 0
    return [json.loads(line) for path in acks.values() for line in path.read_text().splitlines()], polls[0]


def check(address, acknowledged):
    """Everything acknowledged is there, nothing is half there, and the next command works."""
    from aicau import Campaign
    from aicau.tables import candidates

    with Campaign.open(address, author="after") as campaign:
        problems = [c for c in campaign.doctor() if not c.ok]
        assert not problems, problems
        with campaign.store.reading() as session:
            ids = candidates.all_ids(session.ids()).to_pylist()
            plates = {}
            for row in session.measurements(current=False):
                plates[row.batch] = plates.get(row.batch, 0) + 1
            asked = {}
            for what in acknowledged:
                if "request" in what and what["ids"]:
                    row = session.ask_of(what["request"])
                    assert row is not None, f"ask {what['request']} was acknowledged and is lost"
                    asked[what["request"]] = [ids[p.candidate] for p in session.proposals(row.id)]
        for what in acknowledged:
            if "plate" in what:
                assert plates.get(what["plate"]) == what["rows"], (
                    f"{what} was acknowledged, {plates.get(what['plate'])}"
                )
            elif "candidate" in what:
                assert what["candidate"] in ids, f"{what} was acknowledged and is lost"
            elif what.get("ids"):
                assert asked[what["request"]] == what["ids"]
        before = campaign.status()["measurements"]
        campaign.tell(pd.DataFrame({"id": ["c0"], "y": [float(before)], "plate": f"after {before}"}))
        assert campaign.status()["measurements"] == before + 1


# Kills at system calls

VERBS = {
    "init": ["new.db", "pool.csv", "--target", "y"],
    "ask": ["c.db", "5", "--request", "r", "--layout", "96", "--out", "out.csv"],
    "tell": ["c.db", "more.csv"],
    "tell --correct": ["c.db", "other.csv"],
    "abandon": ["c.db", "PENDING"],
    "predict": ["c.db", "--out", "out.csv"],
    "report": ["c.db", "--out", "out.html"],
    "export": ["c.db", "out"],
    "compact": ["c.db"],
    "exclude": ["c.db", "PENDING", "--reason", "gone"],
    "include": ["c.db", "c399"],
    "confirm": ["c.db", "c398"],
    "add": ["c.db", "added.csv"],
    "rename": ["c.db", "a", "e"],
    "change": ["c.db", "--strategy", "random", "--layout", "96", "--control", "DMSO=4"],
    "untell": ["c.db", "3"],
    "import": ["backup", "restored.db"],
    "doctor": ["c.db"],
    "status": ["c.db"],
}
# That write, sync, lock, name or remove.
CALLS = "write,writev,pwrite64,fsync,fdatasync,ftruncate,fcntl,flock,mkdir,/^(re|un|sym)?(link|name)"
COUNTS = ("candidates", "measurements", "superseded", "pending", "abandoned", "excluded", "asks", "tells", "strategy")
COUNTS += ("warnings",)
REPEATED = (
    "init",
    "import",
    "rename",
    "change",
    "untell",
    "include",
    "confirm",
)  # done already, they are refused the second time


def prepare(folder, **settings):
    """A campaign with three plates, three pending points and two kept models, and files to tell."""
    from aicau import Campaign

    create(folder / "c.db", **settings)
    with Campaign.open(folder / "c.db") as campaign:
        for plate in "abc":
            batch = campaign.ask(6)
            rows = pd.DataFrame({"id": batch["id"], "y": batch.x + batch.z, "plate": plate})
            campaign.tell(rows)
        campaign.tell(pd.DataFrame({"id": ["c398"], "y": [1e6], "plate": "a"}))
        campaign.exclude("c399", "gone")
        pending = campaign.ask(3)["id"].tolist()
    rows.assign(plate="d").to_csv(folder / "more.csv", index=False)
    rows.assign(y=rows.y + 1).to_csv(folder / "other.csv", index=False)
    with Campaign.open(folder / "c.db") as campaign:
        campaign.export(folder / "backup")
    pd.DataFrame({"id": [f"n{i}" for i in range(50)], "x": 0.5, "z": 0.25}).to_csv(folder / "added.csv", index=False)
    pd.DataFrame({"id": [f"p{i}" for i in range(5000)], "x": range(5000)}).to_csv(folder / "pool.csv", index=False)
    return pending[0]


def run_verb(folder, words, wait):
    from aicau.cli import main

    os.chdir(folder)
    with Path("said.txt").open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    sys.argv = ["aicau", *words]
    if wait:
        os.kill(os.getpid(), signal.SIGSTOP)
    main()


def traced(folder, words, kill_at=None):
    """Run a verb under strace. Gives its exit code and how many system calls about files it made."""
    calls, log = CALLS, Path(folder) / "calls.txt"
    worker = SERVER.Process(target=run_verb, args=(str(folder), words, True))
    worker.start()

    def wait_for(*signs):  # the states of a process: T is stopped, t is stopped under a tracer
        while not all(sign in Path(f"/proc/{worker.pid}/status").read_text() for sign in signs):
            assert worker.is_alive()
            time.sleep(0.002)

    wait_for("State:\tT")
    inject = [] if kill_at is None else ["-e", f"inject={calls}:signal=SIGKILL:when={kill_at}"]
    command = ["strace", "-f", "-q", "-o", log, "-p", str(worker.pid), "-e", f"trace={calls}", *inject]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_for("State:\tt", f"TracerPid:\t{tracer.pid}\n")
    os.kill(worker.pid, signal.SIGCONT)
    worker.join(300)
    tracer.wait(60)
    return worker.exitcode, sum("(" in line for line in log.read_text().splitlines())


def kill_at_calls(verb, prepared, folder, pending, each):
    """Kill one verb at so many of its system calls, spread at random. Gives how many it makes."""
    from aicau import Campaign

    def state(where):
        with Campaign.open(where / "c.db") as campaign:
            assert [c for c in campaign.doctor() if not c.ok] == []
            found = campaign.status()
            return [found[name] for name in COUNTS]

    def fresh(name):
        return Path(shutil.copytree(prepared, folder / f"{verb} {name}"))

    words = [*verb.split(), *(pending if word == "PENDING" else word for word in VERBS[verb])]
    whole = fresh("whole")
    before = state(whole)
    code, total = traced(whole, words)
    assert code == 0, (whole / "said.txt").read_text()
    after = state(whole)
    for at in sorted(random.Random(verb).sample(range(1, total), min(each, total - 1))):
        case = fresh(at)
        code, _ = traced(case, words, at)
        assert code in (-signal.SIGKILL, 0), (at, code, (case / "said.txt").read_text())  # threads: not always as many
        assert state(case) in (before, after), at
        if (out := case / "out.csv").exists():
            assert out.read_bytes() == (whole / "out.csv").read_bytes(), at
        again = SERVER.Process(target=run_verb, args=(str(case), [w.replace("out.", "again.") for w in words], False))
        again.start()
        again.join(300)
        if verb == "init":
            assert again.exitcode in (0, 2)  # 2: it was there already
            assert [p.name for p in case.iterdir() if ".partial" in p.name] == []
            with Campaign.open(case / "new.db") as campaign:
                assert campaign.status()["candidates"] == 5000
        elif verb in REPEATED:
            assert again.exitcode in (0, 2), (at, (case / "said.txt").read_text())
        elif verb != "export":
            assert again.exitcode == 0, (at, (case / "said.txt").read_text())
        assert state(case) == after, at
        shutil.rmtree(case)
    return total


# Torn logs


def leave_a_log(path, acks):
    """Tell with a log that nobody moves into the file, and die."""
    with sqlite3.connect(path) as holder:
        holder.execute("SELECT * FROM meta").fetchall()
        tell_often(path, acks, "log", 40, 10**9)
        os.kill(os.getpid(), signal.SIGKILL)


def tear_logs(folder, count):
    """Cut or change the log, then the file, at random. Of the log's tells a first part must be there, each whole; a
    damaged file is one sentence. Gives how many were opened with all, with a part, and refused."""
    from aicau import Campaign
    from aicau.core.errors import AicauError

    folder = Path(folder)
    (folder / "left").mkdir()
    create(left := folder / "left" / "c.db")
    tell_often(str(left), folder / "acks-0", "file", 10, 10**9)
    worker = SERVER.Process(target=leave_a_log, args=(str(left), str(folder / "acks-1")))
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL
    expected = [f"file-{i}" for i in range(10)] + [f"log-{i}" for i in range(40)]
    opened = {"all": 0, "part": 0, "refused": 0}
    for number in range(count):
        rng, case = random.Random(number), folder / f"case-{number}"
        shutil.copytree(left.parent, case)
        target = case / ("c.db" if number % 5 == 4 else "c.db-wal")
        data = bytearray(target.read_bytes())
        at = rng.randrange(len(data))
        if number % 2:
            data[at] ^= 1 << rng.randrange(8)
        else:
            del data[at:]
        target.write_bytes(data)
        if rng.random() < 0.5:
            (case / "c.db-shm").unlink()
        try:
            with Campaign.open(case / "c.db") as campaign:
                with campaign.store.reading() as session:
                    plates = [row.batch for row in session.measurements()]
                wrong = [check for check in campaign.doctor() if not check.ok]
                if target.suffix == ".db" and (wrong or plates != expected[: len(plates)]):
                    raise AicauError("the damage of the file was found, or is in the text of one cell")
                assert not wrong, (number, wrong)
                assert plates == expected[: len(plates)], (number, plates)
                assert len(plates) >= 10, (number, plates)
                campaign.tell(pd.DataFrame({"id": ["c0"], "y": [1.0], "plate": "after"}))
                assert campaign.status()["measurements"] == len(plates) + 1
            opened["all" if plates == expected else "part"] += 1
        except AicauError:
            if target.suffix != ".db":
                raise
            opened["refused"] += 1
        shutil.rmtree(case)
    return opened


# Stations that overlap


def tell_growing(address, number):
    from aicau import Campaign

    rng = random.Random(number)
    with Campaign.open(address, author=f"station {number}") as campaign:
        size = 0
        while size < POOL:
            size = min(POOL, size + rng.randint(1, 60))
            campaign.tell(growing().head(size).sample(frac=1, random_state=size))


def growing():
    return pd.DataFrame({"id": [f"c{i}" for i in range(POOL)], "y": np.arange(POOL) / 7, "plate": "p"})


def overlap(address, stations=8):
    """Every station tells the same file, longer each time and in another order; in the end it is there once."""
    from aicau import Campaign

    create(address)
    workers = [SERVER.Process(target=tell_growing, args=(address, number)) for number in range(stations)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * stations
    with Campaign.open(address) as campaign:
        assert all(check.ok for check in campaign.doctor())
        with campaign.store.reading() as session:
            found = sorted((row.candidate, row.value, row.batch) for row in session.measurements(current=False))
            told = campaign.status()["tells"]
    assert found == [(i, y, "p") for i, y in enumerate(growing().y)], f"{len(found)} rows of {POOL}"
    return told
