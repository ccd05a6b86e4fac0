"""The bias-variance and cobias-covariance tradeoffs (paper Eqs. bvt and cbvt, Appendices B and D).

docs/notation.md has the symbols; the variance over members has the divisor K, so that both are identities on samples.
"""

import functools
from typing import TypeVar

import torch
from torch import Tensor

from aicau.core.errors import InputError
from aicau.core.omega import Omega
from aicau.core.pool import OnDemand

T = TypeVar("T", Tensor, Omega)


def mean(predictions: Tensor) -> Tensor:  # (..., K, n) -> (..., n)
    """μ_F. Members are added one after another, so the result does not depend on how many runs stand beside it."""
    if isinstance(predictions, OnDemand):
        return predictions.then(mean)
    return functools.reduce(torch.add, predictions.unbind(-2)) / predictions.shape[-2]


def covariance(predictions: Tensor) -> Omega:  # (..., K, n)
    """Σ_F, rank K − 1: its factor has (f_k − μ_F)/√K as columns."""
    members = predictions.shape[-2]
    if members == 0:
        raise InputError("an ensemble needs at least one member; got none")
    return Omega(((predictions - mean(predictions)[..., None, :]) / members**0.5).mT)


def epistemic(predictions: Tensor) -> Tensor:
    """σ²_F, how much the members disagree.

    Parameters
    ----------
    predictions : Tensor, shape (..., K, n)

    Returns
    -------
    Tensor, shape (..., n)

    Examples
    --------
    >>> import torch
    >>> from aicau import epistemic
    >>> epistemic(torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 2.0], [3.0, 2.0]]))
    tensor([1., 0.])
    """
    return covariance(predictions).diagonal()


def cobias(bias: Tensor) -> Omega:  # (..., n)
    """Δ = δδᵀ, rank 1."""
    return Omega(bias[..., None])


def pemse(predictions: Tensor, bias: Tensor, aleatoric: Tensor | float = 0.0) -> Tensor:
    """τ_k = σ²_F + δ² + σ²_Y (Eq. bvt), the expected squared error of a member at each point.

    Parameters
    ----------
    predictions : Tensor, shape (..., K, n)
    bias : Tensor, shape (..., n)
        δ_k = μ_F − μ_Y.
    aleatoric : Tensor or float
        σ²_Y.

    Returns
    -------
    Tensor, shape (..., n)

    Examples
    --------
    >>> import torch
    >>> from aicau import pemse
    >>> pemse(torch.tensor([[1.0], [3.0]]), torch.tensor([0.5]))
    tensor([1.2500])
    """
    return epistemic(predictions) + bias**2 + aleatoric


def spread_error(predictions: Tensor, noise: Tensor) -> Tensor:  # (..., K, n), (n,) or (..., n) -> (...)
    """Mean of (σ_F − σ_Y)², the paper's second aim (Figure 1): with the mean of δ² the squared Wasserstein distance."""
    return ((epistemic(predictions).sqrt() - noise.sqrt()) ** 2).mean(-1)


def emse(pemse: Tensor) -> Tensor:
    """𝓛_k, the average of τ_k over the pool; equal to tr Ω / n.

    Parameters
    ----------
    pemse : Tensor, shape (..., n)

    Returns
    -------
    Tensor, shape (...)

    Examples
    --------
    >>> import torch
    >>> from aicau import emse
    >>> emse(torch.tensor([1.0, 3.0]))
    tensor(2.)
    """
    return pemse.mean(-1)


def difference(previous: T, current: T) -> T:
    """κ: the value of round k−1 minus the value of round k, of numbers or of matrices.

    Parameters
    ----------
    previous, current : Tensor or Omega

    Returns
    -------
    Tensor or Omega

    Examples
    --------
    >>> import torch
    >>> from aicau import difference
    >>> difference(torch.tensor([3.0]), torch.tensor([1.0]))
    tensor([2.])
    """
    return previous - current


