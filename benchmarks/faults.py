"""The long run of tests/test_faults.py: kill a process that asks and tells, 200 times, at random moments.

python benchmarks/faults.py [--kills 200] [--postgres]
"""

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import crashes
import postgres


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL server of our own instead of SQLite")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        address = str(Path(folder) / "c.db")
        if options.postgres:
            fresh = stack.enter_context(postgres.server(durable=True))
            if fresh is None:
                sys.exit("no PostgreSQL server binaries here")
            address = fresh()
        crashes.create(address)
        begin, acknowledged = time.perf_counter(), []
        for number in range(options.kills):
            acknowledged += crashes.kill_once(address, folder, number, by_time=number % 2 == 0)
            crashes.check(address, acknowledged)
        rows = sum(what.get("rows", 0) for what in acknowledged)
        asks = sum("request" in what for what in acknowledged)
        print(
            f"{options.kills} kills in {time.perf_counter() - begin:.0f} s: {asks} asks and {rows} rows were"
            " acknowledged, every one is there; no ask and no tell is half there; the next command worked each time"
        )


if __name__ == "__main__":
    main()
