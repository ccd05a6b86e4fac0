"""The fitted round of a campaign: computed by `aicau.round`, carried through a store as tensors and JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aicau import ensembles
from aicau.bias import Posterior
from aicau.campaign.rows import Told
from aicau.campaign.setup import ALONE, COMBINED
from aicau.core.observations import Observations
from aicau.ensembles.base import predicted
from aicau.ensembles.kernels import MLPSettings
from aicau.ensembles.mlp import FittedMLP
from aicau.prediction import Figures, Prediction, Predictor, State, outcome
from aicau.prediction.logarithm import LogPrediction
from aicau.prediction.regression import ValuePrediction, ValuePredictor
from aicau.round import Round
from aicau.strategy import Strategy

FORMAT = 5  # of `state`; models of earlier formats are fitted again
UNITS = ("shift", "scale", "shared")
ROWS = ("index", "y", "batch")
WEIGHTS = ("parameters", "unseen", "epochs")


@dataclass(frozen=True)
class Model:
    """A fitted round of one campaign."""

    how: Round
    state: State
    predictor: Predictor
    labels: tuple[str, ...]
    basis: int  # tells behind it
    log: bool  # everything is of ln y

    @property
    def figures(self) -> Figures:
        """What a report says of it."""
        return self.predictor.figures

    def predict(self, index: Any = None) -> Prediction:
        """All candidates or some, in the target's own units."""
        said = self.predictor.predict(self.state, None if index is None else torch.as_tensor(index))
        return LogPrediction(said) if self.log and isinstance(said, ValuePrediction) else said

    def columns(self, span: tuple[int, int]) -> dict[str, Any]:
        """What is predicted of the candidates from one number to before another; an engine computes it anywhere."""
        return self.predict(np.arange(*span)).columns()

    def pack(self) -> tuple[dict[str, Tensor], str]:
        """Tensors for safetensors, and the rest as JSON."""
        state = self.state
        fitted = state.fitted
        assert isinstance(fitted, FittedMLP)
        tensors = {name: getattr(fitted, name) for name in WEIGHTS}
        tensors |= {f"rows.{name}": getattr(state.observations, name) for name in ROWS}
        tensors |= {f"units.{name}": getattr(state, name) for name in UNITS} | {"keys": state.keys}
        tensors |= {f"predictor.{name}": part for name, part in self.predictor.tensors().items()}
        words = {
            "format": FORMAT,
            "ensemble": COMBINED if self.how.combine else ALONE,
            "settings": asdict(fitted.settings),
            "labels": list(self.labels),
            "basis": self.basis,
            "figures": self.figures.to_json(),
            "predictor": self.predictor.words(),
        }
        kept = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
        return kept, json.dumps(words, sort_keys=True, allow_nan=False)


def fit(
    x: Tensor,  # (n, d) standardised
    told: Told,
    keys: Tensor,  # (1,) of this round
    strategy: Strategy,
    task: str,
    ensemble: str,
    basis: int,
    log: bool = False,
) -> Model:
    """The round of a campaign after its measurements; `log`: they are of ln y."""
    what = outcome(task).task(told.labels)
    how = Round(ensembles.make(task=what), what, combine=ensemble == COMBINED)
    state = how.fit(x, told.observations, keys, told.controls)
    predictor = how.predictor(state, strategy.bias, told.labels)
    return Model(how, state, predictor, told.labels, basis, log)


def unpack(
    tensors: dict[str, Tensor], words: str, x: Tensor, strategy: Strategy, task: str, log: bool = False
) -> Model | None:
    """What `pack` gave, over the same pool; None where it was kept by an earlier version."""
    kept = json.loads(words)
    if kept.get("format") != FORMAT:
        return None
    what = outcome(task)
    own = what.task(kept["labels"])
    how = Round(ensembles.make(task=own), own, combine=kept["ensemble"] == COMBINED)
    settings = kept["settings"] | {name: tuple(kept["settings"][name]) for name in ("hidden", "betas")}
    parameters, unseen, epochs = (tensors[name] for name in WEIGHTS)
    fitted = FittedMLP(parameters, unseen, epochs, MLPSettings(**settings))
    predictions = predicted(fitted, x, 1)
    index, y, batch = (tensors[f"rows.{name}"] for name in ROWS)
    rows = Observations(index, y, torch.zeros_like(index[0]), batch)
    shift, scale, shared = (tensors[f"units.{name}"] for name in UNITS)
    state = State(own, x, rows, fitted, predictions, tensors["keys"], shift, scale, shared)
    parts = {name.removeprefix("predictor."): t for name, t in tensors.items() if name.startswith("predictor.")}
    predictor = what.predictor.load(parts, kept["predictor"], Figures.from_json(kept["figures"]))
    if isinstance(strategy.bias, Posterior) and isinstance(predictor, ValuePredictor):
        state.memo[strategy.bias] = predictor.correction  # it was fitted by this very estimator
    return Model(how, state, predictor, tuple(kept["labels"]), kept["basis"], log)
