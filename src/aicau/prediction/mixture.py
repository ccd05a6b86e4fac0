"""Labels and counts: the ensemble mixed with Gaussian processes and trees, by how well each predicts left-out points.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| p_j | `parts` | (n, c) | probabilities (or the rate, c = 1) that model j predicts |
| w_j | `weights` | () | most likely mixing weights for left-out labels; ∝ (left-out Poisson divergence)^−3 for counts |

The mixture is Σ_j w_j p_j. Its probabilities are calibrated afterwards, by one temperature (`classification`).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from aicau.core import bregman
from aicau.core.pool import Frame
from aicau.ensembles.base import one_hot
from aicau.prediction.base import State
from aicau.prediction.combination import NETWORKS, points_of, weigh
from aicau.prediction.models import MODELS, Points
from aicau.prediction.models.trees import forest

TINY = 1e-12  # smallest probability whose logarithm is taken
LEAST_SHARE = 0.01  # probability that a process or a forest leaves every class
MOST_CLASSES = 8  # every class has a process of its own
MOST_POINTS = 1500  # measured points that a process sees: a cubic cost
LEAF = 2  # labels in a leaf, so that one wrong label does not make a tree certain
PRIOR = 4.0  # labels that equal weights are worth, for each model
STEPS = 100  # of the iteration for the weights


@dataclass(frozen=True)
class Mixture:
    """What all models together say of the pool, and of measured rows that they did not see."""

    mean: Tensor  # (n, c)
    outside: Tensor  # (rows, c)
    weights: dict[str, float]


def mix(state: State, centre: Tensor, outside: Tensor, combine: bool = True) -> Mixture:  # (n, c), (rows, c)
    """The ensemble alone where too few points are measured.

    Parameters
    ----------
    state : State
        Of one run.
    centre : Tensor, shape (n, c)
        What the ensemble says of the pool: its dual mean.
    outside : Tensor, shape (rows, c)
        What members that did not see a row say of it.
    combine : bool
        False: the ensemble alone.
    """
    frame, rows = Frame.of(state.x), state.observations
    point, place = rows.index[0].unique(return_inverse=True)
    hot = one_hot(rows.y[0], state.task.classes) if state.task.probabilities else rows.y[0][:, None]
    count = torch.zeros(len(point), dtype=torch.double).index_add(0, place, torch.ones(len(place)).double())
    told = torch.zeros(len(point), hot.shape[1], dtype=torch.double).index_add(0, place, hot) / count[:, None]
    points = points_of(state, frame, point, told[:, 0], count) if combine and len(point) <= MOST_POINTS else None
    if points is None:
        return Mixture(centre, outside, {NETWORKS: 1.0})
    pool = frame.coordinates(state.x.double())
    first = torch.zeros(len(point), dtype=torch.long).scatter_(0, place, torch.arange(len(place)))
    parts = {NETWORKS: (centre, outside[first])}
    parts |= classes(points, told, pool) if state.task.probabilities else counts(points, pool)
    left = {name: part[1] for name, part in parts.items()}
    if state.task.probabilities:
        weights = likeliest(left, told)
    else:
        apart = {name: bregman.between(bregman.POISSON, told, part.clamp_min(TINY)) for name, part in left.items()}
        weights = weigh({name: float(part.mean()) for name, part in apart.items()})
    mean, found = (sum(weights[name] * part[i] for name, part in parts.items()) for i in (0, 1))
    assert isinstance(mean, Tensor)
    assert isinstance(found, Tensor)
    return Mixture(mean, found[place], weights)


def classes(points: Points, told: Tensor, pool: Tensor) -> dict[str, tuple[Tensor, Tensor]]:  # (k, c), (n, p)
    """Probabilities of the pool (n, c) and of left-out points (k, c) by a forest and by a process for each class."""
    trees, left = forest(points, told, LEAF)
    said = torch.from_numpy(trees.predict(pool.float().numpy()))
    found = {"trees": (on_simplex(said), on_simplex(left))}
    c = told.shape[1]
    if c > MOST_CLASSES:
        return found
    several = []
    for j in range(1 if c == 2 else c):  # of two classes the second has what the first leaves
        model, out = MODELS["process"].fit(replace(points, y=told[:, j]))
        several.append((model.mean(pool), out.mean))
    shares = [torch.stack(part, -1) for part in zip(*several, strict=True)]
    if c == 2:
        shares = [torch.cat([part, 1 - part], -1) for part in shares]
    return found | {"process": (on_simplex(shares[0]), on_simplex(shares[1]))}


def counts(points: Points, pool: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Rates of the pool (n, 1) and of left-out points (k, 1) by the models of values; none is negative."""
    found = {}
    least = LEAST_SHARE * points.y.mean()
    for name, kind in MODELS.items():
        model, out = kind.fit(points)
        found[name] = tuple(part.clamp_min(least)[:, None] for part in (model.mean(pool), out.mean))
    return found  # type: ignore[return-value]


def on_simplex(shares: Tensor) -> Tensor:  # (..., c)
    """Probabilities: none below `LEAST_SHARE`, sum 1."""
    inside = shares.clamp_min(LEAST_SHARE)
    return inside / inside.sum(-1, keepdim=True)


def likeliest(parts: dict[str, Tensor], told: Tensor) -> dict[str, float]:  # (k, c) each
    """Mixing weights under which the labels of left-out points are most likely, each point once.

    Expectation and maximisation, with a prior that holds weights together.

    Examples
    --------
    >>> import torch
    >>> from aicau.prediction.mixture import likeliest
    >>> right = torch.eye(2).double().repeat(50, 1)
    >>> found = likeliest({"knows": 0.98 * right + 0.01, "guesses": torch.full((100, 2), 0.5).double()}, right)
    >>> round(found["knows"], 2)
    0.96
    """
    said = torch.stack(list(parts.values()), -1).clamp_min(TINY)  # (k, c, models)
    weights = torch.full((said.shape[-1],), 1 / said.shape[-1], dtype=torch.double)
    for _ in range(STEPS):
        owed = weights * said
        owed = (told[..., None] * owed / owed.sum(-1, keepdim=True)).sum((0, 1)) + PRIOR
        weights = owed / owed.sum()
    return dict(zip(parts, weights.tolist(), strict=True))
