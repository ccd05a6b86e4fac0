"""The paper's toy system (Table 2) on a grid of [0, 2π]²: Types I (no noise), II (uncorrelated), III (correlated)."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from aicau.core import checks
from aicau.core.errors import InputError
from aicau.core.omega import Omega
from aicau.core.pool import Pool
from aicau.problems.base import Problem, correlation_root, noise_field


@dataclass(frozen=True)
class Toy(Problem):
    """μ_Y = sin(3x₁/2)·sin(3x₂/2), W = ε·√(1 − μ_Y²)/10, ρ = exp(−|x − x*|/length) with length π/2."""

    name: str = "type1"
    grid: int = 50
    noise_scale: float = 1.0
    correlation_length: float = math.pi / 2
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (a device never changes)

    def __post_init__(self) -> None:
        checks.positive(self.grid, "grid")
        if not (math.isfinite(self.noise_scale) and self.noise_scale >= 0):
            raise InputError(f"noise scale must be a finite number of at least 0; got {self.noise_scale}")
        if not (math.isfinite(self.correlation_length) and self.correlation_length > 0):
            raise InputError(f"correlation length must be a finite number above 0; got {self.correlation_length}")

    @cached_property
    def pool(self) -> Pool:  # type: ignore[override]
        axis = torch.linspace(0, 2 * math.pi, self.grid, dtype=torch.double)
        return Pool(torch.cartesian_prod(axis, axis).reshape(-1, 2)).to(self.device)

    def to(self, device: torch.device) -> "Toy":
        return self if device == self.device else replace(self, device=device)

    @cached_property
    def truth(self) -> Tensor:
        return torch.sin(1.5 * self.pool.x).prod(-1)

    @cached_property
    def sigma(self) -> Tensor:  # (n,)
        """Standard deviation of the noise."""
        if self.name == "type1":
            return torch.zeros_like(self.truth)
        return self.noise_scale * torch.sqrt((1 - self.truth**2).clamp_min(0)) / 10

    @property
    def aleatoric(self) -> Tensor:
        return self.sigma**2

    @cached_property
    def _root(self) -> Tensor | None:  # (n, n)
        correlated = self.repeats_share_noise and bool(self.sigma.any())
        return correlation_root(self.pool.x, self.correlation_length) if correlated else None

    def noise_covariance(self) -> Omega:
        """Σ_Y over the pool: 0 (Type I), diagonal (II), or with ρ between points (III)."""
        if self._root is not None:
            return Omega(self.sigma[:, None] * self._root)
        return Omega(torch.zeros_like(self.sigma)[:, None], extra=self.aleatoric)

    def noise(self, keys: Tensor) -> Tensor:
        if not bool(self.sigma.any()):
            return torch.zeros(*keys.shape, self.pool.n, dtype=torch.double, device=keys.device)
        return noise_field(keys, self.sigma, self._root)

    @property
    def repeats_share_noise(self) -> bool:  # type: ignore[override]
        """ρ(x, x) = 1: within a round of Type III the same point twice is one value twice."""
        return self.name.endswith("3")


def type1(grid: int = 50, noise_scale: float = 1.0, correlation_length: float = math.pi / 2) -> Toy:
    """No noise; a point is never measured twice."""
    return Toy("type1", grid, noise_scale, correlation_length)


def type2(grid: int = 50, noise_scale: float = 1.0, correlation_length: float = math.pi / 2) -> Toy:
    """Noise that is independent between points."""
    return Toy("type2", grid, noise_scale, correlation_length)


def type3(grid: int = 50, noise_scale: float = 1.0, correlation_length: float = math.pi / 2) -> Toy:
    """Noise shared between the points of one round, the more the nearer they are."""
    return Toy("type3", grid, noise_scale, correlation_length)
