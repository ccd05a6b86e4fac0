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

The identity is exact on samples. Everything is computed in float64. Dual means have a closed form where
the divergence gives one (`inverse`), else a solver finds them.

0·log 0 = 0 and D[0‖0] = 0. If a member gives probability 0 to a label that occurs, `total` is infinite, and with it
`bias` or `epistemic`; nothing is ever NaN. If members exclude every class between them (`kl`), `epistemic` is infinite
and the dual mean is uniform. Labels and predictions must be finite.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aicau.core import checks
from aicau.core.errors import InputError, TrainingError, unknown

Function = Callable[[Tensor], Tensor]
STEPS, SMALL = 200, 1e-14  # most steps of `solve`, and the relative error of the gradient at which it stops
TOLERANCE = 1e-6  # how far a sum of probabilities may be from 1


@dataclass(frozen=True)
class Divergence:
    """A convex function with its gradient; `inverse` and `between` are closed forms, used where they are given."""

    name: str
    function: Function  # (..., c) -> (...)
    gradient: Function  # (..., c) -> (..., c)
    inverse: Function | None = None  # (..., c) mean of gradients -> (..., c) dual mean
    between: Callable[[Tensor, Tensor], Tensor] | None = None  # D[u‖v] without cancellation, zeros included
    least: float | None = None  # entries must not be below
    simplex: bool = False  # entries are probabilities
    width: int | None = None  # c, where only one will do


def _ratio_log(u: Tensor, v: Tensor) -> Tensor:
    """u·log(u/v) entry by entry, with 0·log 0 = 0; infinite where only v is 0."""
    safe = torch.where(u > 0, u, 1.0)
    return torch.where(u > 0, u * (safe.log() - v.log()), 0.0)


def _itakura_saito(u: Tensor, v: Tensor) -> Tensor:
    """Σ u/v − log(u/v) − 1; infinite where one of the two is 0."""
    inside = (u > 0) & (v > 0)
    ratio = torch.where(inside, u, 1.0) / torch.where(inside, v, 1.0)
    return torch.where(inside, ratio - ratio.log() - 1, torch.where(u == v, 0.0, torch.inf)).sum(-1)


def _softmax(mean: Tensor) -> Tensor:
    """The dual mean on the simplex; uniform where every class was excluded by a member."""
    none = torch.isneginf(mean).all(-1, keepdim=True)
    return torch.softmax(torch.where(none, 0.0, mean), -1)


def _entropy(v: Tensor) -> Tensor:
    return torch.special.xlogy(v, v).sum(-1)


SQUARED = Divergence(
    "squared", lambda v: (v**2).sum(-1), lambda v: 2 * v, lambda g: g / 2, lambda u, v: ((u - v) ** 2).sum(-1)
)
KL = Divergence(
    "kl",
    _entropy,
    lambda v: v.log(),  # up to a constant, which the simplex does not see
    _softmax,
    lambda u, v: _ratio_log(u, v).sum(-1),
    least=0.0,
    simplex=True,
)
POISSON = Divergence(
    "poisson",
    lambda v: _entropy(v) - v.sum(-1),
    lambda v: v.log(),
    lambda g: g.exp(),
    lambda u, v: (_ratio_log(u, v) - u + v).sum(-1),
    least=0.0,
)
ITAKURA_SAITO = Divergence(
    "itakura-saito", lambda v: -v.log().sum(-1), lambda v: -1 / v, lambda g: -1 / g, _itakura_saito, least=0.0
)


def mahalanobis(matrix: Any) -> Divergence:  # (c, c)
    """(u − v)ᵀM(u − v) with M symmetric and positive definite."""
    m = checks.numbers(matrix, "the matrix")
    if m.ndim != 2 or m.shape[0] != m.shape[1] or not torch.allclose(m, m.mT, atol=1e-8 * float(m.abs().max())):
        raise InputError(f"a Mahalanobis divergence needs a symmetric matrix (c, c); got shape {tuple(m.shape)}")
    if bool(torch.linalg.cholesky_ex(m).info):
        raise InputError("the matrix of a Mahalanobis divergence must be positive definite")

    def square(v: Tensor) -> Tensor:
        return ((v @ m) * v).sum(-1)

    inverse = torch.linalg.inv(2 * m)
    return Divergence(
        "mahalanobis", square, lambda v: 2 * v @ m, lambda g: g @ inverse, lambda u, v: square(u - v), width=m.shape[0]
    )


