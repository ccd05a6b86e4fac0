"""The paper's experiments: which strategies run where, computed once, resumable.

| figure | name here | setting |
|---|---|---|
| 2 | perfect-information | one point a round, 50 rounds |
| 4 | estimation | the same rounds, shared with Figure 2 |
| 5 | batching | 10 rounds of 10 |

All types of a setting share the pool, so all runs of all strategies of all types advance as one loop; there is one loop
per setting and number of initial points.
"""

import io
import json
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from aicau import problems
from aicau.bias import Quadratic
from aicau.core import checks, streams
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError, unknown
from aicau.core.files import write_whole
from aicau.ensembles import Ensemble
from aicau.round import Round
from aicau.simulation.loop import Lane, Loop, Work, compute
from aicau.simulation.simulate import tidy
from aicau.strategy import Strategy

TYPES = ("type1", "type2", "type3")
INITIALS = (10, 100)
PERFECT = ("random", "lc", "bald", "br:perfect", "pemse:perfect")
DIFFERENCES = ("lc:difference", "br:perfect:difference", "pemse:perfect:difference")
CANONICAL = ("lc", "bald")
ESTIMATED = tuple(f"{a}:{b}" for a in ("br", "pemse") for b in ("perfect", "direct", "quadratic"))
BATCHED = tuple(
    f"pemse:{bias}:{batching}{difference}"
    for bias in ("perfect", "direct", "quadratic")
    for batching in ("top", "eigen")
    for difference in ("", ":difference")
)


class Setting(NamedTuple):
    """How points are asked for: how many a round, and for how many rounds."""

    name: str
    batch_size: int
    rounds: int


class Figure(NamedTuple):
    number: int
    setting: Setting
    strategies: tuple[str, ...]


SINGLE, BATCH = Setting("single", 1, 50), Setting("batch", 10, 10)
FIGURES = {
    "perfect-information": Figure(2, SINGLE, PERFECT + DIFFERENCES),
    "estimation": Figure(4, SINGLE, ("random", *ESTIMATED)),
    "batching": Figure(5, BATCH, ("random", *CANONICAL, *BATCHED)),
}

# How Q is trained: the paper leaves the size of its mini-batches open, and the betas that it prints do not learn.
PRESETS = {
    "learns": "stochastic, betas (0.9, 0.999)",
    "printed": "stochastic, betas (0.999, 0.9) as printed",
    "full-batch": "full batches, betas (0.999, 0.9)",
}
ANY = "any"  # stands for the preset where a strategy has no Q


def strategy(word: str, preset: str = "learns") -> Strategy:
    """A strategy with everything as in the paper; `preset` says how Q is trained."""
    parsed = Strategy.parse(word)
    return replace(parsed, bias=Quadratic.paper(preset)) if isinstance(parsed.bias, Quadratic) else parsed


Report = Callable[[str, int, int], object]  # (what is running, rounds done, rounds in all)
Make = Callable[[str, str], Strategy]  # by its string and the preset
Job = tuple[Setting, int, tuple[tuple[str, str], ...]]  # initial points; strategy and preset of each lane


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Plan:
    """What to run. Two plans that are equal give the same numbers."""

    figures: tuple[str, ...]
    runs: int = 10
    seed: int = 0
    types: tuple[str, ...] = TYPES
    initials: tuple[int, ...] = INITIALS
    presets: tuple[str, ...] = ("learns", "printed")

    def __post_init__(self) -> None:
        if wrong := [name for name in self.figures if name not in FIGURES]:
            raise unknown("figure", wrong[0], [*FIGURES, "all"])
        if wrong := [name for name in self.presets if name not in PRESETS]:
            raise unknown("preset", wrong[0], list(PRESETS))
        checks.positive(self.runs, "runs")

    def jobs(self) -> list[Job]:
        """One loop per setting and number of initial points, with every strategy that some figure needs there, once for
        every preset where it has a Q."""
        out = []
        for setting in (SINGLE, BATCH):
            wanted = [FIGURES[name].strategies for name in self.figures if FIGURES[name].setting == setting]
            words = dict.fromkeys(word for words in wanted for word in words)
            lanes = tuple((word, p) for word in words for p in (self.presets if "quadratic" in word else (ANY,)))
            if lanes:
                out += [(setting, initial, lanes) for initial in self.initials]
        return out


