"""The model behind one round of a campaign: the only door between what a campaign keeps and the numerical parts.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| F_k | `predictions` | (K, n) | members over the pool, in units of the standardised target |
| Δ̂ | `estimate` | (n, n) | the cobias that the strategy chooses by |
| m, C | `correction` | | the bias that predictions have taken out, and what is left of it (`aicau.prediction.values`) |

`fit` computes, `Model` holds what was computed, `state` and `load` carry it through a store. Points are trained on by
their mean, so that no replicate of a point is in the training folds of the member that is tested on it. Where the
strategy's estimator is `posterior`, Δ̂ = m mᵀ + C: what chooses is what predicts.
"""

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.acquisition import Lesson
from aicau.bias import Belief, Correction, Direct, Evidence, Posterior, skill
from aicau.core import decomposition
from aicau.core.errors import InputError, StoreError
from aicau.core.observations import Observations
from aicau.core.omega import Cobias, Omega
from aicau.core.runs import threads, threads_for
from aicau.core.task import VALUES, Task
from aicau.ensembles import ENSEMBLES
from aicau.ensembles.kernels import MLPSettings
from aicau.ensembles.mlp import FittedMLP
from aicau.prediction import discrete, discrete_fit
from aicau.prediction.discrete import ClassPrediction, CountPrediction, forward
from aicau.prediction.measured import MOST_REPEATS, Measured
from aicau.prediction.values import PARTS, Prediction, debiased, quantile, uncorrected
from aicau.strategy import Strategy

FORMAT = 2  # of `state`; 1 had no correction
LEVEL = 0.95  # of intervals
LEAST = 5  # measured candidates from which the bias is taken out: as many as there are folds
MOST_EVIDENCE = 1500  # measurements that the correction sees one by one: its cost is cubic
MOST_SHOWN = 4096  # candidates behind averages over the pool


@dataclass(frozen=True)
class Kept:
    """An ensemble that is no table of weights (a process, a forest): what it says of the pool is kept instead."""

    name: str
    members: Tensor  # (1, K, n)
    unseen: Tensor  # (1, K, l)


