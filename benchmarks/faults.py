"""The long runs of tests/store/test_faults.py: attacks on a campaign, after each of which it must be whole.

python benchmarks/faults.py [kills] [--number 200] [--postgres]   kill a process that asks and tells, at random moments
python benchmarks/faults.py calls [--number 10]     kill each verb at so many of its system calls (`apt install strace`)
python benchmarks/faults.py logs [--number 250]     cut and change the log, and the file, at random
python benchmarks/faults.py threads [--number 60]   so many seconds: threads that poll and tell, and another process
python benchmarks/faults.py overlap [--number 8] [--postgres]     stations that tell overlapping files at once
python benchmarks/faults.py files [--number 300]    generated hostile files: each is read right or refused
python benchmarks/faults.py types                   columns of every Arrow type, ignored and as features
"""

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / "tests" / name) for name in ("", "tables", "cli"))

import test_campaign_cli
import test_hostile_files

import arrow_types
import crashes
import postgres


def kills(address: str, folder: Path, number: int) -> str:
    crashes.create(address, target=["y", "w"])  # and every verb that changes a campaign: crashes.alter
    acknowledged = []
    for one in range(number):
        acknowledged += crashes.kill_once(address, folder, one, by_time=one % 2 == 0)
        crashes.check(address, acknowledged)
    rows = sum(what.get("rows", 0) for what in acknowledged)
    asks = sum("request" in what for what in acknowledged)
    return (
        f"{number} kills: {asks} asks and {rows} rows were acknowledged, every one is there; no ask and no tell is half"
        " there; the next command worked each time"
    )


def calls(address: str, folder: Path, number: int) -> str:
    if shutil.which("strace") is None:
        sys.exit("strace is not here: apt install strace")
    (folder / "prepared").mkdir()
    pending = crashes.prepare(folder / "prepared")
    made = []
    for verb in crashes.VERBS:
        made.append(f"{verb} {crashes.kill_at_calls(verb, folder / 'prepared', folder, pending, number)}")
        print(f"{made[-1]} calls", flush=True)
    return f"{number} kills of each verb at its system calls ({', '.join(made)}): as before or as after, each time"


def logs(address: str, folder: Path, number: int) -> str:
    found = crashes.tear_logs(folder, number)
    return (
        f"{number} damaged logs and files: {found['all']} opened whole, {found['part']} as they were before a tell,"
        f" {found['refused']} refused or found by doctor; no traceback"
    )


def threads(address: str, folder: Path, number: int) -> str:
    crashes.create(address)
    acknowledged, polls = crashes.threads(address, folder, seconds=number)
    crashes.check(address, acknowledged)
    return f"{number} s: {len(acknowledged)} tells acknowledged while the state was read {polls} times, 0 lost"


def overlap(address: str, folder: Path, number: int) -> str:
    told = crashes.overlap(address, number)
    return f"{number} stations told overlapping files {told} times: the same rows as one file told once"


def files(address: str, folder: Path, number: int) -> str:
    told = test_hostile_files.attack(folder, number, seed=number)
    return f"{number} hostile files: {told} told as Python's own reader reads them, the others refused in one sentence"


def types(address: str, folder: Path, number: int) -> str:
    done = []
    for name in arrow_types.every_type():
        (own := folder / str(len(done))).mkdir()
        done.append(test_campaign_cli.attack(own, name))
    return f"{sum(done)} of {len(done)} Arrow types (all that Parquet has): handed back where ignored"


ATTACKS = {kills: 200, calls: 10, logs: 250, threads: 60, overlap: 8, files: 300, types: 0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    attacks = {attack.__name__: attack for attack in ATTACKS}
    parser.add_argument("attack", choices=attacks, nargs="?", default="kills")
    parser.add_argument("--number", type=int, help="how many, or how long: see above")
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of our own instead of SQLite")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = str(folder / "c.db")
        if options.postgres:
            fresh = stack.enter_context(postgres.server(durable=True))
            if fresh is None:
                sys.exit("no PostgreSQL server binaries here")
            address = fresh()
        attack, begin = attacks[options.attack], time.perf_counter()
        words = attack(address, folder, ATTACKS[attack] if options.number is None else options.number)
        print(f"{words}; {time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
