"""The paper's F_k (Appendix A): K small networks, each trained on the folds of the data but one."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from aicau.core import checks, streams
from aicau.core.errors import InputError, TrainingError
from aicau.core.runs import OfRuns
from aicau.core.streams import Purpose
from aicau.core.task import REGRESSION, Task
from aicau.ensembles import gradients, kernels
from aicau.ensembles.base import check_rows, fold_membership, one_hot
from aicau.ensembles.kernels import MLPSettings

HEADS = {"regression": "squared", "classification": "softmax", "count": "poisson"}


@dataclass(frozen=True)
class FittedMLP(OfRuns):
    common: ClassVar[tuple[str, ...]] = ("settings",)
    parameters: Tensor  # (..., K, P)
    unseen: Tensor  # (..., K, l)
    epochs: Tensor  # (..., K)
    settings: MLPSettings

    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n); (..., K, n, c) for classes
        """Every member at every point."""
        lead = self.parameters.shape[:-2]
        points = x if x.ndim == 2 else x.expand(*lead, *x.shape[-2:])
        flat = self.parameters.reshape(-1, *self.parameters.shape[-2:])
        out = kernels.mlp_forward(flat, points.reshape(-1, *x.shape[-2:]).float(), self.settings)
        return out.reshape(*lead, *out.shape[1:])

    def layers(self, x: Tensor, members: int | None = None) -> list[gradients.Layer]:  # (n, d)
        """What the gradients of one run's networks (of all, or of the first ones) are made of, at every point."""
        own = self.parameters.reshape(-1, *self.parameters.shape[-2:])[0, :members]
        return gradients.layers(own, x, self.settings)


@dataclass(frozen=True)
class MLP:
    """K multilayer perceptrons; the defaults are the paper's (Appendix A).

    Same layers, folds, optimiser and stopping rule for every task; only the loss and the last layer differ.

    Parameters
    ----------
    members : int
        K, the number of networks. Each is trained on all folds of the data but its own.
    settings : MLPSettings
        Layers and training.
    task : Task
        What is predicted: values, probabilities of classes (y are class numbers), or rates of counts.
    smoothing : float
        Classification only: the share of every label that is moved to the other classes. Without it networks that
        separate the classes grow ever more certain (docs/classification.md).

    Examples
    --------
    >>> import torch
    >>> from aicau import MLP, streams
    >>> x = torch.rand(1, 20, 2)
    >>> MLP(members=3).fit(x, x.sum(-1), streams.runs(0, 1)).predict(x[0]).shape
    torch.Size([1, 3, 20])
    """

    members: int = 5
    settings: MLPSettings = field(default_factory=MLPSettings)
    task: Task = REGRESSION
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        checks.positive(self.members, "members")
        if not 0 <= self.smoothing < 1:
            raise InputError(f"smoothing lies between 0 and 1; got {self.smoothing}")
        settings = replace(self.settings, head=HEADS[self.task.name], outputs=max(1, self.task.classes))
        object.__setattr__(self, "settings", settings)

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedMLP:  # (..., l, d), (..., l), (...)
        """Train all networks of all runs, each on the folds but its own; one random stream per run."""
        check_rows(x, y, keys)
        settings, targets = self.settings, y[..., None]  # (..., l, c) what the head is trained on
        mean = torch.ones_like(y[..., :1])  # of counts; 1 elsewhere
        if self.task.probabilities:
            targets = (1 - self.smoothing) * one_hot(y, self.task.classes) + self.smoothing / self.task.classes
        elif not self.task.squared:
            if bool((y < 0).any()):
                raise InputError(f"counts are not negative; the smallest is {float(y.min()):g}")
            # Networks learn the logarithm of the rate over the mean count: they start from the mean, whatever its size.
            mean = y.double().mean(-1, keepdim=True).clamp_min(0.5 / y.shape[-1])  # (..., 1); above 0 where all is 0
            targets = (y / mean)[..., None]
        if not bool(torch.isfinite(x).all() & torch.isfinite(targets).all()):
            raise InputError("an ensemble is fitted on finite numbers; x or y holds NaN or infinity")
        *lead, rows, outputs = targets.shape
        unseen = fold_membership(keys, self.members, x)
        start = initial_parameters(keys, self.members, x.shape[-1], settings)
        flat = targets.reshape(-1, rows, outputs)
        parameters, epochs, losses = kernels.train_mlp(
            x.reshape(-1, rows, x.shape[-1]),
            flat[..., 0] if settings.head == "squared" else flat,
            (~unseen).float().reshape(-1, self.members, rows),
            start.reshape(-1, *start.shape[-2:]),
            settings,
        )
        if not bool(torch.isfinite(losses).all()):
            raise TrainingError(
                f"training diverged: the loss is not finite with targets up to {float(targets.abs().max()):.3g};"
                " scale the target or the features"
            )
        parameters = parameters.reshape(*lead, self.members, -1)
        if settings.head == "poisson":
            parameters[..., -1] += mean.log().float()  # the last number is the bias of the output
        return FittedMLP(parameters, unseen, epochs.reshape(*lead, self.members), settings)


def initial_parameters(keys: Tensor, members: int, inputs: int, settings: MLPSettings) -> Tensor:  # (..., K, P)
    """Uniform in ±1/√(inputs of the layer), as torch.nn.Linear starts."""
    draws = streams.uniform(streams.fold(keys, Purpose.WEIGHTS), members, settings.parameters(inputs))
    scale = torch.cat([draws.new_full((o * (i + 1),), i**-0.5) for o, i in settings.layers(inputs)])
    return ((2 * draws - 1) * scale).float()