@dataclass(frozen=True)
class Model:
    """A fitted round."""

    x: Tensor  # (n, d) float32, standardised
    ensemble: FittedMLP | Kept
    estimate: Omega | Belief  # of the bias: (1, n, r) in units of the standardised target; a belief for the others
    info: dict[str, Any]  # shift, scale, noise, width, and figures for the report
    correction: Correction | None = None  # of values, where enough was measured; in units of the standardised target
    learned: tuple[Tensor, Tensor] | None = (
        None  # (l,) candidates, (l,) standardised values the ensemble was trained on
    )

    @cached_property
    def predictions(self) -> Tensor:  # (1, K, n)
        return self.ensemble.members if isinstance(self.ensemble, Kept) else forward(self.ensemble, self.x)

    @cached_property
    def task(self) -> Task:
        return discrete.task_of(self.info) if "task" in self.info else VALUES

    @property
    def lesson(self) -> Lesson | None:
        """What it takes to train the ensemble once more; None for labels, counts and models kept before."""
        if self.learned is None:
            return None
        name = self.ensemble.name if isinstance(self.ensemble, Kept) else "paper"
        return Lesson(ENSEMBLES[name](), *(part[None] for part in self.learned))

    @property
    def note(self) -> str:
        """What must be known about the predictions; empty where nothing must."""
        if self.task != VALUES or self.correction is not None:
            return ""
        points, words = self.info["points"], "the mean is the ensemble's, and its bias is not taken out"
        if points >= LEAST:
            return f"{words}: the model was kept by an earlier version; after the next results it will be"
        return f"{words}: that needs {LEAST} measured candidates, and there are {points}"

    def predict(
        self, index: NDArray[np.int64] | None = None, level: float = LEVEL
    ) -> Prediction | ClassPrediction | CountPrediction:
        """Every candidate, or some of them; in the target's own units."""
        some = slice(None) if index is None else torch.from_numpy(index)
        if index is None or isinstance(self.ensemble, Kept):
            members = self.predictions[:, :, some]
        else:
            members = forward(self.ensemble, self.x[some])
        if isinstance(self.estimate, Belief):
            return discrete.predict(members, discrete.at(self.estimate, some), self.info)
        with threads_for(self.x.shape[0]):
            said = self._values(members[0], some, level)
        return said.in_units(self.info["shift"], self.info["scale"])

    def _values(self, members: Tensor, some: Any, level: float) -> Prediction:  # (K, n)
        # The next measurement comes with a batch of its own, whose shift was taken out of those that were fitted; and
        # what the shifts of those have in common nobody can tell from the truth.
        shared = float(self.info["batch_variance"]) / float(self.info["scale"]) ** 2
        if self.correction is None:
            assert isinstance(self.estimate, Omega)
            bias = self.estimate.diagonal()[0, some].clamp_min(0).double()
            return uncorrected(members, bias, self.info["noise"], shared, self.info["width"], level)
        ensemble = decomposition.mean(members).double()
        bias, unknown, own = (part[0] for part in self.correction.at(self.x[some], ensemble[None]))
        unknown = unknown + shared / self.info["batches"]
        return debiased(members, bias, unknown, own + shared, quantile(self.correction.left_out[0], level))

    def state(self) -> tuple[dict[str, Tensor], str]:
        """Tensors for safetensors, and the rest as JSON."""
        settings: str | dict[str, Any]
        if isinstance(self.ensemble, Kept):
            own, settings = {"members": self.ensemble.members}, self.ensemble.name
        else:
            own = {"parameters": self.ensemble.parameters, "epochs": self.ensemble.epochs}
            settings = asdict(self.ensemble.settings)
        tensors = {**own, "unseen": self.ensemble.unseen, **_packed(self.estimate)}
        kept = {"format": FORMAT, "ensemble": settings, **self.info}
        if self.correction is not None:
            tensors |= {CORRECTION + name: part for name, part in self.correction.state().items()}
            kept["correction"] = self.correction.words()
        if self.learned is not None:
            tensors |= dict(zip(LEARNED, self.learned, strict=True))
        words = json.dumps(kept, sort_keys=True, allow_nan=False)
        return {name: tensor.contiguous() for name, tensor in tensors.items()}, words

    @classmethod
    def load(cls, tensors: dict[str, Tensor], words: str, x: Tensor) -> "Model":
        """What `state` gave, over the same pool."""
        info = json.loads(words)
        if info.pop("format") not in (1, FORMAT):
            raise StoreError("this model was kept by another version of aicau; ask again to fit a new one")
        settings = info.pop("ensemble")
        fitted: FittedMLP | Kept
        if isinstance(settings, str):
            fitted = Kept(settings, tensors["members"], tensors["unseen"])
        else:
            settings |= {name: tuple(settings[name]) for name in ("hidden", "betas")}
            fitted = FittedMLP(tensors["parameters"], tensors["unseen"], tensors["epochs"], MLPSettings(**settings))
        own = {k.removeprefix(CORRECTION): v for k, v in tensors.items() if k.startswith(CORRECTION)}
        with threads(1):  # as it was fitted
            correction = Correction.load(own, **info.pop("correction")) if own else None
        learned = (tensors[LEARNED[0]], tensors[LEARNED[1]]) if LEARNED[0] in tensors else None
        return cls(x, fitted, _unpacked(tensors), info, correction, learned)


CORRECTION = "correction."
LEARNED = ("learned.index", "learned.y")
COBIAS = {name: f"cobias.{name}" for name in ("factor", "signs", "extra", "doubt", "noise")}
BELIEF = {name: f"belief.{name}" for name in ("mean", "factor", "rest")}


def _packed(estimate: Omega | Belief) -> dict[str, Tensor]:
    names = BELIEF if isinstance(estimate, Belief) else COBIAS
    return {names[name]: part for name in names if (part := getattr(estimate, name, None)) is not None}


def _unpacked(tensors: dict[str, Tensor]) -> Omega | Belief:
    kind, names = (Belief, BELIEF) if BELIEF["mean"] in tensors else (Cobias, COBIAS)
    return kind(*(tensors.get(name) for name in names.values()))  # type: ignore[arg-type]


