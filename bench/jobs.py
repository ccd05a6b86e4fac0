"""Independent parts of a comparison on several processes, each with one thread."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from aicau.core import checks

Task = TypeVar("Task")
T = TypeVar("T")


def over(function: Callable[[Task], T], tasks: Sequence[Task], jobs: int = 1) -> Iterator[tuple[int, T]]:
    """(number of the task, its result), as they come; with one job here and in order.

    `function` and the tasks travel to other processes, so they must be of a module's top level.
    """
    if checks.positive(jobs, "jobs") == 1:
        yield from ((number, function(task)) for number, task in enumerate(tasks))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(tasks)), context, _one_thread) as pool:
        waiting = {pool.submit(function, task): number for number, task in enumerate(tasks)}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> None:
    import numba
    import torch

    torch.set_num_threads(1)
    numba.set_num_threads(1)