@dataclass
class Outcome:
    """Tidy results of a plan and where the time went."""

    plan: Plan
    frame: pd.DataFrame  # setting, type, initial, strategy, preset, run, round, points, mse, queried
    seconds: dict[str, float] = field(default_factory=dict)

    def figure(self, name: str) -> pd.DataFrame:
        """The rows of one figure."""
        figure = FIGURES[name]
        rows = self.frame[self.frame.setting.eq(figure.setting.name) & self.frame.strategy.isin(figure.strategies)]
        rows = rows.drop(columns="setting")
        rows.insert(0, "figure", name)
        return rows.reset_index(drop=True)


def run(
    plan: Plan,
    device: str = "auto",
    state: Path | None = None,
    resume: bool = False,
    report: Report = silent,
    ensemble: Ensemble | None = None,
    make: Make = strategy,
    every: float = 20.0,
    engine: Engine = HERE,
) -> Outcome:
    """Run a plan. With `state` checkpoints are kept there; with `resume` it goes on from them, to the same bits on the
    CPU. Another engine keeps no checkpoints: what was lost is computed again."""
    if resume and not engine.here:
        raise InputError("only what runs in one process can be resumed; leave out --resume or --engine")
    jobs, keys = plan.jobs(), streams.runs(plan.seed, plan.runs)
    made, how = {kind: problems.make(kind) for kind in plan.types}, Round.paper(ensemble)
    works, done = list[Work](), [0] * len(jobs)
    for setting, initial, words in jobs:
        lanes = [Lane(made[kind], make(*word)) for kind in plan.types for word in words]
        works.append(Work(lanes, initial, setting.batch_size, setting.rounds, keys, device, how))
    total = sum(work.rounds + 1 for work in works)

    def tell(at: int, rounds: int) -> None:
        done[at], (setting, initial, _) = rounds, jobs[at]
        if not engine.here or rounds <= setting.rounds:  # at the end of a loop the next one reports
            report(f"{setting.name} rounds, {initial} initial points", sum(done), total)

    checkpoints = [] if state is None else [Checkpoint(state, plan, job, device, resume, every) for job in jobs]

    def watch(at: int, loop: Loop) -> None:
        if checkpoints:
            checkpoints[at].see(loop)

    frames, seconds = [], dict[str, float]()
    for (setting, initial, words), ran in zip(jobs, compute(works, engine, tell, watch), strict=True):
        seconds |= {f"{setting.name}-{initial}/{part}": spent for part, spent in ran.seconds.items()}
        labels = [(setting.name, kind, initial, *word) for kind in plan.types for word in words]
        columns = ["setting", "type", "initial", "strategy", "preset"]
        frames.append(tidy(columns, labels, ran.mse, ran.queried, initial, setting.batch_size))
    return Outcome(plan, pd.concat(frames, ignore_index=True), seconds)


class Checkpoint:
    """The state of one loop on disk, with the plan it belongs to: arrays and JSON, never pickle."""

    def __init__(self, folder: Path, plan: Plan, job: Job, device: str, resume: bool, every: float) -> None:
        setting, initial, words = job
        name = f"{setting.name}-{initial}"
        self.path, self.resume, self.every = folder / f"{name}.npz", resume, every
        self.saved: float | None = None  # when
        same: dict[str, Any] = {k: v for k, v in asdict(plan).items() if k not in ("figures", "presets")}
        same |= {"job": name, "strategies": words, "device": checks.pick_device(device).type}
        self.plan = json.dumps(same, sort_keys=True)

    def see(self, loop: Loop) -> None:
        """Before the first round: go on where a run stopped, if `resume`. Then save every so many seconds."""
        if self.saved is None:
            self.saved = time.perf_counter()
            if self.resume:
                self.load(loop)
        elif loop.done or time.perf_counter() - self.saved > self.every:
            self.save(loop)
            self.saved = time.perf_counter()

    def save(self, loop: Loop) -> None:
        arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in loop.state().items()}
        write_whole(self.path, lambda path: np.savez(path, plan=np.array(self.plan), **arrays))

    def load(self, loop: Loop) -> None:
        if not self.path.exists():
            return
        try:
            with np.load(io.BytesIO(self.path.read_bytes()), allow_pickle=False) as stored:
                plan = str(stored["plan"])
                arrays = {name: torch.from_numpy(stored[name]) for name in stored.files if name != "plan"}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"{self.path} is not a checkpoint of aicau; remove it to start again") from error
        if plan != self.plan:
            raise InputError(f"{self.path} has other settings; use the same ones, another --out, or no --resume")
        loop.restore(arrays)
