"""Divergences by name: the convex function, its gradient, and closed forms where there are any; else a solver."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aicau.core import checks
from aicau.core.errors import InputError, TrainingError, unknown

Function = Callable[[Tensor], Tensor]
STEPS, SMALL = 200, 1e-14  # at most so many steps, until the gradient is met to this


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
    "squared",
    lambda v: (v**2).sum(-1),
    lambda v: 2 * v,
    lambda g: g / 2,
    lambda u, v: ((u - v) ** 2).sum(-1),
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
    "itakura-saito",
    lambda v: -v.log().sum(-1),
    lambda v: -1 / v,
    lambda g: -1 / g,
    _itakura_saito,
    least=0.0,
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
        "mahalanobis",
        square,
        lambda v: 2 * v @ m,
        lambda g: g @ inverse,
        lambda u, v: square(u - v),
        width=m.shape[0],
    )


def custom(function: Function, gradient: Function, name: str = "custom", least: float | None = None) -> Divergence:
    """One's own, from a strictly convex function (..., c) -> (...) and its gradient, on all of ℝᶜ or above `least`.

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

    near = SMALL * (1 + goal.abs().amax(-1))
    for _ in range(STEPS):
        left = miss(z)
        if bool((left <= near).all()):
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
    if bool((miss(z) > 1e-9 * (1 + goal.abs().amax(-1))).any()):
        raise TrainingError(f"no dual mean was found for {d.name}: is its function strictly convex?")
    return z.reshape(start.shape)
