"""The bias-variance and cobias-covariance tradeoffs (paper Eqs. bvt and cbvt, Appendices B and D).

| symbol | name in code | shape | meaning |
|---|---|---|---|
| F_k | `predictions` | (..., K, n) | K members on n points |
| μ_F, σ²_F | `mean`, `epistemic` | (..., n) | mean and variance over members (divisor K) |
| δ_k | `bias` | (..., n) | μ_F − μ_Y |
| σ²_Y | `aleatoric` | (..., n) | variance of a measurement |
| τ_k | `pemse` | (..., n) | σ²_F + δ² + σ²_Y |
| Σ_F, Δ, Ω | `covariance`, `cobias`, `Omega` | signed factors | the same between two points |
| κ | `difference` | like its argument | value at k−1 minus value at k |
"""

from typing import TypeVar

import torch
from torch import Tensor

from aicau.core.errors import InputError
from aicau.core.omega import Omega

T = TypeVar("T", Tensor, Omega)


def mean(predictions: Tensor) -> Tensor:  # (..., K, n) -> (..., n)
    """μ_F. Members are added one after another, so the result does not depend on how many runs stand beside it."""
    total = predictions[..., 0, :]
    for k in range(1, predictions.shape[-2]):
        total = total + predictions[..., k, :]
    return total / predictions.shape[-2]


def centred(predictions: Tensor) -> Tensor:  # (..., K, n) -> (..., n, K)
    """(f_k − μ_F)/√K as columns: the factor of Σ_F."""
    members = predictions.shape[-2]
    if members == 0:
        raise InputError("an ensemble needs at least one member; got none")
    return ((predictions - mean(predictions)[..., None, :]) / members**0.5).mT


def epistemic(predictions: Tensor) -> Tensor:  # (..., K, n) -> (..., n)
    """σ²_F."""
    return Omega(centred(predictions)).diagonal()


def covariance(predictions: Tensor) -> Omega:  # (..., K, n)
    """Σ_F, rank K − 1."""
    return Omega(centred(predictions))


def cobias(bias: Tensor) -> Omega:  # (..., n)
    """Δ = δδᵀ, rank 1."""
    return Omega(bias[..., None])


def pemse(
    predictions: Tensor,  # (..., K, n)
    bias: Tensor,  # (..., n)
    aleatoric: Tensor | float = 0.0,  # (..., n)
) -> Tensor:  # (..., n)
    """τ_k = σ²_F + δ² + σ²_Y (Eq. bvt)."""
    return epistemic(predictions) + bias**2 + aleatoric


def emse(pemse: Tensor) -> Tensor:  # (..., n) -> (...)
    """𝓛_k, the average of τ_k over the pool; equal to tr Ω / n."""
    return pemse.mean(-1)


def difference(previous: T, current: T) -> T:
    """κ: the value of round k−1 minus the value of round k, of numbers or of matrices."""
    return previous - current


def omega_bias_first(
    predictions: Tensor,  # (..., K, n)
    observed_mean: Tensor,  # (..., n)
    noise: Omega | None = None,
) -> Omega:
    """Appendix D.3, and what the method uses: Ω = Σ_F + δδᵀ (+ Σ_Y), δ = mean over members − mean over measurements."""
    omega = covariance(predictions) + cobias(mean(predictions) - observed_mean)
    return omega if noise is None else omega + noise


def omega_uncorrelated(
    predictions: Tensor,  # (K, n)
    draws: Tensor,  # (N, n), NaN where a draw does not exist
) -> Tensor:  # (n, n), NaN where a point was never drawn
    """Appendix D.1: draws at different points are independent, so every draw of x_i meets every draw of x_j.

    Off the diagonal the triple sum over members, draws of x_i and draws of x_j factorises through the means of the
    draws; on the diagonal the same draw stands on both sides and its spread adds σ²_Y.
    """
    seen = ~torch.isnan(draws)
    count = seen.sum(0)
    average = torch.where(seen, draws, 0.0).sum(0) / count  # 0/0 = NaN marks points never drawn
    residual = predictions - average
    omega = residual.mT @ residual / predictions.shape[0]
    spread = torch.where(seen, (draws - average) ** 2, 0.0).sum(0) / count
    return omega + torch.diag(torch.where(count > 0, spread, torch.nan))


def omega_together(
    predictions: Tensor,  # (K, n)
    draws: Tensor,  # (N, n), row r holds what was measured together in round r, NaN elsewhere
) -> Tensor:  # (n, n), NaN where a pair was never drawn together
    """Appendix D.2: only draws made together enter, so correlated noise shows in the off-diagonal entries."""
    seen = (~torch.isnan(draws)).to(predictions)
    values = torch.where(seen > 0, draws, 0.0)
    pairs = seen.mT @ seen  # N_ij
    total = seen.sum(0)
    if bool((total == 0).all()):
        raise InputError("no draw is finite, so Omega cannot be computed from data")
    members = predictions.shape[0]
    # Σ_k Σ_r (f_ki − y_ri)(f_kj − y_rj) over the rounds that hold both points, written with matrix products.
    model = predictions.mT @ predictions * pairs
    cross = predictions.sum(0)[:, None] * (seen.mT @ values)
    return (model - cross - cross.mT + members * values.mT @ values) / (members * pairs)