def custom(function: Function, gradient: Function, name: str = "custom", least: float | None = None) -> Divergence:
    """A divergence from a strictly convex function (..., c) -> (...) and its gradient, on all of ℝᶜ or above `least`.

    Dual means come from a damped Newton method, which needs a gradient that PyTorch can differentiate.
    """
    return Divergence(name, function, gradient, least=least)


_NAMED = {d.name: d for d in (SQUARED, KL, POISSON, ITAKURA_SAITO)}
DIVERGENCES = (*_NAMED, "mahalanobis")


def make(name: str | Divergence, matrix: Any = None) -> Divergence:
    """A divergence by its name; `mahalanobis` without a matrix has the identity and is `squared`."""
    if isinstance(name, Divergence):
        return name
    if name == "mahalanobis":
        return SQUARED if matrix is None else mahalanobis(matrix)
    if name not in _NAMED:
        raise unknown("divergence", name, list(DIVERGENCES))
    return _NAMED[name]


def solve(d: Divergence, target: Tensor, start: Tensor) -> Tensor:  # (..., c) twice -> (..., c)
    """z with ∇φ(z) = target: damped Newton on the convex φ(z) − ⟨target, z⟩, all points at once."""
    z, goal = start.reshape(-1, start.shape[-1]).clone(), target.reshape(-1, start.shape[-1])
    hessian = torch.func.vmap(torch.func.jacrev(d.gradient))
    eye = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)

    def height(at: Tensor) -> Tensor:  # infinite outside the domain
        value = d.function(at) - (goal * at).sum(-1)
        inside = torch.isfinite(value) & torch.isfinite(d.gradient(at)).all(-1)
        if d.least is not None:
            inside &= (at >= d.least).all(-1)
        return torch.where(inside, value, torch.inf)

    def miss(at: Tensor) -> Tensor:
        return (d.gradient(at) - goal).abs().amax(-1)

    size_of_goal = 1 + goal.abs().amax(-1)
    for _ in range(STEPS):
        left = miss(z)
        if bool((left <= SMALL * size_of_goal).all()):
            break
        curve = hessian(z)
        ridge = 1e-14 * curve.diagonal(dim1=-2, dim2=-1).sum(-1) + torch.finfo(z.dtype).tiny
        step = torch.linalg.solve(curve + ridge[..., None, None] * eye, d.gradient(z) - goal)
        size = torch.ones_like(left)
        now = height(z)
        rounding = 1e-15 * (d.function(z).abs() + (goal * z).abs().sum(-1))  # their difference may be far smaller
        for _ in range(60):  # halve while the function does not fall; at rounding the gradient decides
            moved = z - size[..., None] * step
            high = height(moved)
            fine = (high < now) | ((high <= now + rounding) & (miss(moved) < left))
            if bool(fine.all()):
                break
            size = torch.where(fine, size, size / 2)
        better = fine[..., None] & torch.isfinite(moved)
        if not bool(better.any()):
            break
        z = torch.where(better, moved, z)
    if bool((miss(z) > 1e-9 * size_of_goal).any()):
        raise TrainingError(f"no dual mean was found for {d.name}: is its function strictly convex?")
    return z.reshape(start.shape)


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
        sums = v.sum(-1).flatten()
        worst = float(sums[(sums - 1).abs().argmax()])
        raise InputError(f"{what} must be probabilities that add up to 1 for {d.name}; some add up to {worst:g}")
    return v


def _members(d: Divergence, values: Any, what: str, count: str) -> Tensor:  # (..., count, c) float64
    v = check(d, values, what)
    if v.ndim < 2 or v.shape[-2] == 0:
        raise InputError(f"{what} must have shape (..., {count}, c) with {count} at least 1; got {tuple(v.shape)}")
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
    mean = functools.reduce(torch.add, map(d.gradient, members.unbind(-2))) / members.shape[-2]
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
