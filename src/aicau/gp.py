"""Gaussian-process regression, batched over runs: constant × anisotropic RBF, bounds and all.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| h | `x` | (..., l, p) | inputs |
| σ_f², ℓ_j | `theta` | (..., 1 + p) | log of the constant and of the length scales |
| α | `noise` | (..., l) | variance added to the diagonal |

Padded rows (`valid` false) become rows of the identity: they change neither the likelihood nor a prediction.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

CONSTANT_BOUNDS = (1e-3, 1e3)
LENGTH_BOUNDS = (1e-2, 1e2)
HALVINGS = 12  # of a step, before a run is given up as converged


def kernel(
    a: Tensor,  # (..., l, p)
    b: Tensor,  # (..., n, p)
    theta: Tensor,  # (..., 1 + p)
) -> Tensor:  # (..., l, n)
    """σ_f² exp(−½ Σ_j (a_j − b_j)²/ℓ_j²)."""
    length = theta[..., None, 1:].exp()
    distance = torch.cdist(a / length, b / length, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.exp(theta[..., 0, None, None] - 0.5 * distance**2)


def negative_log_likelihood(
    theta: Tensor,  # (..., 1 + p)
    x: Tensor,  # (..., l, p)
    y: Tensor,  # (..., l), 0 where padded
    noise: Tensor,  # (..., l)
    valid: Tensor,  # (..., l)
) -> tuple[Tensor, Tensor]:  # (...), (..., 1 + p)
    """−log p(y) up to a constant that depends on the number of rows, and its gradient by theta."""
    signal = kernel(x, x, theta) * (valid[..., :, None] & valid[..., None, :])
    diagonal = torch.where(valid, noise, 1.0)
    cholesky, failed = torch.linalg.cholesky_ex(signal + torch.diag_embed(diagonal))
    # L⁻¹ by one triangular solve: on CUDA it is batched, which cholesky_inverse is not.
    half = torch.linalg.solve_triangular(cholesky, torch.diag_embed(torch.ones_like(diagonal)), upper=False)
    inverse = half.mT @ half
    weights = (inverse @ y[..., None])[..., 0]
    value = 0.5 * (y * weights).sum(-1) + cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    # ∂/∂θ_j = −½ tr[(wwᵀ − K⁻¹) ∂K/∂θ_j]; for a length scale ∂K/∂log ℓ_j = K ∘ (h_j − h_j*)²/ℓ_j².
    core = (weights[..., :, None] * weights[..., None, :] - inverse) * signal
    row = core.sum(-1)
    scaled = x / theta[..., None, 1:].exp()
    by_length = (row[..., None] * scaled**2).sum(-2) - (scaled * (core @ scaled)).sum(-2)
    gradient = torch.cat([-0.5 * row.sum(-1, keepdim=True), -by_length], -1)
    bad = (failed > 0) | ~torch.isfinite(value)
    return torch.where(bad, torch.inf, value), torch.where(bad[..., None], 0.0, gradient)


def minimise(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,  # (runs, p)
    lower: Tensor,  # (p,)
    upper: Tensor,  # (p,)
    iterations: int = 60,
    gradient_tolerance: float = 1e-5,
    value_tolerance: float = 2.3e-9,
) -> Tensor:  # (runs, p)
    """Projected BFGS in a box, all runs together: a dense inverse Hessian per run and a backtracking line search.

    A run stops when its projected gradient or its relative progress is below the tolerance, as in L-BFGS-B; one in
    twenty needs more than 60 iterations and is left within a few tenths of its optimum.
    """
    theta = start
    value, gradient = function(theta)
    identity = torch.eye(theta.shape[-1], dtype=theta.dtype, device=theta.device).expand(*theta.shape, -1)
    hessian = identity.clone()
    fresh = torch.ones_like(value, dtype=torch.bool)  # no curvature known yet: take a unit step at most
    running = torch.isfinite(value)
    for _ in range(iterations):
        projected = (theta - gradient).clamp(lower, upper) - theta
        running = running & (projected.abs().amax(-1) > gradient_tolerance)
        if not bool(running.any()):
            break
        free = ~(((theta <= lower) & (gradient > 0)) | ((theta >= upper) & (gradient < 0)))
        masked = torch.where(free[..., :, None] & free[..., None, :], hessian, 0.0)
        step = -(masked @ (gradient * free)[..., None])[..., 0]
        uphill = (step * gradient).sum(-1) >= 0
        step = torch.where(uphill[..., None], -gradient * free, step)
        length = torch.linalg.vector_norm(step, dim=-1)
        step = torch.where((fresh | uphill)[..., None], step / length.clamp_min(1.0)[..., None], step)
        scale = torch.ones_like(value)
        search = running
        new, new_value, new_gradient = theta, value, gradient
        for _ in range(HALVINGS):
            trial = (theta + scale[..., None] * step).clamp(lower, upper)
            trial_value, trial_gradient = function(trial)
            slope = (gradient * (trial - theta)).sum(-1)
            enough = trial_value <= value + 1e-4 * slope
            accept = search & enough
            new = torch.where(accept[..., None], trial, new)
            new_value = torch.where(accept, trial_value, new_value)
            new_gradient = torch.where(accept[..., None], trial_gradient, new_gradient)
            search = search & ~enough
            if not bool(search.any()):
                break
            # The minimum of the parabola through what is known, kept between a tenth and a half of the step.
            shorter = (-0.5 * slope / (trial_value - value - slope)).nan_to_num(nan=0.1).clamp(0.1, 0.5)
            scale = torch.where(search, shorter * scale, scale)
        moved = new - theta
        change = new_gradient - gradient
        curvature = (moved * change).sum(-1)
        good = curvature > 1e-10
        # The first update scales the identity to the curvature just seen (Nocedal & Wright 6.20).
        size = curvature / (change**2).sum(-1).clamp_min(1e-300)
        hessian = torch.where((fresh & good)[..., None, None], size[..., None, None] * identity, hessian)
        rho = torch.where(good, 1 / torch.where(good, curvature, 1.0), 0.0)[..., None, None]
        left = identity - rho * moved[..., :, None] * change[..., None, :]
        updated = left @ hessian @ left.mT + rho * moved[..., :, None] * moved[..., None, :]
        hessian = torch.where(good[..., None, None], updated, hessian)
        fresh = fresh & ~good
        progress = (value - new_value) / torch.maximum(
            torch.maximum(value.abs(), new_value.abs()), torch.ones_like(value)
        )
        running = running & (progress > value_tolerance)
        theta, value, gradient = new, new_value, new_gradient
    return theta


@dataclass(frozen=True)
class Posterior:
    """A fitted process; `mean` and `root` answer in the units of the target."""

    theta: Tensor  # (..., 1 + p)
    x: Tensor  # (..., l, p)
    valid: Tensor  # (..., l)
    weights: Tensor  # (..., l)
    shift: Tensor  # (...)
    scale: Tensor  # (...)

    def mean(self, at: Tensor) -> Tensor:  # (..., n, p) -> (..., n)
        cross = kernel(at, self.x, self.theta) * self.valid[..., None, :]
        return (cross @ self.weights[..., None])[..., 0] * self.scale[..., None] + self.shift[..., None]


def fit(
    x: Tensor,  # (runs, l, p)
    y: Tensor,  # (runs, l)
    valid: Tensor,  # (runs, l)
    alpha: float = 1e-6,
) -> Posterior:
    """Maximise the likelihood of the normalised target from σ_f² = ℓ_j = 1, as scikit-learn's regressor does."""
    count = valid.sum(-1)
    shift = (y * valid).sum(-1) / count
    centred = (y - shift[..., None]) * valid
    spread = ((centred**2).sum(-1) / count).sqrt()
    scale = torch.where(spread > 10 * torch.finfo(y.dtype).eps, spread, 1.0)
    target = centred / scale[..., None]
    noise = torch.full_like(y, alpha)
    start = x.new_zeros(x.shape[0], 1 + x.shape[-1])
    bounds = torch.tensor([CONSTANT_BOUNDS, *[LENGTH_BOUNDS] * x.shape[-1]], dtype=x.dtype, device=x.device).log()
    theta = minimise(lambda t: negative_log_likelihood(t, x, target, noise, valid), start, bounds[:, 0], bounds[:, 1])
    signal = kernel(x, x, theta) * (valid[..., :, None] & valid[..., None, :])
    cholesky, failed = torch.linalg.cholesky_ex(signal + torch.diag_embed(torch.where(valid, noise, 1.0)))
    jitter = torch.where(failed > 0, 1e-4, 0.0)[..., None, None] * torch.eye(
        y.shape[-1], dtype=y.dtype, device=y.device
    )
    cholesky = torch.linalg.cholesky(signal + torch.diag_embed(torch.where(valid, noise, 1.0)) + jitter)
    weights = torch.cholesky_solve(target[..., None], cholesky)[..., 0]
    return Posterior(theta, x, valid, weights, shift, scale)


def log_likelihood(theta: Tensor, x: Tensor, y: Tensor, alpha: float = 1e-6) -> Tensor:
    """log p(y) with its constant, for unpadded rows: what scikit-learn calls log_marginal_likelihood."""
    valid = torch.ones_like(y, dtype=torch.bool)
    value, _ = negative_log_likelihood(theta, x, y, torch.full_like(y, alpha), valid)
    return -value - 0.5 * y.shape[-1] * math.log(2 * math.pi)
