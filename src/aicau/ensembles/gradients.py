"""Gradients of the networks of F_k by their weights, φ(x) = ∂f_k/∂w(x)/√K: how a measurement moves all predictions.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| h | `inputs` | (K, n, in + 1) | what a layer sees, a one behind it for the bias |
| δ | `errors` | (K, n, out) | derivative of the output by what the layer gives |
| φ·φ' | `between` | (n, m) | the kernel of the gradients: Σ over layers of (h·h')(δ·δ'), mean over members |

The gradient by a layer's weights is the outer product δ hᵀ, so it is never written out.
"""

import torch
from torch import Tensor

from aicau.ensembles.kernels import MLPSettings

ROWS = 512  # at a time: what is multiplied then stays in the cache, which is three times faster
Layer = tuple[Tensor, Tensor]  # inputs (K, n, in + 1), errors (K, n, out)


def layers(
    parameters: Tensor,  # (K, P)
    x: Tensor,  # (n, d)
    settings: MLPSettings,
) -> list[Layer]:
    """Forward and backward through every network at every point; the output of a network is its last layer."""
    h = x.to(parameters).expand(parameters.shape[0], *x.shape)
    blocks, inputs = [], []
    at = 0
    for o, i in settings.layers(x.shape[-1]):
        block = parameters[:, at : at + o * (i + 1)].unflatten(-1, (o, i + 1))
        at += o * (i + 1)
        blocks.append(block)
        inputs.append(torch.cat([h, torch.ones_like(h[..., :1])], -1))
        h = (inputs[-1] @ block.mT).relu()
    error = torch.ones_like(h)  # of the output, which no relu follows
    errors = [error]
    for block, seen in zip(reversed(blocks[1:]), reversed(inputs[1:]), strict=True):
        error = (error @ block[..., :-1]) * (seen[..., :-1] > 0)
        errors.append(error)
    return list(zip(inputs, reversed(errors), strict=True))


def between(a: list[Layer], b: list[Layer]) -> Tensor:  # (n, m)
    """φ·φ' of the points of a with those of b."""
    total = a[0][0].new_zeros(a[0][0].shape[-2], b[0][0].shape[-2])
    for start in range(0, len(total), ROWS):
        rows, some = slice(start, start + ROWS), total[start : start + ROWS]
        for (h, error), (h_b, error_b) in zip(a, b, strict=True):
            for k in range(len(h)):
                some.addcmul_(h[k, rows] @ h_b[k].mT, error[k, rows] @ error_b[k].mT)
    return total.div_(len(a[0][0]))


def squares(a: list[Layer]) -> Tensor:  # (n,)
    """φ·φ of every point."""
    return torch.stack([((h**2).sum(-1) * (error**2).sum(-1)).mean(0) for h, error in a]).sum(0)
