"""Candidates: what can be measured, with ids for people and standardised features for distances."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from aicau.core import checks
from aicau.core.errors import InputError

WIDTH = math.sqrt(12)  # of a uniform distribution of variance 1


@dataclass(frozen=True)
class Pool:
    """Candidates: what can be measured.

    Parameters
    ----------
    x : Tensor, shape (n, d)
        Features.
    ids : tuple of str, optional
        One distinct id per candidate.

    Raises
    ------
    InputError
        Empty or not finite features, ids that are not distinct.

    Examples
    --------
    >>> from aicau import Pool
    >>> Pool([[0.0, 1.0], [2.0, 3.0]]).n
    2
    """

    x: Tensor
    ids: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        x = checks.features(self.x)
        if x.ndim != 2:
            raise InputError(f"a pool is a table (n, d); got shape {tuple(x.shape)}")
        if self.ids is not None and len(set(self.ids)) != x.shape[0]:
            raise InputError(f"a pool of {x.shape[0]} rows needs as many distinct ids; got {len(set(self.ids))}")
        object.__setattr__(self, "x", x)

    @property
    def n(self) -> int:
        return self.x.shape[0]

    @cached_property
    def coordinates(self) -> Tensor:  # (n, d)
        """Where the candidates lie, for distances."""
        return coordinates(self.x)

    def to(self, device: torch.device) -> "Pool":
        return Pool(self.x.to(device), self.ids)


@dataclass(frozen=True)
class Frame:
    """Where a pool lies: what turns its features, all or some of its rows, into coordinates."""

    mean: Tensor  # (d,), like all
    spread: Tensor
    stretch: Tensor

    @classmethod
    def of(cls, x: Tensor) -> "Frame":  # (n, d)
        spread = x.std(0, correction=0)
        mean, spread = x.mean(0), torch.where(spread > 0, spread, 1.0)
        high, low = ((end - mean) / spread for end in (x.amax(0), x.amin(0)))
        return cls(mean, spread, WIDTH / (high - low).clamp_min(WIDTH))

    def standardise(self, x: Tensor) -> Tensor:  # (..., d)
        """Mean 0 and variance 1 per column; a constant column becomes 0."""
        return (x - self.mean) / self.spread

    def coordinates(self, x: Tensor) -> Tensor:  # (..., d)
        return self.standardise(x) * self.stretch


def coordinates(x: Tensor) -> Tensor:  # (n, d)
    """Features for distances: standardised, and no column wider than a uniform one of variance 1.

    Standardising alone puts a rare category, or a single outlier, far away from everything else, and whatever looks for
    distant points then looks nowhere else (docs/comparison.md has figures).
    """
    return Frame.of(x).coordinates(x)


def standardise(x: Any) -> Tensor:  # (n, d)
    """Mean 0 and variance 1 per column; a constant column becomes 0."""
    x = torch.as_tensor(x)
    return Frame.of(x).standardise(x)
