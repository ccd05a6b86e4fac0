"""The bias E D[p‖F̄] and the epistemic term E D[F̄‖F] of any divergence over the pool, with their matrices.

With the estimate p̂ of E Y (`Belief`) and its variance v the bias is D[p̂‖F̄] + (E φ(p) − φ(p̂)). The second part comes
from what is unknown of p: exact for a Beta (`kl`) or Gamma (`poisson`) distribution with these moments, else ½ v φ″.

A divergence that is not symmetric has no cobias matrix. Two forms have one: `brier` (the squared divergence of the
probabilities: Ω is a sum over classes) and `symmetric` (D[p‖F̄] + D[F̄‖p]: the products of differences in the primal and
in the dual space, Σ_c ½(a_c b_cᵀ + b_c a_cᵀ)).
"""

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.core import bregman, decomposition
from aicau.core.bregman import Divergence
from aicau.core.omega import Omega
from aicau.core.runs import by_run

FORMS = ("brier", "symmetric")
Form = str | Divergence | None  # None: the divergence of the task
LEAST = 1e-6  # least entry in the symmetric form, where a 0 would make everything infinite


def behind(view: View, form: Form) -> Divergence:
    """The divergence of a form."""
    if form is None or form == "symmetric":
        return bregman.make(view.task.divergence)
    return bregman.SQUARED if form == "brier" else bregman.make(form)


def bias(view: View, form: Form = None) -> Score:
    """E D[p‖F̄] over the pool, with its matrix where the form has one; for values δ², with Δ̂."""
    if view.belief is None:
        assert view.cobias is not None
        return Score.of(view.cobias)
    d, belief = behind(view, form), view.belief

    def parts(predictions: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        centre = bregman.mean_of(d, view.task.members(predictions))
        gap = unknown(d, mean, variance)
        if form == "symmetric":
            return *differences(d, mean, centre), 2 * gap
        return bregman.between(d, mean, centre) + gap, mean - centre, gap

    first, second, gap = by_run(parts, view.members, belief.mean, belief.variance())
    if form == "symmetric":
        return Score.of(symmetric(first, second, gap))
    if d is not bregman.SQUARED:
        return Score(first, note=no_matrix(d))
    columns = [second]
    if belief.factor is not None:  # (..., c, n, r): one block of columns per class
        columns += list(belief.factor.unbind(-3))
    extra = None if belief.rest is None else belief.rest.sum(-1).float()
    return Score.of(Omega(torch.cat(columns, -1).float(), None, extra))


def epistemic(view: View, form: Form = None) -> Score:
    """E D[F̄‖F] over the pool, with its matrix where the form has one; for values σ²_F, with Σ_F."""
    if form is None and view.task.squared:
        return Score.of(decomposition.covariance(view.members))
    d = behind(view, form)

    def parts(predictions: Tensor) -> tuple[Tensor, ...]:
        own = view.task.members(predictions)  # (..., n, K, c)
        centre = bregman.mean_of(d, own)
        if form == "symmetric":
            return tuple(part.flatten(-2) / own.shape[-2] ** 0.5 for part in differences(d, own, centre[..., None, :]))
        apart = (own - centre[..., None, :]).flatten(-2) / own.shape[-2] ** 0.5
        return bregman.epistemic_of(d, own, centre), apart

    first, second = by_run(parts, view.members)
    if form == "symmetric":
        return Score.of(symmetric(first, second))
    return Score.of(Omega(second.float())) if d is bregman.SQUARED else Score(first, note=no_matrix(d))


def pemse(view: View, form: Form = None) -> Score:
    """E D[F̄‖F] + E D[p‖F̄] over the pool; for values σ²_F + δ²."""
    return epistemic(view, None if view.belief is None else form) + bias(view, form)


def unknown(d: Divergence, mean: Tensor, variance: Tensor) -> Tensor:  # (..., n, c) twice -> (..., n)
    """E φ(p) − φ(p̂), the part of the divergence that comes from what is unknown of p."""
    there = (variance > 0) & ((mean > 0) if d.least is not None else True)
    m, v = torch.where(there, mean, 0.5), torch.where(there, variance, 0.125)
    if d is bregman.SQUARED:
        gap = v
    elif d is bregman.KL:  # p ~ Beta(m s, (1 − m) s): E p log p = m (ψ(m s + 1) − ψ(s + 1))
        s = (m * (1 - m) / v - 1).clamp_min(1e-9)
        gap = m * (torch.digamma(m * s + 1) - torch.digamma(s + 1) - m.log())
    elif d is bregman.POISSON:  # p ~ Gamma of shape a: E p log p = m (ψ(a + 1) − log a + log m)
        a = m**2 / v
        gap = m * (torch.digamma(a + 1) - a.log())
    else:
        hessian = torch.func.vmap(torch.func.jacrev(d.gradient))(m.reshape(-1, m.shape[-1]))
        gap = 0.5 * v * hessian.diagonal(dim1=-2, dim2=-1).reshape(m.shape)
    return torch.where(there, gap, 0.0).sum(-1)


def differences(d: Divergence, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:  # (..., c) each
    """u − v and ∇φ(u) − ∇φ(v): their inner product is D[u‖v] + D[v‖u]."""
    if d.least is not None:
        u, v = u.clamp_min(LEAST), v.clamp_min(LEAST)
    return u - v, d.gradient(u) - d.gradient(v)


def symmetric(primal: Tensor, dual: Tensor, extra: Tensor | None = None) -> Omega:  # (..., n, r) twice
    """½(abᵀ + baᵀ) summed over columns, as squares: ¼(a + b)(a + b)ᵀ − ¼(a − b)(a − b)ᵀ."""
    factor = torch.cat([primal + dual, primal - dual], -1) / 2
    signs = factor.new_ones(factor.shape[-1])
    signs[primal.shape[-1] :] = -1
    return Omega(factor.float(), signs, None if extra is None else extra.float())


def no_matrix(d: Divergence) -> str:
    return (
        f"the {d.name} divergence is not symmetric, so it has no cobias matrix; use top or spread batching, or a"
        " form that has one: br:posterior:eigen:brier, br:posterior:eigen:symmetric"
    )
