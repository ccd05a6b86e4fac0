"""Batched on an accelerator, run by run on the CPU.

On the CPU a batched product may round differently when another run stands beside it; one run at a time, results are the
same bits however many runs are computed together. On CUDA everything goes in one call.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def by_run(
    function: Callable[..., tuple[Tensor, ...]],
    *tensors: Tensor,  # (runs, ...)
) -> tuple[Tensor, ...]:
    """`function` of tensors with one leading dimension, called once per run on the CPU and once in all elsewhere."""
    if tensors[0].device.type != "cpu" or tensors[0].shape[0] == 1:
        return function(*tensors)
    parts = [function(*(t[run : run + 1] for t in tensors)) for run in range(tensors[0].shape[0])]
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def side_by_side(tasks: Sequence[Callable[[], T]], device: torch.device) -> list[T]:
    """Results of independent tasks: one after another on the CPU, each on a stream of its own on CUDA.

    There one task (many small steps driven by the host) leaves the device idle while another (one long kernel) keeps a
    few multiprocessors busy; side by side they cost what the longer one costs.
    """
    if device.type != "cuda" or len(tasks) < 2:
        return [task() for task in tasks]
    outer = torch.cuda.current_stream(device)

    def run(task: Callable[[], T]) -> T:
        stream = torch.cuda.Stream(device)
        stream.wait_stream(outer)
        with torch.cuda.stream(stream):
            result = task()
        stream.synchronize()
        return result

    with ThreadPoolExecutor(len(tasks)) as workers:
        return list(workers.map(run, tasks))
