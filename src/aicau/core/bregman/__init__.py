"""The bias-variance tradeoff under any Bregman divergence (paper Appendix C).

| symbol | name in code | shape | meaning |
|---|---|---|---|
| Y | `labels` | (..., r, c) | r replicated labels, vectors of c numbers (a class is a unit vector) |
| F | `predictions` | (..., K, c) | K members |
| φ, ∇φ | `function`, `gradient` | (..., c) -> (...), (..., c) | the convex function and its gradient |
| D[u‖v] | `divergence` | (...) | φ(u) − φ(v) − ⟨∇φ(v), u − v⟩ |
| F̄ | `dual_mean` | (..., c) | argmin_z E D[z‖F]: ∇φ(F̄) = E ∇φ(F) |

    E D[Y‖F]  =  E D[Y‖EY]  +  D[EY‖F̄]  +  E D[F̄‖F]
     total       aleatoric      bias        epistemic

The identity is exact on samples. Everything is computed in float64.

Zeros and infinities: 0·log 0 = 0 and D[0‖0] = 0. A member that gives 0 to what a label has makes `total` infinite, and
with it `bias` or `epistemic`; the identity then holds in the extended reals, and nothing is ever NaN. Where members
exclude every class between them no distribution is near to all (for `kl`): `epistemic` is infinite and the dual mean is
taken as uniform. Labels and predictions themselves must be finite.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aicau.core import checks
from aicau.core.bregman.divergences import (
    DIVERGENCES,
    ITAKURA_SAITO,
    KL,
    POISSON,
    SQUARED,
    Divergence,
    custom,
    mahalanobis,
    make,
    solve,
)
from aicau.core.errors import InputError

TOLERANCE = 1e-6  # by which probabilities may miss a sum of 1


@dataclass(frozen=True)
class Decomposition:
    """E D[Y‖F] and its three parts."""

    total: Tensor  # (...), like all
    aleatoric: Tensor
    bias: Tensor
    epistemic: Tensor


def check(d: Divergence, values: Any, what: str) -> Tensor:  # (..., c) float64
    """Check that the divergence is defined for these vectors."""
    v = checks.numbers(values, what)
    if v.ndim == 0 or v.shape[-1] == 0:
        raise InputError(f"{what} must have shape (..., c); got {tuple(v.shape)}")
    if d.width is not None and v.shape[-1] != d.width:
        raise InputError(f"{what} must have {d.width} entries each for this {d.name} divergence; got {v.shape[-1]}")
    if d.least is not None and bool((v < d.least).any()):
        raise InputError(f"{what} must not be below {d.least:g} for {d.name}; the smallest is {float(v.min()):g}")
    if d.simplex and bool(((v.sum(-1) - 1).abs() > TOLERANCE).any()):
        off = v.sum(-1).flatten()
        worst = float(off[(off - 1).abs().argmax()])
        raise InputError(f"{what} must be probabilities that add up to 1 for {d.name}; some add up to {worst:g}")
    return v


def between(d: Divergence, u: Tensor, v: Tensor) -> Tensor:  # (..., c) twice -> (...)
    """D[u‖v] of values already checked."""
    if d.between is not None:
        return d.between(u, v)
    return d.function(u) - d.function(v) - (d.gradient(v) * (u - v)).sum(-1)


def divergence(name: str | Divergence, u: Any, v: Any) -> Tensor:  # (..., c) twice -> (...)
    """D[u‖v]."""
    d = make(name)
    first, second = check(d, u, "the first argument"), check(d, v, "the second argument")
    if first.shape[-1] != second.shape[-1]:
        raise InputError(f"vectors of {first.shape[-1]} and of {second.shape[-1]} entries cannot be compared")
    return between(d, first, second)


def dual_mean(name: str | Divergence, predictions: Any) -> Tensor:  # (..., K, c) -> (..., c)
    """F̄: for `kl` the softmax of the mean log probability, for `squared` the mean."""
    d = make(name)
    return mean_of(d, _members(d, predictions, "predictions", "K"))


def mean_of(d: Divergence, members: Tensor) -> Tensor:  # (..., K, c) -> (..., c)
    """The dual mean of values already checked; members are added one after another (see `decomposition.mean`)."""
    total = d.gradient(members[..., 0, :])
    for k in range(1, members.shape[-2]):
        total = total + d.gradient(members[..., k, :])
    mean = total / members.shape[-2]
    return d.inverse(mean) if d.inverse is not None else solve(d, mean, members.mean(-2))


def decompose(name: str | Divergence, labels: Any, predictions: Any) -> Decomposition:  # (..., r, c), (..., K, c)
    """The mean of D[Y‖F] over all pairs of a label and a member, and its three parts."""
    d = make(name)
    y, f = _members(d, labels, "labels", "r"), _members(d, predictions, "predictions", "K")
    if y.shape[-1] != f.shape[-1]:
        raise InputError(f"labels have {y.shape[-1]} entries each and predictions {f.shape[-1]}; they must agree")
    try:
        torch.broadcast_shapes(y.shape[:-2], f.shape[:-2])
    except RuntimeError as error:
        shapes = tuple(y.shape), tuple(f.shape)
        raise InputError(f"leading dimensions of labels and predictions do not match: {shapes}") from error
    centre, middle = y.mean(-2), mean_of(d, f)
    total = between(d, y[..., :, None, :], f[..., None, :, :]).mean((-1, -2))
    lead = total.shape
    return Decomposition(
        total,
        between(d, y, centre[..., None, :]).mean(-1).expand(lead),
        between(d, centre, middle).expand(lead),
        epistemic_of(d, f, middle).expand(lead),
    )


def epistemic_of(d: Divergence, members: Tensor, middle: Tensor) -> Tensor:  # (..., K, c), (..., c) -> (...)
    """E D[F̄‖F] of values already checked."""
    return between(d, middle[..., None, :], members).mean(-1)


def epistemic(name: str | Divergence, predictions: Any) -> Tensor:  # (..., K, c) -> (...)
    """E D[F̄‖F]: how much the members disagree."""
    d = make(name)
    members = _members(d, predictions, "predictions", "K")
    return epistemic_of(d, members, mean_of(d, members))


def _members(d: Divergence, values: Any, what: str, count: str) -> Tensor:
    v = check(d, values, what)
    if v.ndim < 2 or v.shape[-2] == 0:
        raise InputError(f"{what} must have shape (..., {count}, c) with {count} at least 1; got {tuple(v.shape)}")
    return v
