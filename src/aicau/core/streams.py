"""Counter-based random numbers: one stream per run, never one per program.

A key is an int64; every draw is a pure function of its key. Functions take keys of any shape `(...)` and return
`(..., *shape)`: run 7 draws the same numbers whatever other runs are computed with it, and on every device. The
generator is SplitMix64 (Steele, Lea & Flood 2014).
"""

import math
from enum import IntEnum

import torch
from torch import Tensor

from aicau.core import checks

_GAMMA = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


class Purpose(IntEnum):
    """What a stream is for; two purposes never share numbers."""

    INITIAL = 1
    NOISE = 2
    FOLDS = 3
    WEIGHTS = 4
    CHOICE = 5
    REALISATIONS = 6
    COBIAS = 7
    ORDER = 8
    TREES = 9


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift of an int64."""
    shifted = z >> bits
    shifted &= (1 << (64 - bits)) - 1
    return shifted


def _mix(z: Tensor) -> Tensor:
    z = z ^ _shift(z, 30)
    z *= _MIX_1
    z ^= _shift(z, 27)
    z *= _MIX_2
    z ^= _shift(z, 31)
    return z


def root(seed: int, device: torch.device | str = "cpu") -> Tensor:
    """The key of a whole program."""
    return _mix(torch.tensor(checks.seed(seed), dtype=torch.int64, device=device) * _GAMMA + _MIX_1)


def fold(keys: Tensor, data: int | Tensor) -> Tensor:  # (...)
    """Derive one key per entry of `data`, which broadcasts with `keys`, from each of `keys`."""
    if isinstance(data, int):
        data = torch.tensor(data, dtype=torch.int64, device=keys.device)
    return _mix(keys ^ _mix(data * _GAMMA + _MIX_2))


def digest(x: Tensor) -> Tensor:  # (..., d) float64 -> (...)
    """A hash of each row, the same on every device: equal rows have equal hashes."""
    code = torch.zeros(x.shape[:-1], dtype=torch.int64, device=x.device)
    for column in (x + 0.0).contiguous().view(torch.int64).unbind(-1):  # −0 + 0 is 0
        code = fold(code, column)
    return code


def runs(seed: int, count: int, device: torch.device | str = "cpu") -> Tensor:  # (count,)
    """One key per run."""
    return fold(root(seed, device), torch.arange(count, device=device))


def bits(keys: Tensor, *shape: int) -> Tensor:  # (..., *shape)
    """64 random bits per entry, as int64."""
    counter = torch.arange(1, math.prod(shape) + 1, device=keys.device, dtype=torch.int64) * _GAMMA
    return _mix(keys[..., None] + counter).reshape(*keys.shape, *shape)


def uniform(keys: Tensor, *shape: int) -> Tensor:  # (..., *shape)
    """Uniform in the open interval (0, 1), float64, 53 bits."""
    draws = _shift(bits(keys, *shape), 11).double()
    draws += 0.5
    draws *= 2.0**-53
    return draws


def normal(keys: Tensor, *shape: int) -> Tensor:  # (..., *shape)
    """Standard normal, float64."""
    return torch.special.ndtri(uniform(keys, *shape))


def permutation(keys: Tensor, n: int) -> Tensor:  # (..., n)
    """A random order of 0 … n−1 for every key."""
    return torch.argsort(_shift(bits(keys, n), 1), dim=-1, stable=True)
