"""The toy truth measured on plates: every round is a plate that shifts all its values by one common amount."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.pool import Pool
from aicau.problems.base import Problem
from aicau.problems.toy import Toy


@dataclass(frozen=True)
class Plates(Problem):
    """Noise of variance `sigma`², a share `icc` of it common to a plate."""

    icc: float = 0.5
    sigma: float = 0.3
    toy: Toy = Toy()  # noqa: RUF009 (frozen)
    name: str = "plates"

    def __post_init__(self) -> None:
        if not 0 <= self.icc <= 1 or not self.sigma >= 0:
            raise InputError(f"icc lies between 0 and 1 and sigma is not negative; got {self.icc} and {self.sigma}")

    @property
    def pool(self) -> Pool:  # type: ignore[override]
        return self.toy.pool

    @property
    def truth(self) -> Tensor:
        return self.toy.truth

    @cached_property
    def aleatoric(self) -> Tensor:
        return torch.full_like(self.truth, self.sigma**2)

    def noise(self, keys: Tensor) -> Tensor:  # (...) -> (..., n)
        draws = streams.normal(keys, self.truth.shape[0] + 1)
        own, shared = draws[..., :-1], draws[..., -1:]
        return self.sigma * ((1 - self.icc) ** 0.5 * own + self.icc**0.5 * shared)

    def to(self, device: torch.device) -> "Plates":
        return replace(self, toy=self.toy.to(device))


def plates(grid: int = 50, icc: float = 0.5, sigma: float = 0.3) -> Plates:
    """A plate a round; see `Plates`."""
    return Plates(icc, sigma, Toy(grid=grid))
