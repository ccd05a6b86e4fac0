"""Gradients of the networks of F_k by their weights, φ(x) = ∂f_k/∂w(x)/√K: how a measurement moves all predictions.

The gradient by a layer's weights is the outer product δ hᵀ, so it is never written out: h (`inputs`) is what the layer
sees, with a one behind it for the bias, δ (`errors`) the derivative of the output by what the layer gives. The kernel
φ·φ' (`between`) is Σ over layers of (h·h')(δ·δ'), mean over members.
"""

import torch
from torch import Tensor

from aicau.ensembles.kernels import MLPSettings

ROWS = 512  # at a time on the CPU: what is multiplied then stays in the cache, which is three times faster
Layer = tuple[Tensor, Tensor]  # inputs (K, n, in + 1), errors (K, n, out); 1 for K where all members have the same


def layers(parameters: Tensor, x: Tensor, settings: MLPSettings) -> list[Layer]:  # (K, P), (n, d)
    """Forward and backward through every network at every point; the output of a network is its last layer."""
    x = x.to(parameters)
    seen = torch.cat([x, torch.ones_like(x[:, :1])], -1)[None]
    blocks, inputs = settings.blocks(parameters, x.shape[-1]), [seen]
    for block in blocks[:-1]:
        last = torch.zeros_like(block[:, :1])  # one more row hands the one behind the inputs on
        last[..., -1] = 1
        inputs.append((inputs[-1] @ torch.cat([block, last], 1).mT).relu_())
    error = seen.new_ones(1, len(x), blocks[-1].shape[1])  # of the output, which no relu follows
    errors = [error]
    for block, seen in zip(reversed(blocks[1:]), reversed(inputs[1:]), strict=True):
        error = (error @ block[..., :-1]).mul_(seen[..., :-1].sign())  # 1 where the relu lets through
        errors.append(error)
    return list(zip(inputs, reversed(errors), strict=True))


def between(a: list[Layer], b: list[Layer]) -> Tensor:  # (n, m)
    """φ·φ' of the points of a with those of b."""
    pairs = [(one, other) for x, y in zip(a, b, strict=True) for one, other in _products(x, y)]
    total = a[0][0].new_zeros(a[0][0].shape[-2], b[0][0].shape[-2])
    step = ROWS if total.device.type == "cpu" else max(1, len(total))
    for start in range(0, len(total), step):
        rows, some = slice(start, start + step), total[start : start + step]
        for (h, h_b), (error, error_b) in pairs:
            some.addcmul_(h[rows] @ h_b.mT, error[rows] @ error_b.mT)
    return total.div_(max(len(h) for h, _ in a))


def _products(a: Layer, b: Layer) -> list[tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]]:
    """Matrices whose products (h·h') and (δ·δ') are multiplied: by member, or in one where all share a factor."""
    if len(a[0]) > 1 and len(a[1]) > 1:
        return [((a[0][k], b[0][k]), (a[1][k], b[1][k])) for k in range(len(a[0]))]
    (h, h_b), (error, error_b) = (
        tuple(part.movedim(0, 1).flatten(1) for part in both) for both in zip(a, b, strict=True)
    )
    return [((h, h_b), (error, error_b))]


def squares(a: list[Layer]) -> Tensor:  # (n,)
    """φ·φ of every point."""
    count = max(len(h) for h, _ in a)
    return torch.stack([((h**2).sum(-1) * (error**2).sum(-1)).sum(0) for h, error in a]).sum(0) / count
