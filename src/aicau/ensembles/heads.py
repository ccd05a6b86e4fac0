"""The paper's networks with another head: probabilities of classes, rates of counts.

Same layers, folds, optimiser and stopping rule as F_k; only the loss and the last layer differ. Why the labels are
smoothed is measured in docs/classification.md.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from aicau.core import checks
from aicau.core.errors import InputError
from aicau.ensembles.base import check_rows
from aicau.ensembles.kernels import MLPSettings
from aicau.ensembles.mlp import FittedMLP, train


@dataclass(frozen=True)
class MLPClassifier:
    """K softmax networks; y are class numbers 0 … classes − 1, predictions are probabilities (..., K, n, classes).

    `smoothing` s moves a share s of every label to the other classes: without it, networks that separate the classes
    grow ever more certain.
    """

    classes: int = 2
    members: int = 5
    settings: MLPSettings = field(default_factory=MLPSettings)
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        checks.positive(self.classes, "classes", 2)
        checks.positive(self.members, "members")
        if not 0 <= self.smoothing < 1:
            raise InputError(f"smoothing lies between 0 and 1; got {self.smoothing}")

    def fit(
        self,
        x: Tensor,  # (..., l, d)
        y: Tensor,  # (..., l) class numbers
        keys: Tensor,  # (...)
    ) -> FittedMLP:
        check_rows(x, y, keys)
        return self.fit_shares(x, one_hot(y, self.classes), keys)

    def fit_shares(
        self,
        x: Tensor,  # (..., l, d)
        shares: Tensor,  # (..., l, classes) of each class among the labels of a point
        keys: Tensor,  # (...)
    ) -> FittedMLP:
        """On replicated labels: one row per point, so that a fold holds all labels of a point or none."""
        targets = (1 - self.smoothing) * shares + self.smoothing / self.classes
        settings = replace(self.settings, head="softmax", outputs=self.classes)
        return train(x, targets, keys, self.members, settings)


@dataclass(frozen=True)
class MLPCounts:
    """K networks for counts: y are not negative, predictions are rates (..., K, n) trained by the Poisson loss.

    Networks learn the logarithm of the rate over the mean count of their run, so they start from the mean, whatever
    its size.
    """

    members: int = 5
    settings: MLPSettings = field(default_factory=MLPSettings)

    def __post_init__(self) -> None:
        checks.positive(self.members, "members")

    def fit(
        self,
        x: Tensor,  # (..., l, d)
        y: Tensor,  # (..., l) counts
        keys: Tensor,  # (...)
    ) -> FittedMLP:
        check_rows(x, y, keys)
        if bool((y < 0).any()):
            raise InputError(f"counts are not negative; the smallest is {float(y.min()):g}")
        mean = y.double().mean(-1, keepdim=True).clamp_min(0.5 / y.shape[-1])  # (..., 1); above 0 where all is 0
        settings = replace(self.settings, head="poisson", outputs=1)
        fitted = train(x, (y / mean)[..., None], keys, self.members, settings)
        parameters = fitted.parameters.clone()
        parameters[..., -1] += mean.log().float()  # the last number is the bias of the output
        return replace(fitted, parameters=parameters)


def one_hot(y: Tensor, classes: int) -> Tensor:  # (..., l) -> (..., l, classes) float64
    """Class numbers as unit vectors, or one sentence about a number that is no class."""
    codes = y.long()
    wrong = (codes != y) | (codes < 0) | (codes >= classes)  # NaN differs from every number
    if bool(wrong.any()):
        bad = float(y[wrong][0])
        raise InputError(f"labels are whole numbers from 0 to {classes - 1}, one per class; got {bad:g}")
    return torch.nn.functional.one_hot(codes, classes).double()
