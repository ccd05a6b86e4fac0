"""Batched on an accelerator, run by run on the CPU.

On the CPU a batched product may round differently when another run stands beside it; one run at a time, results are the
same bits however many runs are computed together. On CUDA everything goes in one call.
"""

from collections.abc import Callable

import torch
from torch import Tensor


def by_run(
    function: Callable[..., tuple[Tensor, ...]],
    *tensors: Tensor,  # (runs, ...)
) -> tuple[Tensor, ...]:
    """`function` of tensors with one leading dimension, called once per run on the CPU and once in all elsewhere."""
    if tensors[0].device.type != "cpu" or tensors[0].shape[0] == 1:
        return function(*tensors)
    parts = [function(*(t[run : run + 1] for t in tensors)) for run in range(tensors[0].shape[0])]
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))
