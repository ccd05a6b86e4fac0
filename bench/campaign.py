"""`python -m bench campaign`: designs × predictors end to end, aicau as a laboratory runs it.

| line | design | prediction |
|---|---|---|
| aicau | `Campaign.ask` with the goal | `Campaign.predict` |
| aicau:map | `Campaign.ask`, all candidates alike | `Campaign.predict` |
| qnipv, qlognei, straddle | BoTorch's SingleTaskGP with that criterion | the same process |
| hetgpy | hetGPy with IMSPE | the same process |
| bait:grad, lcmd:grad, … | that method on the paper's networks | mean of the networks |
| random+forest, random+process | random | scikit-learn's forest, or process with a length per feature |
| random+aicau | random | what a campaign predicts |

qlognei looks for the largest values, straddle for the threshold (1.96 standard deviations minus the distance to it).
Every line starts from the same points and sees the same measurements. A point whose measurements are used up is taken
out (`Campaign.exclude`), as a laboratory does that has nothing left of a substance.

With a threshold, `log_loss` is that of "the truth lies beyond it" over all candidates by the line's own prediction,
`same` by the prediction of a campaign on the line's points after the last round: the designs alone.
"""

import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from aicau.acquisition.goals import BEST, Goal, beyond
from aicau.core import streams
from aicau.core.engine import HERE, Engine
from aicau.core.errors import InputError
from aicau.core.files import write_whole
from aicau.core.observations import Observations
from aicau.core.statistics import mean_interval, paired_ratio, ratio
from aicau.core.streams import Purpose
from aicau.problems import Problem
from bench.classes import Panel
from bench.figures import campaigns
from bench.lines import Said, handed_out, make
from bench.scores import final, ranks
from bench.suites import Settings, panels
from bench.words import table

LINES = ("aicau", "qnipv", "hetgpy", "bait:grad", "lcmd:grad", "random+forest", "random+process")
SEEKING = ("aicau", "qlognei", "random+process")
THRESHOLD = ("aicau", "aicau:map", "qnipv", "straddle", "random+aicau", "random+process")


@dataclass(frozen=True)
class Task:
    """One run of one line on one panel."""

    panel: Panel
    line: str
    run: int
    seed: int
    goal: str


def play(task: Task) -> list[dict[str, Any]]:
    """All rounds, one row each."""
    warnings.simplefilter("ignore")  # of optimisers: their errors show what it cost
    panel, problem = task.panel, task.panel.problem
    keys = streams.runs(task.seed, task.run + 1)[-1:]
    line = make(task.line, problem, keys, task.goal)
    index = streams.permutation(streams.fold(keys, Purpose.INITIAL), problem.pool.n)[:, : panel.initial]
    none = torch.zeros(1, 0)
    rows = Observations(none.long(), none.double(), torch.zeros(0, dtype=torch.int64))
    out = []
    for round in range(panel.rounds + 1):
        values, plates = problem.draw(index, rows, keys, round)
        rows = rows.append(index, values, round, plates)
        begin = time.perf_counter()
        said = line.told(rows, index.shape[-1], round)
        counts = rows.counts(problem.pool.n)[0]
        if round < panel.rounds:
            index = torch.tensor([line.ask(panel.batch_size, problem.capacity - counts)])
        seconds = time.perf_counter() - begin
        own = {"goal": task.goal, "seed": task.seed, "panel": panel.name, "strategy": task.line, "run": task.run}
        own |= {"round": round, "points": rows.rows}
        out.append(own | judge(said, problem, rows, keys, task.goal) | {"seconds": seconds})
    if Goal.parse(task.goal).threshold is not None:
        same = handed_out(problem.pool.x, rows, keys, panel.rounds)
        out[-1]["same"] = judge(same, problem, rows, keys, task.goal)["log_loss"]
    return out


def judge(said: Said, problem: Problem, rows: Observations, keys: Tensor, goal: str) -> dict[str, float]:
    """Error to the truth, coverage of candidates never measured, and what the goal asks for."""
    truth, counts = problem.truth, rows.counts(problem.pool.n)[0]
    fresh = (counts == 0).nonzero()[:, 0]
    found = {"mse": float(((said.mean - truth) ** 2).mean()), "coverage": math.nan}
    if said.low is not None and said.high is not None and len(fresh):
        new = problem.draw(fresh[None], rows, keys, 10**6)[0][0]
        found["coverage"] = float(((said.low[fresh] <= new) & (new <= said.high[fresh])).double().mean())
    aim = Goal.parse(goal)
    if aim.seeks:
        value = truth if aim.name == "max" else -truth
        best = value.topk(max(1, int(BEST * len(truth)))).indices
        found["found"] = float((counts[best] > 0).double().mean())
        found["regret"] = float((value.max() - value[counts > 0].max()) / value.std())
    elif aim.threshold is not None and said.spread is not None:
        sign = 1.0 if aim.name == "above" else -1.0
        spread = said.spread.clamp_min(1e-9)
        chance = beyond(sign * said.mean, spread, torch.tensor(sign * aim.threshold).double()).clamp(1e-6, 1 - 1e-6)
        right = torch.where(sign * (truth - aim.threshold) > 0, chance, 1 - chance)
        found["log_loss"] = float(-right.log().mean())
    return found


@dataclass(frozen=True)
class Contest:
    """What is compared."""

    data: Path
    lines: tuple[str, ...] = ()
    panels: tuple[str, ...] = ()
    runs: int = 4
    seed: int = 0
    most: int = 500
    goal: str = "map"

    def tasks(self) -> list[Task]:
        """Run 0 of all panels first, so that a stop leaves a complete picture."""
        made, _ = panels(Settings("real", data=self.data, most=self.most, panels=self.panels, seed=self.seed))
        aim = Goal.parse(self.goal)
        lines = self.lines or (SEEKING if aim.seeks else LINES if aim.threshold is None else THRESHOLD)
        return [Task(p, w, run, self.seed, self.goal) for run in range(self.runs) for p in made for w in lines]


