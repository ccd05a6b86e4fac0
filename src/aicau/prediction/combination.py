"""The combination: the networks, Gaussian processes and trees, weighed by their left-out errors.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| f_j | `models` | (m,) | what model j predicts |
| e_j | `error` | (models,) | mean squared error of model j on measured points, their fold left out |
| w_j | `weights` | (models,) | ∝ e_j^−POWER, sum 1 |
| u | `local` | (m,) | variance of the leading process + Σ_j w_j (f_j − Σ w f)² |
| a, b | `stretch` | 2 | factors of u and of the noise under which left-out errors are most likely |

Predicted is Σ_j w_j f_j, and a·u is its expected squared error: the variance says how far a point is from what was
measured, the disagreement how much depends on the kind of model. Everything is in units of the state.

Networks take part as they are: each member never saw one fold, so their left-out errors are honest like those of the
others. Debiased ones gain nothing here: what corrects them is a process like those of the models, and its left-out
errors, of a closed form, are too small beside theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aicau.bias import Correction
from aicau.core import streams
from aicau.core.pool import Frame
from aicau.core.streams import Purpose
from aicau.ensembles.base import fold_membership
from aicau.prediction.base import State
from aicau.prediction.models import MODELS, LeftOut, Model, Points, ProcessModel

NETWORKS = "networks"  # by their name among the weights
PROCESSES = ("rbf", "matern")  # the one that weighs more leads
POWER = 2.0  # of the inverse left-out errors
FOLDS = 5
LEAST = 5  # measured points that it takes: fewer say nothing about which model is good
STEPS = torch.linspace(-4, 4, 33, dtype=torch.double)  # of ln a and ln b


@dataclass(frozen=True)
class Combination:
    """Fitted models with their weights, for one run.

    Parameters
    ----------
    models : dict of Model
        By name; the networks stand outside, in the state.
    weights : dict of float
        By name, the networks included.
    stretch : tuple of float
        a and b.
    left_out : Tensor, shape (l,)
        Standardised errors of left-out measurements.
    error : float
        Mean squared error of left-out measurements.
    frame : Frame
        Of the pool's coordinates.
    """

    models: dict[str, Model]
    weights: dict[str, float]
    stretch: tuple[float, float]
    left_out: Tensor
    error: float
    frame: Frame

    def at(self, x: Tensor, networks: Tensor) -> tuple[Tensor, Tensor]:  # (m, d), (m,) -> (m,) twice
        """The prediction of some candidates, and its expected squared error a·u."""
        at = self.frame.coordinates(x.double())
        found = {name: model.mean(at) for name, model in self.models.items()} | {NETWORKS: networks}
        mean, apart = combined(found, self.weights)
        process = self.models[leading(self.weights)]
        assert isinstance(process, ProcessModel)
        return mean, self.stretch[0] * (process.variance(at) + apart)

    def tensors(self) -> dict[str, Tensor]:
        """What `load` needs, beside `words`."""
        parts = {f"{name}.{key}": t for name, model in self.models.items() for key, t in model.tensors().items()}
        return parts | {"left_out": self.left_out}

    def words(self) -> dict[str, Any]:
        """The rest, as plain JSON."""
        return {"weights": self.weights, "stretch": list(self.stretch), "error": self.error}

    @classmethod
    def load(cls, tensors: dict[str, Tensor], words: dict[str, Any], frame: Frame) -> "Combination":
        """What `tensors` and `words` gave."""
        own: dict[str, dict[str, Tensor]] = {name: {} for name in words["weights"] if name != NETWORKS}
        for key, tensor in tensors.items():
            name, dot, rest = key.partition(".")
            if dot:
                own[name][rest] = tensor
        models = {name: MODELS[name].load(parts) for name, parts in own.items()}
        a, b = words["stretch"]
        return cls(models, words["weights"], (a, b), tensors["left_out"], words["error"], frame)


def combined(found: dict[str, Tensor], weights: dict[str, float]) -> tuple[Tensor, Tensor]:  # (m,) each
    """Σ_j w_j f_j, and how far the models are apart: Σ_j w_j (f_j − Σ w f)²."""
    names = sorted(weights)  # an order that a kept model has, too: sums are the same to the last bit
    values = torch.stack([found[name] for name in names])
    share = values.new_tensor([weights[name] for name in names])[:, None]
    mean = (share * values).sum(0)
    return mean, (share * (values - mean) ** 2).sum(0)


def weigh(errors: dict[str, float], power: float = POWER) -> dict[str, float]:
    """Weights ∝ error^−power, sum 1; models without any error share everything.

    Examples
    --------
    >>> from aicau.prediction.combination import weigh
    >>> weigh({"one": 1.0, "two": 2.0}, 2.0)
    {'one': 0.8, 'two': 0.2}
    """
    best = min(errors.values())
    raw = {name: (best / error) ** power if error > 0 else 1.0 for name, error in errors.items()}
    total = sum(raw.values())
    return {name: part / total for name, part in raw.items()}


def stretches(
    error: Tensor,  # (l,) of means of measurements, left out
    count: Tensor,  # (l,) measurements behind each
    local: Tensor,  # (l,) u
    own: Tensor,  # (l,) variance of one measurement, as it was estimated
    squares: Tensor,  # (l,) squared deviations of measurements from the mean of their point, summed
) -> tuple[float, float]:
    """a and b under which the errors, of variance a·u + b·own/count, and the deviations are most likely.

    ln a and ln b have a standard normal prior; without replicates little tells the two apart.
    """
    a, b = STEPS.exp()[:, None, None], STEPS.exp()[None, :, None]
    noise = (b * own).clamp_min(1e-12)
    total = a * local + noise / count
    free = count - 1
    loss = (total.log() + error**2 / total + free * noise.log() + squares / noise).sum(-1)
    loss = loss + STEPS[:, None] ** 2 + STEPS[None] ** 2
    best = int(loss.argmin())
    return float(STEPS[best // len(STEPS)].exp()), float(STEPS[best % len(STEPS)].exp())


def fit(state: State, correction: Correction, most: int, names: Sequence[str] = tuple(MODELS)) -> Combination | None:
    """The combination after a round, for one run; None where too few points are measured.

    Parameters
    ----------
    state : State
        Of one run.
    correction : Correction
        Of the networks, after the same round: it knows the noise.
    most : int
        Measurements that the correction sees one by one; where there are more, everything sees means of points.
    names : sequence of str
        Models among `MODELS`.

    Returns
    -------
    Combination or None
    """
    evidence, behind = state.evidence().at_most(most)
    rows = evidence.observations
    index, value = rows.index[0], rows.y[0]
    point, place = index.unique(return_inverse=True)
    at = correction.frame.coordinates(state.x[point].double())
    fold = fold_membership(state.keys, FOLDS, at[None])[0].int().argmax(0)
    if len(point) < LEAST or len(fold.unique()) < 2:
        return None
    times = torch.ones_like(value) if behind is None else behind[0].to(value)  # measurements behind each row
    count = _sums(times, place, len(point))
    y = _sums(times * value, place, len(point)) / count
    seed = int(streams.uniform(streams.fold(state.keys, Purpose.TREES), 1)[0, 0] * 2**31)
    points = Points(at, y, count, fold, seed)
    fitted = {name: MODELS[name].fit(points) for name in names}
    outside = {name: out for name, (_, out) in fitted.items()}
    said = times * (value + evidence.crossfitted()[0])
    outside[NETWORKS] = LeftOut(_sums(said, place, len(point)) / count)
    weights = weigh({name: float(((out.mean - y) ** 2).mean()) for name, out in outside.items()})
    mean, apart = combined({name: out.mean for name, out in outside.items()}, weights)
    variance = outside[leading(weights)].variance
    assert variance is not None
    local, own = variance + apart, correction.noise(state.x[point])
    a, b = stretches(y - mean, count, local, own, _within(state, point, y))
    wide = (a * local)[place] + b * own[place] / times
    error = value - mean[place]
    models = {name: model for name, (model, _) in fitted.items()}
    standard = error / wide.clamp_min(1e-300).sqrt()
    return Combination(models, weights, (a, b), standard, float((error**2).mean()), correction.frame)


def leading(weights: dict[str, float]) -> str:
    """The process whose variance is used: the one that weighs most."""
    return max(PROCESSES, key=lambda name: weights[name])


def _sums(values: Tensor, place: Tensor, points: int) -> Tensor:  # (rows,) twice -> (points,)
    return values.new_zeros(points).index_add(0, place, values)


def _within(state: State, point: Tensor, mean: Tensor) -> Tensor:  # (points,) twice -> (points,)
    """Squared deviations of all measurements from the mean of their point, summed."""
    index, value = state.observations.index[0], state.observations.y[0]
    place = torch.searchsorted(point, index).clamp_max(len(point) - 1)
    kept = point[place] == index
    return _sums(((value - mean[place]) ** 2)[kept], place[kept], len(point))