def omega_bias_first(predictions: Tensor, observed_mean: Tensor, noise: Omega | None = None) -> Omega:
    """Appendix D.3, and what the method uses: Ω = Σ_F + δδᵀ (+ Σ_Y), δ = mean over members − mean over measurements.

    Parameters
    ----------
    predictions : Tensor, shape (..., K, n)
    observed_mean : Tensor, shape (..., n)
    noise : Omega, optional
        Σ_Y.

    Returns
    -------
    Omega

    Examples
    --------
    >>> import torch
    >>> from aicau import omega_bias_first
    >>> members = torch.tensor([[1.0, 2.0], [1.0, 2.0], [3.0, 2.0], [3.0, 2.0]])
    >>> omega_bias_first(members, torch.tensor([2.0, 1.0])).diagonal()
    tensor([1., 1.])
    """
    omega = covariance(predictions) + cobias(mean(predictions) - observed_mean)
    return omega if noise is None else omega + noise


def omega_uncorrelated(predictions: Tensor, draws: Tensor) -> Tensor:
    """Appendix D.1: draws at different points are independent, so every draw of x_i meets every draw of x_j.

    Off the diagonal the triple sum over members, draws of x_i and draws of x_j factorises through the means of the
    draws; on the diagonal the same draw stands on both sides and its spread adds σ²_Y.

    Parameters
    ----------
    predictions : Tensor, shape (K, n)
    draws : Tensor, shape (N, n)
        NaN where a draw does not exist.

    Returns
    -------
    Tensor, shape (n, n)
        NaN where a point was never drawn.

    Examples
    --------
    >>> import torch
    >>> from aicau import omega_uncorrelated
    >>> omega_uncorrelated(torch.tensor([[1.0], [3.0]]), torch.tensor([[1.0], [3.0]]))
    tensor([[2.]])
    """
    seen = ~torch.isnan(draws)
    count = seen.sum(0)
    average = torch.where(seen, draws, 0.0).sum(0) / count  # 0/0 = NaN marks points never drawn
    residual = predictions - average
    omega = residual.mT @ residual / predictions.shape[0]
    spread = torch.where(seen, (draws - average) ** 2, 0.0).sum(0) / count
    return omega + torch.diag(torch.where(count > 0, spread, torch.nan))


def omega_together(predictions: Tensor, draws: Tensor) -> Tensor:
    """Appendix D.2: only draws made together enter, so correlated noise shows in the off-diagonal entries.

    Parameters
    ----------
    predictions : Tensor, shape (K, n)
    draws : Tensor, shape (N, n)
        Row r holds what was measured together in round r, NaN elsewhere.

    Returns
    -------
    Tensor, shape (n, n)
        NaN where a pair was never drawn together.

    Raises
    ------
    InputError
        No draw is finite.

    Examples
    --------
    >>> import torch
    >>> from aicau import omega_together
    >>> omega_together(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))
    tensor([[1., 1.],
            [1., 1.]], dtype=torch.float64)
    """
    # Centred on the draws' own means and in double precision: an offset of 1000 must not cancel digits.
    seen = (~torch.isnan(draws)).double()
    total = seen.sum(0)
    if bool((total == 0).all()):
        raise InputError("no draw is finite, so Omega cannot be computed from data")
    values = torch.where(seen > 0, draws, 0.0).double()
    centre = values.sum(0) / total.clamp_min(1)
    values = (values - centre) * seen
    members = predictions.double() - centre
    pairs = seen.mT @ seen  # N_ij
    # Σ_k Σ_r (f_ki − y_ri)(f_kj − y_rj) over the rounds that hold both points, written with matrix products.
    model = members.mT @ members * pairs
    cross = members.sum(0)[:, None] * (seen.mT @ values)
    return (model - cross - cross.mT + len(members) * values.mT @ values) / (len(members) * pairs)
