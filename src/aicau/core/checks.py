"""Check input and convert it to tensors; an error says in one sentence what is wrong."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from aicau.core.errors import InputError, shown


def features(x: Any, name: str = "features") -> Tensor:  # (..., n, d) float64
    """Finite numbers in at least two dimensions."""
    tensor = numbers(x, name)
    if tensor.ndim < 2:
        raise InputError(f"{name} must have shape (n, d); got {tuple(tensor.shape)}")
    if tensor.shape[-2] == 0 or tensor.shape[-1] == 0:
        raise InputError(f"{name} are empty: shape {tuple(tensor.shape)}")
    return tensor


def numbers(values: Any, name: str, missing: bool = False) -> Tensor:
    """Finite float64 numbers of any shape; NaN only where something may be `missing`."""
    try:
        if not isinstance(values, Tensor):
            if np.iscomplexobj(values):
                raise TypeError("complex numbers have no order")
            values = torch.from_numpy(np.array(values, float))
        tensor = values.detach().double()
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from error
    bad = ~(torch.isfinite(tensor) | torch.isnan(tensor) if missing else torch.isfinite(tensor))
    if bool(bad.any()):
        where = tuple(int(i) for i in bad.nonzero()[0])
        raise InputError(f"{name} must be finite; entry {where} is {float(tensor[where])}")
    return tensor


def positive(value: int, name: str, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not value >= least or value % 1:
        raise InputError(f"{name} must be a whole number of at least {least}; got {shown(value)}")
    return int(value)


def seed(value: Any) -> int:
    """A whole number that random streams begin with."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not -(2**63) <= value < 2**63:
        raise InputError(f"seed must be a whole number of 64 bits; got {shown(value)}")
    return int(value)


def pick_device(device: str | torch.device) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU."""
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"unknown device {device!r}; known: auto, cpu, cuda") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device 'cuda' was asked for, and PyTorch sees no CUDA device here")
    return chosen
