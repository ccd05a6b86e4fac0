"""Long work in one background process, which imports PyTorch, keeps models in memory, and does one job at a time."""

import multiprocessing
import os
import secrets
import signal
import threading
from collections import Counter, OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
LOOKS = ("look", "table")  # verbs that change nothing
MOST_JOBS = 200  # that are kept


@dataclass
class Job:
    """One piece of long work."""

    campaign: str  # its key
    verb: str
    arguments: dict[str, Any] = field(repr=False)
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: str = WAITING
    step: str = "waiting for its turn"
    result: Any = field(default=None, repr=False)
    error: str = ""

    @property
    def over(self) -> bool:
        return self.state in (DONE, FAILED)

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        return {name: getattr(self, name) for name in ("campaign", "verb", "id", "state", "step", "error")}


class Worker:
    """The process and its jobs. It starts with the first job, and again if it died."""

    def __init__(self) -> None:
        self.jobs: OrderedDict[str, Job] = OrderedDict()
        self.waiting: SimpleQueue[Job | None] = SimpleQueue()
        self.changes: Counter[str] = Counter()  # of each campaign by jobs
        self.lock = threading.Lock()
        self.pipe: Connection | None = None
        self.process: Any = None
        self.closed = False
        self.thread = threading.Thread(target=self._run, name="worker", daemon=True)
        self.thread.start()

    def submit(self, verb: str, campaign: str, once: bool = False, **arguments: Any) -> Job:
        """A new job; with `once` the same one if it waits or runs already."""
        with self.lock:
            for other in self.jobs.values():
                if once and not other.over and (other.verb, other.campaign) == (verb, campaign):
                    return other
            job = Job(campaign, verb, arguments)
            self.jobs[job.id] = job
            for old in [one for one in self.jobs.values() if one.over][: max(0, len(self.jobs) - MOST_JOBS)]:
                del self.jobs[old.id]
        self.waiting.put(job)
        return job

    def of(self, campaign: str) -> Job | None:
        """The change of this campaign that is under way."""
        jobs = (job for job in list(self.jobs.values()) if job.campaign == campaign and job.verb not in LOOKS)
        return next((job for job in jobs if not job.over), None)

    def close(self) -> None:
        """End the process and the thread; waiting jobs are dropped."""
        self.closed = True
        self.waiting.put(None)
        while self.thread.is_alive():  # a process that was just being started is ended in the next turn
            if self.process is not None and self.process.is_alive():
                self.process.terminate()
            self.thread.join(0.1)
        if self.process is not None:
            self.process.join()

    def _run(self) -> None:
        while (job := self.waiting.get()) is not None and not self.closed:
            job.state, job.step = RUNNING, "starting"
            try:
                done, answer = self._do(job)
            except (EOFError, OSError):
                self.pipe = None
                done, answer = False, "the background process ended unexpectedly (was memory short?); try again"
            self.changes[job.campaign] += job.verb not in LOOKS
            job.result, job.error = (answer, "") if done else (None, str(answer))
            job.step, job.state = "", DONE if done else FAILED

    def _do(self, job: Job) -> tuple[bool, Any]:
        if self.pipe is None or not self.process.is_alive():
            context = multiprocessing.get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=serve_jobs, args=(other,), name="aicau worker", daemon=True)
            self.process.start()
            other.close()
        self.pipe.send((job.verb, job.arguments))
        while True:
            kind, answer = self.pipe.recv()
            if kind != "step":
                return kind == DONE, answer
            job.step = answer


def serve_jobs(pipe: Connection) -> None:
    """The other process: until the server is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server
    with suppress(AttributeError, OSError):  # pages come first, also on few processors
        os.nice(10)
    from aicau.core.errors import AicauError
    from aicau.web.desk import Desk

    desk = Desk(lambda words: pipe.send(("step", words)))
    while True:
        try:
            verb, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = DONE, getattr(desk, verb)(**arguments)
        except AicauError as error:
            answer = FAILED, str(error)
        except Exception as error:
            answer = FAILED, f"something went wrong ({type(error).__name__}: {error}); run 'aicau doctor' on the file"
        pipe.send(answer)
