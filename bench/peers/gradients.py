"""A sketch of the gradient features of the networks of F_k (aicau.ensembles.gradients).

| symbol | name in code | shape | meaning |
|---|---|---|---|
| φ | | (n, K·P) | the features themselves |
| Sφ | `sketch` | (n, width) | a random projection with E[(Sφ)·(Sφ')] = φ·φ' |

The gradient by a layer's weights is the outer product δ hᵀ, so it is never written out: its projection on a product of
two Gaussian vectors is a product of two projections. This is also how bmdal_reg sketches gradients of linear layers.
"""

import torch
from torch import Tensor

from aicau.core import streams
from aicau.ensembles.gradients import Layer, layers
from aicau.ensembles.kernels import MLPSettings


def each(parameters: Tensor, x: Tensor, settings: MLPSettings) -> list[Layer]:  # (K, P), (n, d)
    """Inputs and errors of every layer, for every member."""
    members = len(parameters)
    return [
        (seen.expand(members, -1, -1), error.expand(members, -1, -1)) for seen, error in layers(parameters, x, settings)
    ]


def sketch(
    parameters: Tensor,  # (K, P)
    x: Tensor,  # (n, d)
    settings: MLPSettings,
    key: Tensor,  # ()
    width: int = 512,
) -> Tensor:  # (n, width) float64
    """Sφ, linear in n: no more than a few rows of `width` numbers per point are in memory."""
    total = torch.zeros(x.shape[0], width, dtype=torch.double, device=x.device)
    for depth, (seen, error) in enumerate(each(parameters, x, settings)):
        left, right = projections(streams.fold(key, depth), seen, error, width)
        for member in range(parameters.shape[0]):
            total += (seen[member] @ left[member]) * (error[member] @ right[member])
    return total / (parameters.shape[0] * width) ** 0.5


def projections(key: Tensor, seen: Tensor, error: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The Gaussian vectors of a layer: (K, in + 1, width) and (K, out, width)."""
    members, ins, outs = seen.shape[0], seen.shape[-1], error.shape[-1]
    both = streams.normal(key, members, ins + outs, width).to(seen)
    return both[:, :ins], both[:, ins:]
