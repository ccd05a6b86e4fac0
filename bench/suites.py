"""The comparison: every method on the same F_k, the same initial points and the same noise.

| suite | panels |
|---|---|
| toy | the six of Figure 5: Types I to III from 10 and from 100 points, 10 rounds of 10 |
| noisy | Types II and III with five times the noise |
| real | every data set under a folder, replayed; 10 rounds |
| classes | three classes with noisy labels (bench.classes), from 20 and from 100 labels |
| phase | Type III from 10 points: strengths of the noise, and lengths over which it is shared (bench.phase) |

The methods of a panel are lanes of one loop. All of them, the paper's strategies too, choose on the F_k of the same
`Round`, the one a campaign runs: plate shifts taken out, targets scaled. `aicau reproduce` runs the paper's strategies
in the paper's round. Lines that bring a model of their own (`gp`) run beside it.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from aicau import ensembles, problems
from aicau.core import checks, streams
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError, unknown
from aicau.ensembles import ENSEMBLES, Ensemble
from aicau.paper import plan as paper
from aicau.paper.plan import Report, silent
from aicau.problems import replay
from aicau.round import Round
from aicau.simulation.loop import Lane, Loop, Work
from aicau.simulation.simulate import tidy
from bench import classes as bench_classes
from bench import methods, peers
from bench.classes import Panel

SUITES = ("toy", "noisy", "real", "classes", "phase")
SCALES, LENGTHS = (0.5, 1.0, 2.0, 5.0), (0.2, 0.8, math.pi / 2, 5.0)  # of the phase diagram


@dataclass(frozen=True)
class Settings:
    """What is compared, and how often. Two equal settings give the same numbers on the same data."""

    suite: str = "toy"
    strategies: tuple[str, ...] = ()  # none: `methods.lineup`
    runs: int = 10
    seed: int = 0
    ensemble: str = "paper"
    gp: bool = False
    data: Path | None = None
    most: int = 2000  # points of a real pool
    panels: tuple[str, ...] = ()  # none: all of the suite

    def __post_init__(self) -> None:
        if self.suite not in SUITES:
            raise unknown("suite", self.suite, list(SUITES))
        if self.ensemble not in ENSEMBLES:
            raise unknown("ensemble", self.ensemble, list(ENSEMBLES))
        if self.suite == "classes" and (self.ensemble != "paper" or self.gp):
            raise InputError("the suite 'classes' has networks with a softmax head: leave out --ensemble and --gp")
        if self.suite == "phase" and (self.data is not None or self.panels or self.gp):
            raise InputError("the phase diagram has its own problems: leave out --data, --panel and --gp")
        if self.suite == "phase" and len(set(self.strategies)) == 1:
            raise InputError("a phase diagram needs at least two strategies")
        checks.positive(self.runs, "runs")

    @property
    def error(self) -> str:
        """What the error is called in tables and pictures."""
        return bench_classes.TASK.error if self.suite == "classes" else "MSE"

    @property
    def default(self) -> str:
        """What `default` stands for in this suite."""
        return bench_classes.DEFAULT if self.suite == "classes" else methods.DEFAULT

    @property
    def strong(self) -> tuple[str, ...]:
        """Methods of the field; the best of them in each panel is the one to beat."""
        return bench_classes.STRONG if self.suite == "classes" else methods.STRONG


@dataclass
class Outcome:
    """Tidy results, what each method took to choose, and what could not take part."""

    settings: Settings
    panels: list[Panel]
    frame: pd.DataFrame  # suite, panel, model, strategy, run, round, points, mse, queried
    choosing: pd.DataFrame  # panel, strategy, seconds (per round and run)
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def run(
    settings: Settings,
    device: str = "auto",
    report: Report = silent,
    ensemble: Ensemble | None = None,
    engine: Engine = HERE,
) -> Outcome:
    """Run a suite, panel by panel, on any engine; on the CPU the numbers do not depend on it."""
    made, notes = panels(settings)
    model = ensembles.make(settings.ensemble, made[0].problem.task) if ensemble is None else ensemble
    words = tuple(dict.fromkeys(settings.strategies))
    if not words and settings.suite == "phase":
        words = methods.HANDFUL
    elif not words:
        classes = settings.suite == "classes"
        words, missing = bench_classes.lineup(methods.installed("batchbald")) if classes else methods.lineup(model)
        notes += missing
    for word in words:
        methods.method(word)  # a name that means nothing is said before anything runs
    lines = list(peers.GP_LINES) if settings.gp else []
    if absent := [line for line in lines if not methods.installed(line)]:
        notes.append(f"Not installed, so not compared: {', '.join(absent)} (pip install 'aicau[peers]').")
        lines = [line for line in lines if line not in absent]
    each = settings.runs if engine.here else max(1, settings.runs * len(made) // (4 * engine.width))
    slices = [(first, min(first + each, settings.runs)) for first in range(0, settings.runs, each)]
    parts = [(panel, runs) for panel in made for runs in slices]
    frames, choices, seconds = list[pd.DataFrame](), list[pd.DataFrame](), {panel.name: 0.0 for panel in made}
    total, done = sum(panel.rounds + 1 for panel, _ in parts), 0

    def tick(panel: Panel, rounds: int = 1) -> None:
        nonlocal done
        done += rounds
        report(panel.name, done, total)

    tick(made[0], 0)
    # In this process every round is told; from others, a part that is done.
    work = partial(compute, settings, words, lines, device, model, tick=tick if engine.here else None)
    for (panel, _), (errors, choosing, spent) in zip(parts, engine.over(work, parts, device), strict=True):
        if not engine.here:
            tick(panel, panel.rounds + 1)
        frames.append(errors)
        choices.append(choosing)
        seconds[panel.name] += spent
    choosing = pd.concat(choices).groupby(["panel", "strategy"], sort=False).mean().reset_index()
    return Outcome(settings, made, pd.concat(frames, ignore_index=True), choosing, notes, seconds)


def compute(
    settings: Settings,
    words: tuple[str, ...],
    lines: list[str],  # methods that bring a model of their own
    device: str,
    ensemble: Ensemble,
    part: tuple[Panel, tuple[int, int]],  # some runs of a panel: the first, and one past the last
    tick: Callable[[Panel], None] | None = None,  # hears of every round
) -> tuple[pd.DataFrame, pd.DataFrame, float]:  # errors, seconds of choosing, seconds in all
    """All methods on some runs of a panel."""
    begin = time.perf_counter()
    panel, (first, last) = part
    problem, sizes = panel.problem, (panel.initial, panel.batch_size, panel.rounds)
    keys = streams.runs(settings.seed, settings.runs)[first:last]
    lanes = tuple(Lane(problem, methods.method(word, problem.task)) for word in words)

    def watch(loop: Loop) -> None:
        if tick is not None and loop.round:
            tick(panel)

    ran = Work(lanes, *sizes, keys, device, Round(ensemble, problem.task)).run(watch)
    found = [
        (settings.ensemble, word, *rest) for word, *rest in zip(words, ran.mse, ran.queried, ran.choosing, strict=True)
    ]
    found += [("own", line, *peers.gp_curve(problem, peers.GP_LINES[line], *sizes, keys)) for line in lines]
    models, names, curves, asked, spent = zip(*found, strict=True)
    labels = [(settings.suite, panel.name, model, name) for model, name in zip(models, names, strict=True)]
    columns = ["suite", "panel", "model", "strategy"]
    frame = tidy(columns, labels, np.stack(curves), np.stack(asked), panel.initial, panel.batch_size)
    frame["run"] += first
    seconds = np.array(spent) / (panel.rounds * len(keys))
    choosing = pd.DataFrame({"panel": panel.name, "strategy": names, "seconds": seconds})
    return frame, choosing, time.perf_counter() - begin


def panels(settings: Settings) -> tuple[list[Panel], list[str]]:
    """The panels of a suite, and a sentence about each data set that could not be read."""
    notes: list[str] = []
    if settings.suite == "real":
        made, notes = _real(settings)
    elif settings.suite == "classes":
        made = bench_classes.panels()
    elif settings.suite == "phase":
        cells = [
            (s, x, problems.make("type3", noise_scale=s, correlation_length=x)) for s, x in product(SCALES, LENGTHS)
        ]
        made = [Panel(f"{scale:g} x {length:.3g}", problem, 10, 10) for scale, length, problem in cells]
    else:
        kinds, scale = (paper.TYPES, 1.0) if settings.suite == "toy" else (("type2", "type3"), 5.0)
        pools = {kind: problems.make(kind, noise_scale=scale) for kind in kinds}
        made = [Panel(f"{kind}-{initial}", pools[kind], initial, 10) for initial in paper.INITIALS for kind in kinds]
    if settings.panels:
        known = [panel.name for panel in made]
        for name in settings.panels:
            if name not in known:
                raise unknown("panel", name, known)
        made = [panel for panel in made if panel.name in settings.panels]
    return made, notes


def _real(settings: Settings) -> tuple[list[Panel], list[str]]:
    if settings.data is None:
        raise InputError("the suite 'real' replays data sets: name their folder with --data")
    made, notes = [], []
    for folder in replay.folders(settings.data):
        if settings.panels and folder.name not in settings.panels:
            continue
        try:
            problem = replay.load(folder, settings.most, settings.seed)
        except InputError as error:
            notes.append(f"Left out: {error}.")
            continue
        n = problem.pool.n
        made.append(Panel(folder.name, problem, max(2, min(40, n // 10)), 20 if n >= 1000 else 5))
    if not made:
        found = notes[0].removesuffix(".") if notes else f"it has no folder {', '.join(settings.panels)}"
        raise InputError(f"no data set under {settings.data} can be replayed; {found}")
    return made, notes
