"""The model behind one round of a campaign: the only door between what a campaign keeps and the numerical parts.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| F_k | `predictions` | (K, n) | members over the pool, in units of the standardised target |
| σ²_F | `epistemic` | (n,) | variance over members |
| δ | `bias` | (n,) | estimated μ_F − μ_Y |
| σ²_Y | `aleatoric` | (n,) | variance of one measurement, the shift of its batch included |
| τ | | (n,) | σ²_F + δ² + σ²_Y: the expected squared error against one new measurement |

`fit` computes, `Model` holds what was computed, `state` and `load` carry it through a store. Points are trained on by
their mean, so that no replicate of a point is in the training folds of the member that is tested on it.
"""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau import decomposition, discrete, discrete_fit
from aicau.bias import Belief, Direct, Evidence
from aicau.discrete import ClassPrediction, CountPrediction, forward
from aicau.ensembles import MLP
from aicau.ensembles.mlp import FittedMLP
from aicau.errors import InputError, StoreError
from aicau.kernels import MLPSettings
from aicau.measured import Measured
from aicau.observations import Observations
from aicau.omega import Cobias, Omega
from aicau.strategy import Strategy
from aicau.task import VALUES, Task

FORMAT = 1  # of `state`
MOST_EVIDENCE = 1500  # measurements that an estimate of the bias sees one by one
NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Prediction:
    """In the target's own units: `epistemic` and `aleatoric` are variances, `bias` is a difference."""

    mean: NDArray[np.float64]  # (n,)
    low: NDArray[np.float64]  # (n,) 95% interval for one new measurement
    high: NDArray[np.float64]  # (n,)
    epistemic: NDArray[np.float64]  # (n,)
    bias: NDArray[np.float64]  # (n,)
    aleatoric: NDArray[np.float64]  # (n,)

    def columns(self) -> dict[str, NDArray[Any]]:
        """By their names in a table."""
        return vars(self)


