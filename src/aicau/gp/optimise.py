"""Minimising small functions in a box: SciPy's L-BFGS-B for one run, projected BFGS for many runs at once on CUDA."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from scipy.optimize import minimize
from torch import Tensor

from aicau.core.runs import repeated, single_blas

Function = Callable[[Tensor], tuple[Tensor, Tensor]]  # (runs, q) -> values (runs,), gradients (runs, q)
GRADIENT_TOLERANCE, VALUE_TOLERANCE = 1e-5, 2.3e-9  # those of SciPy
LARGEST = 1e25  # in place of infinity, which line searches cannot compute with
ITERATIONS = 60  # of `together`; one run in twenty needs more and is left within a few tenths of its optimum
HALVINGS = 12  # of a step in `together`, before a run counts as converged
CHECK_EVERY = 4  # steps between two looks at whether all runs are done: a look makes a GPU wait


def alone(
    function: Function, start: Tensor, lower: Tensor, upper: Tensor, tolerance: float = VALUE_TOLERANCE
) -> tuple[Tensor, Tensor]:  # (q,) each -> minimiser (1, q), value (1,)
    """L-BFGS-B on one thread: for one run on the CPU."""

    def evaluate(theta):  # type: ignore[no-untyped-def]
        value, gradient = function(torch.from_numpy(theta)[None])
        return min(float(value), LARGEST), gradient[0].numpy()

    box = list(zip(lower.tolist(), upper.tolist(), strict=True))
    with single_blas(1):
        stop = {"ftol": tolerance}
        found = minimize(evaluate, start.double().numpy(), jac=True, method="L-BFGS-B", bounds=box, options=stop)
    return torch.from_numpy(found.x)[None].to(start), torch.tensor([float(found.fun)], dtype=start.dtype)


class State(NamedTuple):
    """Where each run of `together` stands."""

    theta: Tensor  # (runs, q)
    value: Tensor  # (runs,)
    gradient: Tensor  # (runs, q)
    hessian: Tensor  # (runs, q, q) an estimate of the inverse
    fresh: Tensor  # (runs,) no curvature known yet: take a unit step at most
    running: Tensor  # (runs,)
    scale: Tensor  # (runs,) share of the step to try next
    halvings: Tensor  # (runs,) of the present step
    iteration: Tensor  # (runs,) how many are done


def together(function: Function, start: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    # (runs, q), (q,) twice -> minimisers (runs, q), values (runs,)
    """Projected BFGS: a dense inverse Hessian per run and a backtracking line search.

    Every evaluation serves all runs, each at its own place: one run may be shortening a step while another starts its
    next iteration. A run stops when its projected gradient or its relative progress is below the tolerance, as in
    L-BFGS-B.
    """
    value, gradient = function(start)
    zero, one = torch.zeros_like(value), torch.ones_like(value)
    identity = torch.eye(start.shape[-1], dtype=start.dtype, device=start.device).expand(*start.shape, -1)
    state = State(start, value, gradient, identity, one.bool(), torch.isfinite(value), one, zero, zero)
    again = repeated(lambda *now: _step(function, State(*now), lower, upper), state)
    for _ in range(ITERATIONS * HALVINGS // CHECK_EVERY):
        for _ in range(CHECK_EVERY):
            state = State(*again())
        if not bool(state.running.any()):
            break
    return state.theta.clone(), state.value.clone()


def _step(function: Function, state: State, lower: Tensor, upper: Tensor) -> State:
    """One evaluation for every run, and the next state."""
    theta, value, gradient, hessian, fresh, running, scale, halvings, count = state
    identity = torch.eye(theta.shape[-1], dtype=theta.dtype, device=theta.device)
    projected = (theta - gradient).clamp(lower, upper) - theta
    running = running & (projected.abs().amax(-1) > GRADIENT_TOLERANCE) & (count < ITERATIONS)
    free = ~(((theta <= lower) & (gradient > 0)) | ((theta >= upper) & (gradient < 0)))
    masked = torch.where(free[..., :, None] & free[..., None, :], hessian, 0.0)
    step = -(masked @ (gradient * free)[..., None])[..., 0]
    uphill = (step * gradient).sum(-1) >= 0
    step = torch.where(uphill[..., None], -gradient * free, step)
    length = torch.linalg.vector_norm(step, dim=-1)
    step = torch.where((fresh | uphill)[..., None], step / length.clamp_min(1.0)[..., None], step)
    trial = (theta + scale[..., None] * step).clamp(lower, upper)
    trial_value, trial_gradient = function(trial)
    moved = trial - theta
    slope = (gradient * moved).sum(-1)
    enough = trial_value <= value + 1e-4 * slope
    accept = running & enough
    change = trial_gradient - gradient
    curvature = (moved * change).sum(-1)
    good = accept & (curvature > 1e-10)
    # The first update scales the identity to the curvature just seen (Nocedal & Wright 6.20).
    size = curvature / (change**2).sum(-1).clamp_min(1e-300)
    scaled = torch.where((fresh & good)[..., None, None], size[..., None, None] * identity, hessian)
    rho = torch.where(good, 1 / torch.where(good, curvature, 1.0), 0.0)[..., None, None]
    left = identity - rho * moved[..., :, None] * change[..., None, :]
    updated = left @ scaled @ left.mT + rho * moved[..., :, None] * moved[..., None, :]
    largest = torch.maximum(torch.maximum(value.abs(), trial_value.abs()), torch.ones_like(value))
    stalled = accept & ((value - trial_value) / largest <= VALUE_TOLERANCE)
    # The minimum of the parabola through what is known, kept between a tenth and a half of the step.
    shorter = (-0.5 * slope / (trial_value - value - slope)).nan_to_num(nan=0.1).clamp(0.1, 0.5)
    halvings = torch.where(enough, 0.0, halvings + 1)
    return State(
        torch.where(accept[..., None], trial, theta),
        torch.where(accept, trial_value, value),
        torch.where(accept[..., None], trial_gradient, gradient),
        torch.where(good[..., None, None], updated, hessian),
        fresh & ~good,
        running & ~stalled & (halvings < HALVINGS),
        torch.where(enough, 1.0, shorter * scale),
        halvings,
        count + accept,
    )
