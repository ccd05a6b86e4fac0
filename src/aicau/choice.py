"""From a campaign's moment to the next batch, and why each of its points was chosen, in words and numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aicau import streams
from aicau.acquisition import Score, View
from aicau.acquisition.random import Random
from aicau.batching import Eigen, Spread, Top
from aicau.batching.spread import REPEAT, doubts, measured_once
from aicau.model import Measured, Model, Prediction
from aicau.pool import coordinates
from aicau.store import Moment
from aicau.strategy import FIRST_CHANGE, Strategy

FIRST = "farthest"  # with nothing measured, the batch fills the space


@dataclass(frozen=True)
class Pick:
    """One proposed point."""

    candidate: int
    replicate: int
    why: str
    numbers: dict[str, float | int | str | None]


def round_key(seed: int, round: int) -> Tensor:  # (1,)
    """The random stream of a round: a function of the seed and the history alone."""
    return streams.fold(streams.runs(seed, 1), round)


def measured_of(rows: Sequence[Any]) -> Measured:
    codes: dict[str | None, int] = {None: -1}
    batch = [codes.setdefault(row.batch, len(codes) - 1) for row in rows]
    return Measured(
        np.array([row.candidate for row in rows], dtype=np.int64),
        np.array([row.value for row in rows], dtype=np.float64),
        np.array([np.nan if row.sem is None else row.sem for row in rows], dtype=np.float64),
        np.array([row.repeats for row in rows], dtype=np.int64),
        np.array(batch, dtype=np.int64),
    )


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
    for row in moment.rows:
        counts[row.candidate] += row.repeats
    marked, allowed = torch.from_numpy(counts > 0), torch.ones(n, dtype=torch.bool)
    marked[moment.pending] = True
    allowed[moment.pending] = False
    allowed[moment.abandoned] = False
    key = streams.fold(round_key(seed, moment.round), moment.last_ask)
    x = coordinates(x)
    view = View(x, allowed[None], marked[None], key)
    scores: list[Score] = []
    if model is None:
        strategy = Strategy.parse(FIRST)
    else:
        room = torch.where(allowed, m, 0)[None]
        view = replace(view, predictions=model.predictions, cobias=model.cobias, room=room)
        scores = [
            strategy.acquisition.score(replace(view, predictions=one.predictions, cobias=one.cobias)) for one in earlier
        ]
    chosen = strategy.choose(view, m, scores, FIRST_CHANGE)[0][0]
    near = _distances(x, marked, chosen).tolist()
    reasons = _reasons(strategy, view, scores, near)
    prediction = None if model is None else model.predict()
    free = 0 if model is None else int(model.info["noise_freedom"])
    doubt, own = doubts(view) if isinstance(strategy.batching, Spread) else (None, None)
    picks = []
    for i, at in enumerate(chosen.tolist()):
        worth = None if doubt is None or not counts[at] else REPEAT * float(doubt[0, at])
        if doubt is not None and own is not None:
            doubt[0, at] = measured_once(doubt[0, at], own[0, at])
        reason = reasons[i] if worth is None else "a point known already"
        picks.append(_explain(at, near[i], reason, int(counts[at]), prediction, free, strategy, worth))
        counts[at] += 1
    return picks


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


def _explain(
    at: int,
    distance: float,
    reason: str,
    count: int,  # measurements so far, those earlier in this batch included
    prediction: Prediction | None,
    free: int,  # degrees of freedom behind the noise
    strategy: Strategy,
    worth: float | None,  # squared distance that the doubt about a known point is worth, where the batching weighs it
) -> Pick:
    numbers: dict[str, float | int | str | None] = {
        "rule": strategy.name,
        "distance": distance if math.isfinite(distance) else None,
    }
    if prediction is None:
        words = reason if math.isfinite(distance) else "the first point, nearest to the centre of the candidates"
        return Pick(at, 1, f"space-filling, nothing is measured yet: {words}", numbers)
    epistemic, bias, noise = (float(v[at]) for v in (prediction.epistemic, prediction.bias, prediction.aleatoric))
    total = epistemic + bias**2 + noise
    shares = [part / total if total > 0 else 0.0 for part in (epistemic, bias**2, noise)]
    numbers |= {
        "prediction": float(prediction.mean[at]),
        "epistemic": epistemic,
        "bias": bias,
        "aleatoric": noise,
        **dict(zip(("epistemic_share", "bias_share", "aleatoric_share"), shares, strict=True)),
    }
    noise_words = f"noise (sd {math.sqrt(noise):.3g})" if free else "noise (unknown: nothing was measured twice)"
    words = (
        f"{strategy.name}: {reason}; expected error {math.sqrt(total):.3g}, of which {shares[0]:.0%} epistemic"
        f" (sd {math.sqrt(epistemic):.3g}), {shares[1]:.0%} bias ({bias:+.3g}), {shares[2]:.0%} {noise_words}"
    )
    if count == 0:
        return Pick(at, 1, words, numbers)
    before, after = noise / count, noise / (count + 1)
    numbers |= {"measured_before": count, "mean_variance_now": before, "mean_variance_after": after}
    gain = (
        f"one more takes the standard error of its mean from {math.sqrt(before):.3g} to {math.sqrt(after):.3g}"
        if free
        else "the noise is unknown, and a repeat shows it"
    )
    if worth is not None:
        numbers["doubt_as_distance"] = math.sqrt(worth)
        gain += f"; what it hides is worth a distance of {math.sqrt(worth):.3g}, more than any new point offers"
    return Pick(at, count + 1, f"repeat, measured {count}x before: {gain}; {words}", numbers)
