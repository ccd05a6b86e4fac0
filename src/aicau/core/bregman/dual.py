"""The dual mean where it has no closed form."""

import torch
from torch import Tensor

from aicau.core.bregman.divergences import Divergence
from aicau.core.errors import TrainingError

STEPS, SMALL = 200, 1e-14  # at most so many steps, until the gradient is met to this


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