@dataclass(frozen=True)
class Model:
    """A fitted round."""

    x: Tensor  # (n, d) float32, standardised
    ensemble: FittedMLP
    estimate: Omega | Belief  # of the bias: (1, n, r) in units of the standardised target; a belief for the others
    info: dict[str, Any]  # shift, scale, noise, width, and figures for the report

    @cached_property
    def predictions(self) -> Tensor:  # (1, K, n)
        return forward(self.ensemble, self.x)

    @cached_property
    def task(self) -> Task:
        return discrete.task_of(self.info) if "task" in self.info else VALUES

    @cached_property
    def bias(self) -> Tensor:  # (n,)
        """δ̂ with its sign where Δ̂ has rank one, else its size."""
        assert isinstance(self.estimate, Omega)
        if self.estimate.factor.shape[-1] == 1 and self.estimate.extra is None:
            return self.estimate.factor[0, :, 0]
        return self.estimate.diagonal()[0].clamp_min(0).sqrt()

    def predict(self, index: NDArray[np.int64] | None = None) -> Prediction | ClassPrediction | CountPrediction:
        """Every candidate, or some of them."""
        some = slice(None) if index is None else torch.from_numpy(index)
        members = self.predictions if index is None else forward(self.ensemble, self.x[some])
        if isinstance(self.estimate, Belief):
            return discrete.predict(members, discrete.at(self.estimate, some), self.info)
        return self._values(members, some)

    def _values(self, members: Tensor, some: Any) -> Prediction:
        scale, own = float(self.info["scale"]), float(self.info["noise"])
        mean = decomposition.mean(members)[0].double().numpy() * scale + self.info["shift"]
        epistemic = decomposition.epistemic(members)[0].double().numpy() * scale**2
        bias = self.bias[some].double().numpy() * scale
        # The next measurement comes with a batch of its own, whose shift the errors behind `width` do not have.
        shared = float(self.info["batch_variance"])
        aleatoric = np.full_like(mean, own * scale**2 + shared)
        within = epistemic + bias**2 + own * scale**2
        half = NORMAL_95 * np.sqrt(self.info["width"] ** 2 * within + shared)
        return Prediction(mean, mean - half, mean + half, epistemic, bias, aleatoric)

    def state(self) -> tuple[dict[str, Tensor], str]:
        """Tensors for safetensors, and the rest as JSON."""
        tensors = {
            "parameters": self.ensemble.parameters,
            "unseen": self.ensemble.unseen,
            "epochs": self.ensemble.epochs,
            **_packed(self.estimate),
        }
        settings = asdict(self.ensemble.settings)
        words = json.dumps({"format": FORMAT, "ensemble": settings, **self.info}, sort_keys=True, allow_nan=False)
        return {name: tensor.contiguous() for name, tensor in tensors.items()}, words

    @classmethod
    def load(cls, tensors: dict[str, Tensor], words: str, x: Tensor) -> "Model":
        """What `state` gave, over the same pool."""
        info = json.loads(words)
        if info.pop("format") != FORMAT:
            raise StoreError("this model was kept by another version of aicau; ask again to fit a new one")
        settings = info.pop("ensemble")
        settings |= {name: tuple(settings[name]) for name in ("hidden", "betas")}
        fitted = FittedMLP(tensors["parameters"], tensors["unseen"], tensors["epochs"], MLPSettings(**settings))
        return cls(x, fitted, _unpacked(tensors), info)


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
) -> Model:
    """F_k on means with batch effects taken out; bias by the strategy's own estimator (or `direct`); pooled noise."""
    if not len(measured.y):
        raise InputError("nothing was measured yet, so there is no model; tell some results first")
    if task != "regression":
        return Model(x, *discrete_fit.fit(x, measured, keys, strategy, task))
    measured, shared = measured.corrected(x)
    observations = measured.observations()
    seen = observations.collapse()
    kept = seen.valid[0]
    index, means = seen.index[0][kept], seen.mean[0][kept]
    shift = float(means.mean())
    spread = float(means.std(correction=0)) if len(means) > 1 else 0.0
    scale = spread if spread > 1e-12 * max(1.0, abs(shift)) else 1.0
    targets = (means - shift) / scale
    fitted = MLP().fit(x[index][None], targets[None], keys)
    predictions = forward(fitted, x)
    if observations.rows > MOST_EVIDENCE:  # the cost of an estimate is cubic in its rows: then one mean per point
        standard, unseen = Observations(index[None], targets[None], torch.zeros(len(index)).long()), fitted.unseen
    else:
        values = (observations.y - shift) / scale
        standard = Observations(observations.index, values, observations.round)
        unseen = fitted.unseen[..., torch.searchsorted(index, observations.index[0])]
    estimator = strategy.bias if strategy.bias is not None else Direct()
    cobias = estimator.estimate(Evidence(x, standard, predictions, keys, unseen))
    variance, freedom = measured.replicate_variance()
    own = variance / scale**2
    # The squared error of a member on a point it did not see estimates τ (Eq. bvt): it sets the width of intervals.
    at = predictions[0][:, index]
    unseen = fitted.unseen[0].to(at)
    errors = ((at - targets.float()) * unseen).sum(0) / unseen.sum(0).clamp_min(1)
    tested = unseen.sum(0) > 0
    square = float((errors[tested] ** 2).mean()) if bool(tested.any()) else 0.0
    epistemic, bias = decomposition.epistemic(predictions)[0], cobias.diagonal()[0].clamp_min(0)
    expected = float(epistemic[index].mean()) + float(bias.mean()) + own
    info = {
        "shift": shift,
        "scale": scale,
        "noise": own,
        "noise_freedom": freedom,
        "width": (square / expected) ** 0.5 if square > 0 and expected > 0 else 1.0,
        "points": len(means),
        "measurements": len(measured.y),
        "out_of_fold_rmse": square**0.5 * scale if bool(tested.any()) else None,
        "mean_epistemic": float(epistemic.mean()) * scale**2,
        "mean_square_bias": float(bias.mean()) * scale**2,
        "aleatoric": variance,
        "batch_variance": shared,
        "strategy": strategy.name,
    }
    return Model(x, fitted, cobias, info)
