"""Pages under load: readers and writers at once on a campaign of 100,000 candidates, and the command line meanwhile.

    python benchmarks/web_load.py --seconds 60

A reader opens a page, reads it for a second and opens the next, as people do; a writer drops results, looks at what
they would do and confirms, every two seconds, and always has an ask for two points under way. Every 5 seconds `aicau
tell` writes from a process of its own. Prints one table and ends
with code 1 where a request failed, the median page took more than 200 ms, or the command line was locked out.
"""

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import httpx2 as httpx
import numpy as np
import pandas as pd
import typer

from aicau import Campaign
from common import command, header, row

PAGES = ("overview", "next", "results", "map", "candidates")
PAGES += ("candidates?q=c123&sort=mean&down=true", "noise", "history")


def make(path: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    pool = pd.DataFrame(rng.random((n, 4)), columns=list("abcd")).assign(id=[f"c{i}" for i in range(n)])
    with Campaign.create(path, pool, target="y", batch="plate") as campaign:
        campaign.ask(48)
        ids = campaign.pending()["id"]
        campaign.tell(pd.DataFrame({"id": ids, "y": rng.random(len(ids)), "plate": "P1"}))
        campaign.outlook()


async def csrf(client: httpx.AsyncClient) -> str:
    return re.search(r'name="csrf" value="(\w+)"', (await client.get("/c/load/next")).text)[1]


async def reader(url: str, until: float, pause: float, number: int, times: list[float], errors: list[str]) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        await asyncio.sleep(pause * number / 50)
        while time.monotonic() < until:
            page = PAGES[number % len(PAGES)]
            began = time.perf_counter()
            answer = await client.get(f"/c/load/{page}")
            times.append(time.perf_counter() - began)
            if answer.status_code != 200:
                errors.append(f"{page}: {answer.status_code} {answer.text[:200]}")
            number += 1
            await asyncio.sleep(pause)


async def writer(url: str, until: float, number: int, done: list[int], errors: list[str]) -> None:
    headers, rng = {"accept": "application/json"}, np.random.default_rng(number)
    async with httpx.AsyncClient(base_url=url, timeout=120, headers=headers) as client:
        word, job = {"csrf": await csrf(client)}, ""
        while time.monotonic() < until:
            if not job or (await client.get(f"/jobs/{job}.json")).json()["state"] in ("done", "failed"):
                name = f"w{number}-{time.monotonic()}"
                job = (await client.post("/c/load/ask", data={**word, "n": 2, "request_name": name})).json()["job"]
            ids = rng.choice(100, 4, replace=False) + 1000 * (1 + number) + 4 * len(done)
            text = "id,y,plate\n" + "".join(f"c{at},{rng.random():.6f},W{number}-{len(done)}\n" for at in ids)
            answer = await client.post("/c/load/results", data=word, files={"file": ("r.csv", text)})
            page = answer.json().get("page", "")
            shown = await client.get(f"{page}.json")
            answer = await client.post(page, data=word)
            for one in (shown, answer):
                if one.status_code != 200:
                    errors.append(f"tell: {one.status_code} {one.text[:200]}")
            done.append(len(ids))
            await asyncio.sleep(2)


async def command_line(path: Path, until: float, took: list[float], errors: list[str]) -> None:
    number = 0
    while time.monotonic() < until - 8:
        number += 1
        file = path.with_name(f"cli-{number}.csv")
        file.write_text(f"id,y,plate\nc{number},0.5,CLI{number}\n")
        began = time.perf_counter()
        words = [sys.executable, "-m", "aicau", "tell", str(path), str(file)]
        process = await asyncio.create_subprocess_exec(*words, stdout=-3, stderr=subprocess.PIPE)
        _, said = await process.communicate()
        took.append(time.perf_counter() - began)
        if process.returncode:
            errors.append(f"command line: {said.decode()[:300]}")
        await asyncio.sleep(5)


def cpu_seconds(process: int) -> float:
    """Processor time of a process so far, its children not counted."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def load(url: str, path: Path, seconds: float, readers: int, writers: int, pause: float, server: int) -> int:
    used = cpu_seconds(server)
    until = time.monotonic() + seconds
    times: list[float] = []
    took: list[float] = []
    done: list[int] = []
    errors: list[str] = []
    jobs = [reader(url, until, pause, at, times, errors) for at in range(readers)]
    jobs += [writer(url, until, at, done, errors) for at in range(writers)]
    await asyncio.gather(*jobs, command_line(path, until, took, errors))
    times.sort()
    median, late = statistics.median(times), times[int(0.95 * len(times))]
    server_time = "processor time of the server a page"
    header("pages", "errors", "median", "95%", server_time, "files dropped", "command line: tells, slowest")
    spent = (f"{each * 1e3:.0f} ms" for each in (median, late, (cpu_seconds(server) - used) / len(times)))
    row(len(times), len(errors), *spent, len(done), f"{len(took)}, {max(took, default=0.0):.1f} s")
    for words in dict.fromkeys(errors):
        print("error:", words)
    return int(bool(errors) or median > 0.2)


def first_page(path: Path) -> None:
    """From the start of the command to the first page, beside `import torch`, the better of three each."""

    def torch() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        return time.perf_counter() - began

    def page() -> float:
        began = time.perf_counter()
        process, url = start(path)
        httpx.get(url, timeout=60).raise_for_status()
        took = time.perf_counter() - began
        process.terminate()
        process.wait()
        return took

    one, other = (min(work() for _ in range(3)) for work in (torch, page))
    print(f"first page after {other:.2f} s, `import torch` {one:.2f} s: {other / one:.2f} times")


def start(path: Path) -> tuple[subprocess.Popen[str], str]:
    words = [sys.executable, "-m", "aicau", "serve", str(path), "--port", "0"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    return process, re.search(r"http\S+?:\d+", process.stdout.readline())[0]


def main(
    candidates: int = 100_000,
    seconds: float = 60,
    readers: int = 50,
    writers: int = 2,
    pause: Annotated[float, typer.Option(help="Seconds that a reader reads a page")] = 1.0,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "load.db"
        make(path, candidates)
        first_page(path)
        process, url = start(path)
        try:
            for _ in range(600):  # until the candidates are predicted once, as after the first visit of a day
                httpx.get(f"{url}/c/load/candidates", timeout=60)
                if not httpx.get(f"{url}/c/load/state.json", timeout=60).json()["busy"]:
                    break
                time.sleep(0.5)
            code = asyncio.run(load(url, path, seconds, readers, writers, pause, process.pid))
        finally:
            process.terminate()
            process.wait()
    raise SystemExit(code)


if __name__ == "__main__":
    command(main)
