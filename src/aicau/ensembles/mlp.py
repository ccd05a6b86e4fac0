"""The paper's F_k (Appendix A): K small networks, each trained on the folds of the data but one."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from aicau.core import checks, streams
from aicau.core.errors import InputError, TrainingError
from aicau.core.streams import Purpose
from aicau.ensembles import kernels
from aicau.ensembles.base import check_rows, fold_membership
from aicau.ensembles.kernels import MLPSettings


@dataclass(frozen=True)
class FittedMLP:
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

    def __getitem__(self, run: int | slice | list[int]) -> "FittedMLP":
        """The ensembles of some runs (along the first leading dimension)."""
        return FittedMLP(self.parameters[run], self.unseen[run], self.epochs[run], self.settings)


@dataclass(frozen=True)
class MLP:
    """K multilayer perceptrons; the defaults are the paper's."""

    members: int = 5
    settings: MLPSettings = field(default_factory=MLPSettings)

    def __post_init__(self) -> None:
        checks.positive(self.members, "members")

    def fit(
        self,
        x: Tensor,  # (..., l, d)
        y: Tensor,  # (..., l)
        keys: Tensor,  # (...)
    ) -> FittedMLP:
        check_rows(x, y, keys)
        return train(x, y[..., None], keys, self.members, self.settings)


def train(
    x: Tensor,  # (..., l, d)
    targets: Tensor,  # (..., l, c) what the head is trained on
    keys: Tensor,  # (...)
    members: int,
    settings: MLPSettings,
) -> FittedMLP:
    """K networks of every run, each on the folds but its own."""
    if not bool(torch.isfinite(x).all() & torch.isfinite(targets).all()):
        raise InputError("an ensemble is fitted on finite numbers; x or y holds NaN or infinity")
    *lead, rows, outputs = targets.shape
    unseen = fold_membership(keys, members, rows)
    start = initial_parameters(keys, members, x.shape[-1], settings)
    y = targets.reshape(-1, rows, outputs)
    parameters, epochs, losses = kernels.train_mlp(
        x.reshape(-1, rows, x.shape[-1]),
        y[..., 0] if settings.head == "squared" else y,
        (~unseen).float().reshape(-1, members, rows),
        start.reshape(-1, *start.shape[-2:]),
        settings,
    )
    if not bool(torch.isfinite(losses).all()):
        raise TrainingError(
            f"training diverged: the loss is not finite with targets up to {float(targets.abs().max()):.3g};"
            " scale the target or the features"
        )
    shape = (*lead, members)
    return FittedMLP(parameters.reshape(*shape, -1), unseen, epochs.reshape(shape), settings)


def initial_parameters(keys: Tensor, members: int, inputs: int, settings: MLPSettings) -> Tensor:  # (..., K, P)
    """Uniform in ±1/√(inputs of the layer), as torch.nn.Linear starts."""
    draws = streams.uniform(streams.fold(keys, Purpose.WEIGHTS), members, settings.parameters(inputs))
    scale = torch.cat(
        [
            torch.full((o * (i + 1),), i**-0.5, dtype=draws.dtype, device=draws.device)
            for o, i in settings.layers(inputs)
        ]
    )
    return ((2 * draws - 1) * scale).float()