def fit(
    x: Tensor,  # (n, d) float32, standardised
    measured: Measured,
    keys: Tensor,  # (1,)
    strategy: Strategy,
    task: str = "regression",
    ensemble: str = "paper",
) -> Model:
    """F_k on means with batch effects taken out; Δ̂ by the strategy's own estimator (or `direct`); the correction."""
    if not len(measured.y):
        raise InputError("nothing was measured yet, so there is no model; tell some results first")
    if task != "regression":
        return Model(x, *discrete_fit.fit(x, measured, keys, strategy, task))
    measured, shared = measured.corrected(x)
    seen = measured.observations().collapse()
    kept = seen.valid[0]
    index, means = seen.index[0][kept], seen.mean[0][kept]
    shift = float(means.mean())
    spread = float(means.std(correction=0)) if len(means) > 1 else 0.0
    scale = spread if spread > 1e-12 * max(1.0, abs(shift)) else 1.0
    targets = (means - shift) / scale
    fitted = ENSEMBLES[ensemble]().fit(x[index][None], targets[None], keys)
    predictions = forward(fitted, x)
    estimator = strategy.bias if strategy.bias is not None else Direct()
    one_each = Evidence(x, _rows(index, targets), predictions, keys, fitted.unseen)
    told, counts = _told(one_each, seen.count[:, kept], measured, shift, scale)
    process = estimator if isinstance(estimator, Posterior) else Posterior()
    correction = process.correction(told, counts)
    if isinstance(estimator, Posterior):
        estimate: Omega = estimator.cobias(correction, x, decomposition.mean(predictions))
    else:
        estimate = estimator.estimate(one_each)
    variance, freedom = measured.replicate_variance()
    info: dict[str, Any] = {
        "shift": shift,
        "scale": scale,
        "noise": variance / scale**2,
        "noise_freedom": freedom,
        "points": len(means),
        "measurements": len(measured.y),
        "batch_variance": shared,
        "batches": measured.batches(),
        "strategy": strategy.name,
        "skill": float(skill(one_each)),
    }
    if len(index) >= LEAST:
        errors = correction.process.posterior.left_out_together(told.observations.index[0])
        square: float | None = float((errors**2).mean())
    else:
        square, info["width"] = _members_error(one_each, estimate, variance / scale**2)
    info["out_of_fold_rmse"] = None if square is None else square**0.5 * scale
    own = fitted if isinstance(fitted, FittedMLP) else Kept(ensemble, predictions, fitted.unseen)
    model = Model(x, own, estimate, info, correction if len(index) >= LEAST else None, (index, targets))
    said = model.predict(np.linspace(0, len(x) - 1, min(len(x), MOST_SHOWN)).astype(np.int64))
    names = {"epistemic": "mean_epistemic", "bias": "mean_square_bias", "aleatoric": "aleatoric"}
    return replace(model, info=info | {names[name]: float(getattr(said, name).mean()) for name in PARTS})


def _rows(index: Tensor, y: Tensor) -> Observations:  # (l,) both
    return Observations(index[None], y[None], torch.zeros(len(index), dtype=torch.int64))


def _told(
    one_each: Evidence,  # one mean per point
    counts: Tensor,  # (1, points)
    measured: Measured,
    shift: float,
    scale: float,
) -> tuple[Evidence, Tensor]:  # and (1, l) measurements behind each row
    """Every row that was told, or where there are many one mean per point."""
    if len(measured.y) > MOST_EVIDENCE:
        return one_each, counts
    rows = _rows(torch.from_numpy(measured.index), torch.from_numpy((measured.y - shift) / scale))
    assert one_each.unseen is not None
    unseen = one_each.unseen[..., torch.searchsorted(one_each.observations.index[0], rows.index[0])]
    own = torch.from_numpy(np.minimum(measured.count, MOST_REPEATS))[None]
    return replace(one_each, observations=rows, unseen=unseen), own


def _members_error(evidence: Evidence, estimate: Omega, noise: float) -> tuple[float | None, float]:
    """Mean squared error of members on points they did not see, and how much larger its root is than expected.

    It estimates τ (Eq. bvt), and sets the width of intervals where the bias is not taken out.
    """
    index, y = evidence.observations.index[0], evidence.observations.y[0]
    at = evidence.predictions[0][:, index]
    assert evidence.unseen is not None
    unseen = evidence.unseen[0].to(at)
    tested = unseen.sum(0) > 0
    if not bool(tested.any()):
        return None, 1.0
    errors = ((at - y.float()) * unseen).sum(0) / unseen.sum(0).clamp_min(1)
    square = float((errors[tested] ** 2).mean())
    expected = float(decomposition.epistemic(at).mean()) + float(estimate.diagonal()[0].clamp_min(0).mean()) + noise
    return square, (square / expected) ** 0.5 if square > 0 and expected > 0 else 1.0
