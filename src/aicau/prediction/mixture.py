"""Labels and counts: the ensemble mixed with Gaussian processes and trees, by how well each predicts left-out points.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| p_j | `parts` | (n, c) | probabilities (or the rate, c = 1) that model j predicts |
| w_j | `weights` | () | most likely mixing weights for left-out labels; ∝ (left-out Poisson divergence)^−3 for counts |

The mixture is Σ_j w_j p_j. Its probabilities are calibrated afterwards, by one temperature (`classification`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from aicau.bias.classes import TINY
from aicau.core import bregman
from aicau.core.pool import Frame
from aicau.ensembles.base import one_hot
from aicau.prediction.base import State
from aicau.prediction.combination import NETWORKS, points_of, sums, weigh
from aicau.prediction.models import MODELS, Model, Points
from aicau.prediction.models.trees import forest

LEAST_SHARE = 0.01  # probability that a process or a forest leaves every class
MOST_CLASSES = 8  # every class has a process of its own
MOST_POINTS = 1500  # measured points that a process sees: a cubic cost
LEAF = 2  # labels in a leaf, so that one wrong label does not make a tree certain
PRIOR = 4.0  # labels that equal weights are worth, for each model
STEPS = 100  # of the iteration for the weights
Function = Callable[[Tensor], Tensor]  # coordinates (m, p) -> probabilities or rates (m, c)


@dataclass(frozen=True)
class Mixture:
    """All models together, and what they say of measured rows that they did not see."""

    models: dict[str, Function]  # beside the networks
    frame: Frame
    outside: Tensor  # (rows, c)
    tested: Tensor  # (rows,) whether a member did not see the row
    weights: dict[str, float]

    def mean(self, centre: Tensor, x: Tensor) -> Tensor:  # (m, c), (m, d) -> (m, c)
        """What they say of some candidates; of the ensemble its dual mean is known."""
        at = self.frame.coordinates(x.double())
        return mixed({NETWORKS: centre} | {name: model(at) for name, model in self.models.items()}, self.weights)


def mixed(parts: dict[str, Tensor], weights: dict[str, float]) -> Tensor:
    """Σ_j w_j p_j."""
    return sum((weights[name] * part for name, part in parts.items()), torch.zeros(()))


def members_at(state: State, index: Tensor | None) -> Tensor:  # (m, K, c)
    """What members predict of some candidates of one run, or of all."""
    return state.task.members(state.predictions[0] if index is None else state.predictions[0][:, index])


def left_out(state: State) -> tuple[Tensor, Tensor]:  # (rows, c), (rows,)
    """Each measured row by the members that did not see it, and which rows have such a member."""
    members = members_at(state, state.observations.index[0]).clamp_min(TINY)
    apart = state.fitted.unseen[0].T.to(members)  # (rows, K)
    mean = (members * apart[..., None]).sum(-2) / apart.sum(-1, keepdim=True).clamp_min(1)
    return mean, apart.sum(-1) > 0


def mix(state: State, combine: bool) -> Mixture:
    """Of one run; the ensemble alone where too few points are measured, or nothing is to be combined."""
    frame, rows = state.frame, state.observations
    outside, tested = left_out(state)
    point, place = rows.index[0].unique(return_inverse=True)
    hot = one_hot(rows.y[0], state.task.classes) if state.task.probabilities else rows.y[0][:, None]
    count = torch.bincount(place).double()
    told = sums(hot, place, len(point)) / count[:, None]
    points = points_of(state, frame, point, told[:, 0], count) if combine and len(point) <= MOST_POINTS else None
    if points is None:
        return Mixture({}, frame, outside, tested, {NETWORKS: 1.0})
    first = torch.zeros(len(point), dtype=torch.long).scatter_(0, place, torch.arange(len(place)))
    parts = classes(points, told) if state.task.probabilities else counts(points)
    left = {NETWORKS: outside[first]} | {name: part[1] for name, part in parts.items()}
    if state.task.probabilities:
        weights = likeliest(left, told)
    else:
        apart = {name: bregman.between(bregman.POISSON, told, part.clamp_min(TINY)) for name, part in left.items()}
        weights = weigh({name: float(part.mean()) for name, part in apart.items()})
    return Mixture({name: part[0] for name, part in parts.items()}, frame, mixed(left, weights)[place], tested, weights)


def classes(points: Points, told: Tensor) -> dict[str, tuple[Function, Tensor]]:  # (k, c)
    """A forest and a process for each class, and the probabilities that each gives left-out points (k, c)."""
    trees, left = forest(points, told, LEAF)

    def grown(at: Tensor) -> Tensor:
        return on_simplex(torch.from_numpy(trees.predict(at.float().numpy())))

    found: dict[str, tuple[Function, Tensor]] = {"trees": (grown, on_simplex(left))}
    c = told.shape[1]
    if c > MOST_CLASSES:
        return found
    # Of two classes the second has what the first leaves.
    several = [MODELS["process"].fit(replace(points, y=told[:, j])) for j in range(1 if c == 2 else c)]

    def whole(parts: Iterable[Tensor]) -> Tensor:
        share = torch.stack(list(parts), -1)
        return on_simplex(torch.cat([share, 1 - share], -1) if c == 2 else share)

    def smooth(at: Tensor) -> Tensor:
        return whole(model.mean(at) for model, _ in several)

    return found | {"process": (smooth, whole(out.mean for _, out in several))}


def counts(points: Points) -> dict[str, tuple[Function, Tensor]]:
    """The models of values, and the rates that each gives left-out points (k, 1); none is negative."""
    least = LEAST_SHARE * points.y.mean()

    def rates(values: Tensor) -> Tensor:
        return values.clamp_min(least)[:, None]

    def model_of(kind: type[Model]) -> tuple[Function, Tensor]:
        model, out = kind.fit(points)
        return lambda at: rates(model.mean(at)), rates(out.mean)

    return {name: model_of(kind) for name, kind in MODELS.items()}


def on_simplex(shares: Tensor) -> Tensor:  # (..., c)
    """Probabilities: none below `LEAST_SHARE`, sum 1."""
    inside = shares.clamp_min(LEAST_SHARE)
    return inside / inside.sum(-1, keepdim=True)


def likeliest(parts: dict[str, Tensor], told: Tensor) -> dict[str, float]:  # (k, c) each
    """Mixing weights under which the labels of left-out points are most likely, each point once.

    Expectation and maximisation, with a prior that holds weights together.
    """
    said = torch.stack(list(parts.values()), -1).clamp_min(TINY)  # (k, c, models)
    weights = torch.full((said.shape[-1],), 1 / said.shape[-1], dtype=torch.double)
    for _ in range(STEPS):
        owed = weights * said
        owed = (told[..., None] * owed / owed.sum(-1, keepdim=True)).sum((0, 1)) + PRIOR
        weights = owed / owed.sum()
    return dict(zip(parts, weights.tolist(), strict=True))
