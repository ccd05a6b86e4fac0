"""From a campaign's moment to the next batch, and why each of its points was chosen, in words and numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aicau.acquisition import Score, View
from aicau.acquisition.random import Random
from aicau.batching import Eigen, Spread, Top
from aicau.batching.spread import REPEAT, doubts, measured_once
from aicau.bias import Belief, Quadratic
from aicau.campaign.model import Model
from aicau.campaign.why import Pick, explain
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.omega import Omega
from aicau.core.pool import coordinates
from aicau.core.task import VALUES, Task
from aicau.prediction.discrete import one_label
from aicau.prediction.measured import Measured
from aicau.store import Moment
from aicau.strategy import FIRST_CHANGE, Strategy

FIRST = "farthest"  # with nothing measured, the batch fills the space
TASKS = {"regression": VALUES, "classification": Task("classes", 2), "count": Task("counts")}  # two classes at least
UNTOLD = {"classes": 1.0, "values": 0.0, "counts": 0.0}  # skill of a model that was kept before skills were


def round_key(seed: int, round: int) -> Tensor:  # (1,)
    """The random stream of a round: a function of the seed and the history alone."""
    return streams.fold(streams.runs(seed, 1), round)


def choose(
    x: Tensor,  # (n, d) standardised
    moment: Moment,
    model: Model | None,
    earlier: Sequence[Model],  # of the rounds before, for strategies that look at changes
    strategy: Strategy,
    seed: int,
    m: int,
) -> list[Pick]:
    """The next `m` points. Pending points count as measured for distances and are not proposed again.

    A point may stand in a batch more than once where its noise makes a repeat worth more than a new point.
    """
    n = x.shape[0]
    counts = np.zeros(n, dtype=np.int64)
    known: dict[int, list[Any]] = {}
    for row in moment.rows:
        counts[row.candidate] += row.repeats
        known.setdefault(row.candidate, []).append(row)
    marked, allowed = torch.from_numpy(counts > 0), torch.ones(n, dtype=torch.bool)
    marked[moment.pending] = True
    allowed[moment.pending] = False
    allowed[moment.abandoned] = False
    key = streams.fold(round_key(seed, moment.round), moment.last_ask)
    x = coordinates(x)
    view = View(x, allowed[None], marked[None], key, times=torch.from_numpy(counts.copy())[None])
    scores: list[Score] = []
    if model is None:
        strategy = Strategy.parse(FIRST)
    else:
        room = torch.where(allowed, m, 0)[None]
        view = _seen(replace(view, room=room), model)
        scores = [strategy.acquisition.score(_seen(view, one)) for one in earlier]
    chosen = strategy.choose(view, m, scores, FIRST_CHANGE)[0][0]
    near = _distances(x, marked, chosen).tolist()
    reasons = _reasons(strategy, view, scores, near)
    prediction = _nothing(moment.rows) if model is None else model.predict(chosen.numpy())
    free = 0 if model is None else int(model.info["noise_freedom"])
    doubt, own = doubts(view) if isinstance(strategy.batching, Spread) else (None, None)
    picks = []
    for i, at in enumerate(chosen.tolist()):
        worth = None if doubt is None or not counts[at] else REPEAT * float(doubt[0, at])
        if doubt is not None and own is not None:
            doubt[0, at] = measured_once(doubt[0, at], own[0, at])
        reason = reasons[i]
        if counts[at] and isinstance(strategy.batching, Spread):
            reason = "no new point offers more" if worth is None else "a point known already"
        rows = known.get(at, [])
        picks.append(explain(at, i, near[i], reason, int(counts[at]), rows, prediction, free, strategy, worth))
        counts[at] += 1
    return picks


def _seen(view: View, model: Model) -> View:
    skill = torch.tensor([model.info.get("skill", UNTOLD[model.task.kind])])
    lesson = model.lesson
    view = replace(view, predictions=model.predictions, points=model.x, task=model.task, lesson=lesson, skill=skill)
    return view.told(model.estimate)


def _nothing(rows: Sequence[Any]) -> str:
    """Why there is no model."""
    labels = Measured.of(rows).labels if rows else ()
    # Rows without a model: another station told them after this one had looked.
    return one_label(labels) if len(labels) == 1 else "nothing is measured yet"


def try_out(strategy: Strategy, task: str) -> None:
    """Choose from four points as a campaign with this task would, so that what cannot work is refused at its start."""
    kind = TASKS[task]
    if kind != VALUES and isinstance(strategy.bias, Quadratic):
        raise InputError(f"strategy {strategy.name!r}: quadratic has no version for {task}; try posterior or direct")
    flags = torch.ones(1, 4, dtype=torch.bool)
    rates = torch.linspace(0.2, 0.6, 8).reshape(1, 2, 4)
    predictions = torch.stack([rates, 1 - rates], -1) if kind.kind == "classes" else rates
    mean = kind.members(predictions).mean(-2)
    estimate = Omega(mean.float()) if kind == VALUES else Belief(mean)
    view = View(torch.eye(4), flags, torch.zeros_like(flags), streams.runs(0, 1), predictions, task=kind)
    view = replace(view, skill=torch.ones(1))
    try:
        strategy.choose(view.told(estimate), 1)
    except InputError as error:
        raise InputError(f"strategy {strategy.name!r} does not work for {task}: {error}") from error


def _reasons(strategy: Strategy, view: View, history: Sequence[Score], near: Sequence[float]) -> list[str]:
    """What the batching rule saw in each point."""
    if isinstance(strategy.batching, Eigen):
        score = strategy.acquisition.score(view)
        score = score.change(strategy.change, history) if strategy.change is not None and history else score
        assert score.omega is not None
        omega = score.omega.restrict(view.allowed)
        values = omega.top_eigenpairs(len(near))[0][0]
        total = max(float(omega.trace()[0]), 1e-300)
        shares = (values[values > 0] / total).tolist()
        modes = [f"peak of mode {i} of the error matrix ({share:.0%} of it)" for i, share in enumerate(shares, 1)]
        return modes + ["fills the batch: the error matrix has no further mode"] * (len(near) - len(modes))
    if isinstance(strategy.acquisition, Random):
        return ["drawn at random"] * len(near)
    if isinstance(strategy.batching, Top):
        return [f"number {i + 1} by score" for i in range(len(near))]
    return [f"distance {d:.3g} to the nearest known point" for d in near]


def _distances(x: Tensor, marked: Tensor, chosen: Tensor) -> Tensor:  # (m,)
    """To the nearest point measured, pending or chosen earlier in this batch; infinite for the very first."""
    points = x[chosen].double()
    near = torch.full((len(chosen),), torch.inf, dtype=torch.double)
    if bool(marked.any()):
        near = torch.cdist(points, x[marked].double()).amin(-1)
    among = torch.cdist(points, points)
    among[torch.ones_like(among).triu().bool()] = torch.inf
    return torch.minimum(near, among.amin(-1))