def collect(contest: Contest, path: Path, engine: Engine = HERE, seconds: float = math.inf) -> pd.DataFrame:
    """Tidy results, one row per panel, line, run and round: what `path` lacks is computed and kept there.

    Nothing new is begun after `seconds`.
    """
    frame = pd.read_csv(path) if path.exists() else pd.DataFrame()
    if len(frame) and set(zip(frame["goal"], frame["seed"], strict=True)) != {(contest.goal, contest.seed)}:
        raise InputError(f"{path} holds another goal or seed; choose another folder with --out")
    done = set() if frame.empty else set(zip(frame["panel"], frame["strategy"], frame["run"], strict=True))
    tasks = [task for task in contest.tasks() if (task.panel.name, task.line, task.run) not in done]
    begin = time.monotonic()
    for rows in engine.over(play, (task for task in tasks if time.monotonic() - begin < seconds)):
        frame = pd.concat([frame, pd.DataFrame(rows)], ignore_index=True)
        write_whole(path, lambda part, found=frame: found.to_csv(part, index=False, float_format="%.6g"))
    return frame


def whole(frame: pd.DataFrame) -> pd.DataFrame:
    """Runs of a panel that all lines have played."""
    lines = frame.groupby(["panel", "run"])["strategy"].transform("nunique")
    return frame[lines == frame["strategy"].nunique()]


def page(frame: pd.DataFrame, goal: str) -> str:
    """Compact tables: every line, where aicau loses, and learning curves."""
    frame = whole(frame)
    names, words = list(frame["panel"].unique()), list(frame["strategy"].unique())
    tables = [final(frame, name) for name in names]
    placed = ranks(tables, words)
    last = frame[frame["round"] == frame["round"].max()]
    extra = [name for name in ("found", "regret", "log_loss", "same") if name in frame]
    lines = [f"# Campaigns end to end, goal `{goal}`: {len(names)} sets, {frame['run'].nunique()} runs", ""]
    header = ["line", "error / aicau", "rank", "coverage of 90%", "sets 0.87 to 0.93", "s per round", *extra]
    rows = []
    for word in words:
        own = last[last["strategy"] == word]
        by_set = own.groupby("panel")["coverage"].mean()
        cells = [
            word,
            _ratio(tables, word) if "aicau" in words else "–",
            "–" if placed is None else f"{placed.mean[word]:.2f}",
            f"{own['coverage'].mean():.3f}",
            f"{int(by_set.between(0.87, 0.93).sum())} of {len(by_set)}",
            f"{frame[frame['strategy'] == word]['seconds'].median():.2f}",
            *(f"{own[name].mean():.3f}" for name in extra),
        ]
        rows.append(cells)
    lines += table(header, rows)
    for name in extra if "aicau" in words else ():
        ends = last.pivot_table(index="run", columns="strategy", values=name)  # means over sets
        off = {word: mean_interval((ends[word] - ends["aicau"]).to_numpy()) for word in ends if word != "aicau"}
        cells = [f"{word} {one.mean:+.4f} [{one.low:+.4f}, {one.high:+.4f}]" for word, one in off.items()]
        lines += [f"`{name}`, line minus aicau, 95% intervals over runs: {', '.join(cells)}.", ""]
    if placed is not None:
        lines += [f"Ranks differ beyond chance from {placed.difference:.2f} on (Nemenyi, 5%).", ""]
    lines += ["## Where aicau loses beyond doubt", ""]
    for name, ends in zip(names, tables, strict=True):
        for word in words:
            if word == "aicau" or "aicau" not in words:
                continue
            found = paired_ratio(ends["aicau"].to_numpy(), ends[word].to_numpy())
            if found.low > 1:
                lines.append(f"- {name}: {found.mean:.2f} [{found.low:.2f}, {found.high:.2f}] of the error of {word}")
    lines += ["", "## Learning curves: geometric mean of the error over sets and runs", ""]
    curve = frame.assign(log=np.log(frame["mse"])).pivot_table(index="round", columns="strategy", values="log")
    rows = ([str(k), *(f"{math.exp(curve.loc[k, word]):.3f}" for word in words)] for k in curve.index)
    lines += [*table(["round", *words], rows), "## Final error by set", ""]
    means = (np.exp(np.log(ends[words]).mean()) for ends in tables)
    rows = ([name, *(f"{value:.3f}" for value in mean)] for name, mean in zip(names, means, strict=True))
    return "\n".join(lines + table(["set", *words], rows))


def _ratio(tables: list[pd.DataFrame], word: str) -> str:
    """Geometric mean over sets of a line's final error over aicau's, with its 95% interval over sets."""
    found = ratio(np.array([np.log(table[word] / table["aicau"]).mean() for table in tables]))
    alone = word == "aicau" or len(tables) < 2
    return f"{found.mean:.3f}" + ("" if alone else f" ({found.low:.3f} to {found.high:.3f})")


def compare(contest: Contest, out: Path, engine: Engine = HERE, seconds: float = math.inf) -> str:
    """Run it; tidy table, page and curves under `out`."""
    frame = collect(contest, out / "campaign.csv", engine, seconds)
    text, drawn = page(frame, contest.goal), campaigns(whole(frame))
    write_whole(out / "campaign.md", lambda path: path.write_text(text))
    write_whole(out / "campaign.png", lambda path: drawn.savefig(path, dpi=100, format="png"))
    return text
