"""The combination: the networks, Gaussian processes and trees, weighed by their left-out errors.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| f_j | `models` | (m,) | what model j predicts |
| e_j | `error` | (models,) | mean squared error of model j on measured points, their fold left out |
| w_j | `weights` | (models,) | ∝ e_j^−POWER, sum 1 |
| u | `local` | (m,) | variance of the process + Σ_j w_j (f_j − Σ w f)² |

Predicted is Σ_j w_j f_j: the variance in u says how far a point is from what was measured, the disagreement how much
depends on the kind of model, and `calibration` makes an expected squared error of it. A measured point is pulled to the
mean of its measurements, as far as these are worth more than what the models took from them. Everything is in units of
the state.

Networks take part as they are: each member never saw one fold, so their left-out errors are honest like those of the
others. Debiased ones gain nothing here: what corrects them is a process like those of the models, and its left-out
errors, of a closed form, are too small beside theirs.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aicau.bias import Correction
from aicau.core import streams
from aicau.core.pool import Frame
from aicau.core.runs import over
from aicau.core.streams import Purpose
from aicau.ensembles.base import fold_membership
from aicau.prediction import calibration
from aicau.prediction.base import State, spread_over
from aicau.prediction.calibration import Scales
from aicau.prediction.models import MODELS, LeftOut, Model, Points, ProcessModel, knots_of

NETWORKS = "networks"  # by their name among the weights
LEADING = "process"  # the model whose variance is used
POWER = 3.0  # of the inverse left-out errors
FOLDS = 5
FEW = 200  # measured points above which models are fitted side by side
LEAST = 5  # measured points that it takes: fewer say nothing about which model is good
KEPT = ("left_out", "share", "point", "value", "pull", "unknown")  # tensors beside those of the models


@dataclass(frozen=True)
class Combination:
    """Fitted models with their weights, for one run."""

    models: dict[str, Model]  # by name; the networks stand outside, in the state
    weights: dict[str, float]  # by name, the networks included
    scales: Scales  # what u and the noise are worth
    left_out: Tensor  # (l,) standardised errors of left-out measurements
    share: Tensor  # (l,) what each of them weighs
    point: Tensor  # (k,) measured candidates, ascending
    value: Tensor  # (k,) means of their measurements
    pull: Tensor  # (k,) how far they are pulled there
    unknown: Tensor  # (k,) what is unknown of them
    error: float  # mean squared error of left-out measurements
    frame: Frame  # of the pool's coordinates

    def at(
        self,
        x: Tensor,  # (m, d)
        index: Tensor,  # (m,) which candidates these are
        networks: Tensor,  # (m,)
        own: Tensor,  # (m,) noise by the correction
    ) -> tuple[Tensor, Tensor, Tensor]:  # (m,) each
        """The prediction of some candidates, its expected squared error, and the noise of one measurement."""
        at = self.frame.coordinates(x)
        first, variance = leading(self.models).both(at)
        found = {name: model.mean(at) for name, model in self.models.items() if name != LEADING}
        mean, apart = combined(found | {LEADING: first, NETWORKS: networks}, self.weights)
        unknown, noise = self.scales.parts(mean, variance + apart, own)
        place = torch.searchsorted(self.point, index).clamp_max(len(self.point) - 1)
        known = self.point[place] == index
        mean = torch.where(known, mean + self.pull[place] * (self.value[place] - mean), mean)
        return mean, torch.where(known, torch.minimum(unknown, self.unknown[place]), unknown), noise

    def tensors(self) -> dict[str, Tensor]:
        """What `load` needs, beside `words`."""
        parts = {f"{name}.{key}": t for name, model in self.models.items() for key, t in model.tensors().items()}
        own = {name: getattr(self, name) for name in KEPT}
        return parts | own | {"scales": self.scales.parameters, "heights": self.scales.values}

    def words(self) -> dict[str, Any]:
        """The rest, as plain JSON."""
        return {"weights": self.weights, "error": self.error}

    @classmethod
    def load(cls, tensors: dict[str, Tensor], words: dict[str, Any], frame: Frame) -> "Combination":
        """What `tensors` and `words` gave."""
        own: dict[str, dict[str, Tensor]] = {name: {} for name in words["weights"] if name != NETWORKS}
        for key, tensor in tensors.items():
            name, dot, rest = key.partition(".")
            if dot:
                own[name][rest] = tensor
        models = {name: MODELS[name].load(parts) for name, parts in own.items()}
        scales = Scales(tensors["scales"], tensors["heights"])
        kept: dict[str, Any] = {name: tensors[name] for name in KEPT}
        return cls(models, words["weights"], scales, error=words["error"], frame=frame, **kept)


def combined(found: dict[str, Tensor], weights: dict[str, float]) -> tuple[Tensor, Tensor]:  # (m,) each
    """Σ_j w_j f_j, and how far the models are apart: Σ_j w_j (f_j − Σ w f)²."""
    names = sorted(weights)  # an order that a kept model has, too: sums are the same to the last bit
    values = torch.stack([found[name] for name in names])
    share = values.new_tensor([weights[name] for name in names])[:, None]
    mean = (share * values).sum(0)
    return mean, (share * (values - mean) ** 2).sum(0)


def weigh(errors: dict[str, float], power: float = POWER) -> dict[str, float]:
    """Weights ∝ error^−power, sum 1; models without any error share everything."""
    best = min(errors.values())
    raw = {name: (best / error) ** power if error > 0 else 1.0 for name, error in errors.items()}
    total = sum(raw.values())
    return {name: part / total for name, part in raw.items()}


def fit(
    state: State,
    correction: Correction,  # of the networks, after the same round: it knows the noise
    most: int,  # measurements that it sees one by one; where there are more, everything sees means of points
) -> Combination | None:
    """The combination after a round, for one run; None where too few points are measured."""
    evidence, behind = state.evidence().at_most(most)
    rows = evidence.observations
    index, value = rows.index[0], rows.y[0]
    point, place = index.unique(return_inverse=True)
    times = torch.ones_like(value) if behind is None else behind[0].to(value)  # measurements behind each row
    count = sums(times, place, len(point))
    y = sums(times * value, place, len(point)) / count
    points = points_of(state, correction.frame, point, y, count)
    if points is None:
        return None
    kinds = MODELS.values()
    each = over(lambda kind: kind.fit(points), kinds) if len(point) > FEW else (kind.fit(points) for kind in kinds)
    fitted = dict(zip(MODELS, each, strict=True))
    models = {name: model for name, (model, _) in fitted.items()}
    outside = {name: out for name, (_, out) in fitted.items()}
    said = times * (value + evidence.crossfitted()[0])
    outside[NETWORKS] = LeftOut(sums(said, place, len(point)) / count)
    weights = weigh({name: float(((out.mean - y) ** 2).mean()) for name, out in outside.items()})
    mean, apart = combined({name: out.mean for name, out in outside.items()}, weights)
    variance = outside[LEADING].variance
    assert variance is not None
    local, own = variance + apart, correction.noise(state.x[point])
    some = spread_over(len(state.x))
    fresh = correction.frame.coordinates(state.x[some[~torch.isin(some, point)]].double())
    share = calibration.shares(fresh, points.at)
    rough = leading(models).posterior.noise()[0]
    left = calibration.Errors(y - mean, mean, y, count, local, own, _within(state, point, y), share)
    scales = calibration.fit(left, rough)
    unknown, noise = scales.parts(mean, local, own)
    inside = {name: model.mean(points.at) for name, model in models.items()}
    inside[NETWORKS] = state.predictions[0][:, point].double().mean(0)
    pull = pulls(y, mean, combined(inside, weights)[0], unknown, noise / count)
    after = unknown * noise / count / (unknown + noise / count).clamp_min(1e-300)
    error = value - mean[place]
    unknown, noise = calibration.without_folds(points.fold, left, rough)
    wide = unknown[place] + noise[place] / times
    standard = error / wide.clamp_min(1e-300).sqrt()
    square = float((error**2).mean())
    return Combination(models, weights, scales, standard, share[place], point, y, pull, after, square, correction.frame)


def points_of(state: State, frame: Frame, point: Tensor, y: Tensor, count: Tensor) -> Points | None:  # (k,) each
    """Measured candidates as models see them; None where they are too few to leave some out."""
    at = frame.coordinates(state.x[point].double())
    fold = fold_membership(state.keys, FOLDS, at[None])[0].int().argmax(0)
    if len(point) < LEAST or len(fold.unique()) < 2:
        return None
    seed = int(streams.uniform(streams.fold(state.keys, Purpose.TREES), 1)[0, 0] * 2**31)
    return Points(at, y, count, fold, seed, knots_of(frame.coordinates(state.x[spread_over(len(state.x))].double())))


def pulls(
    y: Tensor,  # (k,) means of measurements
    outside: Tensor,  # (k,) predicted without them
    inside: Tensor,  # (k,) predicted with them
    unknown: Tensor,  # (k,) expected squared error of `outside`
    noise: Tensor,  # (k,) variance of y
) -> Tensor:  # (k,) 0 to 1
    """How far from what models predict of a measured point its measurements should still pull.

    Without its measurements a point is predicted with an error of variance `unknown`; they should move it by
    g = unknown / (unknown + noise) of the way, and the models were moved by h of it, on average.
    """
    size = float(((y - outside) ** 2).sum())
    moved = 1 - float(((y - inside) * (y - outside)).sum()) / size if size > 0 else 0.0
    right = unknown / (unknown + noise).clamp_min(1e-300)
    return ((right - moved) / max(1e-9, 1 - moved)).clamp(0, 1)


def leading(models: dict[str, Model]) -> ProcessModel:
    """The process whose variance and noise are used."""
    process = models[LEADING]
    assert isinstance(process, ProcessModel)
    return process


def sums(values: Tensor, place: Tensor, points: int) -> Tensor:  # (rows, ...), (rows,) -> (points, ...)
    """Of the rows of each point."""
    return values.new_zeros(points, *values.shape[1:]).index_add(0, place, values)


def _within(state: State, point: Tensor, mean: Tensor) -> Tensor:  # (points,) twice -> (points,)
    """Squared deviations of all measurements from the mean of their point, summed."""
    index, value = state.observations.index[0], state.observations.y[0]
    place = torch.searchsorted(point, index).clamp_max(len(point) - 1)
    kept = point[place] == index
    return sums(((value - mean[place]) ** 2)[kept], place[kept], len(point))
