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
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

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
from aicau.simulation.loop import Lane, Loop, Ran, Work
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


@dataclass(frozen=True)
class Setting:
    """How points are asked for: how many a round, and for how many rounds."""

    name: str
    batch_size: int
    rounds: int


SINGLE, BATCH = Setting("single", 1, 50), Setting("batch", 10, 10)


@dataclass(frozen=True)
class Figure:
    number: int
    name: str
    setting: Setting
    strategies: tuple[str, ...]


FIGURES = {
    figure.name: figure
    for figure in (
        Figure(2, "perfect-information", SINGLE, PERFECT + DIFFERENCES),
        Figure(4, "estimation", SINGLE, ("random", *ESTIMATED)),
        Figure(5, "batching", BATCH, ("random", *CANONICAL, *BATCHED)),
    )
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
    """Report to nobody."""


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
        for name in self.figures:
            if name not in FIGURES:
                raise unknown("figure", name, [*FIGURES, "all"])
        for name in self.presets:
            if name not in PRESETS:
                raise unknown("preset", name, list(PRESETS))
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


def compute(part: tuple[Work, tuple[int, int]]) -> Ran:
    """Some runs of one loop of a plan, from the first number to before the second."""
    work, runs = part
    return work.some(runs)


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
    """Run a plan. With `state` a checkpoint is kept there; with `resume` it goes on, to the same bits on the CPU.

    Elsewhere than in this process there are no checkpoints: what was lost is computed again.
    """
    if resume and not engine.here:
        raise InputError("only what runs in one process can be resumed; leave out --resume or --engine")
    jobs, slices, keys = plan.jobs(), engine.slices(plan.runs), streams.runs(plan.seed, plan.runs)
    made, how = {kind: problems.make(kind) for kind in plan.types}, Round.paper(ensemble)
    works = [
        Work(
            tuple(Lane(made[kind], make(*word)) for kind in plan.types for word in words),
            *(initial, setting.batch_size, setting.rounds, keys, device, how),
        )
        for setting, initial, words in jobs
    ]
    total, done = len(slices) * sum(setting.rounds + 1 for setting, _, _ in jobs), [0] * len(jobs)

    def tell(at: int) -> None:
        setting, initial, _ = jobs[at]
        report(f"{setting.name} rounds, {initial} initial points", sum(done), total)

    def kept(at: int) -> Ran:
        """Here, with a checkpoint where there is a place for it."""
        checkpoint = None if state is None else Checkpoint(state, plan, jobs[at], checks.pick_device(device))
        saved = 0.0

        def watch(loop: Loop) -> None:
            nonlocal saved
            now = time.perf_counter()
            if not saved:
                saved = now
                if checkpoint is not None and resume:
                    checkpoint.load(loop)
            elif checkpoint is not None and (loop.done or now - saved > every):
                checkpoint.save(loop)
                saved = time.perf_counter()
            done[at] = loop.round
            if not loop.done:
                tell(at)

        return works[at].some((0, plan.runs), watch)

    found = map(kept, range(len(jobs))) if engine.here else engine.over(compute, product(works, slices), device)
    frames, seconds = [], defaultdict[str, float](float)
    for at, (setting, initial, words) in enumerate(jobs):
        some = []
        for result in islice(found, len(slices)):
            some.append(result)
            for part, spent in result.seconds.items():
                seconds[f"{setting.name}-{initial}/{part}"] += spent
            if not engine.here:
                done[at] += setting.rounds + 1
                tell(at)
        mse, queried = (np.concatenate([getattr(one, part) for one in some], 1) for part in ("mse", "queried"))
        labels = [(setting.name, kind, initial, *word) for kind in plan.types for word in words]
        columns = ["setting", "type", "initial", "strategy", "preset"]
        frames.append(tidy(columns, labels, mse, queried, initial, setting.batch_size))
    return Outcome(plan, pd.concat(frames, ignore_index=True), seconds)


class Checkpoint:
    """The state of one loop on disk, with the plan it belongs to: arrays and JSON, never pickle."""

    def __init__(self, folder: Path, plan: Plan, job: Job, device: torch.device) -> None:
        setting, initial, words = job
        name = f"{setting.name}-{initial}"
        self.path = folder / f"{name}.npz"
        same = {key: value for key, value in asdict(plan).items() if key not in ("figures", "presets")}
        self.plan = json.dumps({**same, "job": name, "strategies": words, "device": device.type}, sort_keys=True)

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
            raise InputError(
                f"{self.path} belongs to a run with other settings; use the same ones, another --out, or no --resume"
            )
        loop.restore(arrays)
