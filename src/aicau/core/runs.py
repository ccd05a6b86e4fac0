"""Batched on an accelerator, run by run on the CPU, where a batched product may round differently beside another run.

Small matrices are computed on one thread: a second one gains nothing, and if another program uses its core, every
step waits for it (measured: 8 ms instead of 60 µs for a Cholesky decomposition of 110 rows).
"""

import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from aicau.core.engine import window

S = TypeVar("S")
T = TypeVar("T")
SMALL = 20_000  # points of a pool up to which one thread is used
PORTION = 4096  # points of a large pool that one thread computes at a time: what it needs stays in the cache
PORTION_GPU = 262_144  # on an accelerator, which needs many to be busy
ROOM = 0.5  # share of a GPU's memory that should be free before a graph is recorded


@dataclass(frozen=True)
class OfRuns:
    """A record whose fields have runs as their first dimension; `common` names those that all runs share."""

    common: ClassVar[tuple[str, ...]] = ()

    def __getitem__(self, run: Any) -> Self:
        """Of some runs (along the first leading dimension)."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in self.common}
        return replace(self, **{name: part[run] for name, part in own.items() if part is not None})


_own = threading.local()  # `cores`: threads that this one may use in all, also where PyTorch computes on fewer


@contextmanager
def threads(count: int | None = None) -> Iterator[None]:
    """Set PyTorch's threads for a while (None: leave them as they are)."""
    before, outer = torch.get_num_threads(), getattr(_own, "cores", None)
    _own.cores = outer or before
    if count not in (None, before):
        torch.set_num_threads(count)
    try:
        yield
    finally:
        _own.cores = outer
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


@cache
def _blas() -> Any:
    """The BLAS libraries of SciPy, which Numba's matrix products go through as well."""
    importlib.import_module("scipy.linalg.cython_blas")
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def single_blas(count: int | None = None) -> Iterator[None]:
    """As `threads`, and SciPy's linear algebra on one: with two of them small steps took ten times the time."""
    with threads(count), _blas().limit(limits=1):
        yield


def over(function: Callable[[S], T], parts: Iterable[S], device: torch.device | None = None) -> Iterator[T]:
    """`function` of every part, in their order: side by side, each on one thread; one by one on an accelerator."""
    if device is not None and device.type != "cpu":
        yield from map(function, parts)
        return
    before = torch.get_num_threads()
    cores = getattr(_own, "cores", None) or before

    def alone() -> None:
        torch.set_num_threads(1)
        _own.cores = 1

    if cores == 1 or (isinstance(parts, Sequence) and len(parts) < 2):
        with threads(1):
            yield from map(function, parts)
        return
    pool = ThreadPoolExecutor(cores, initializer=alone)
    try:
        yield from window(parts, lambda part: pool.submit(function, part), Future.result, 2 * cores + 1)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # for threads that begin later


def written(parts: Iterable[Tensor], onto: Tensor) -> Tensor:  # (..., s) each, (..., n)
    """Results one after another in one tensor: single ones, kept till the end, would fragment the memory."""
    start = 0
    for part in parts:
        onto[..., start : start + part.shape[-1]] = part
        start += part.shape[-1]
    return onto


def portion(device: torch.device) -> int:
    """How many points are computed at a time."""
    return PORTION if device.type == "cpu" else PORTION_GPU


def portions(points: Tensor) -> tuple[Tensor, ...]:  # (n, ...)
    """Points, or their numbers, in portions."""
    return points.split(portion(points.device))


def mapped(change: Callable[..., Tensor], *things: Any) -> Any:
    """`change` of every tensor inside records, lists and dictionaries, or of those in one place of several things."""
    first = things[0]
    if isinstance(first, Tensor):
        return change(*things)
    if isinstance(first, dict):
        return type(first)((key, mapped(change, *(one[key] for one in things))) for key in first)
    if isinstance(first, (list, tuple)):
        return type(first)(mapped(change, *column) for column in zip(*things, strict=True))
    if not is_dataclass(first) or isinstance(first, type):
        return first
    names = [each.name for each in fields(first) if each.init]
    return replace(first, **{name: mapped(change, *(getattr(one, name) for one in things)) for name in names})


def moved(thing: T, device: torch.device) -> T:
    """A thing with its tensors on a device."""

    def move(tensor: Tensor) -> Tensor:
        pinned = device.type == "cuda" and tensor.device.type == "cpu" and tensor.numel() > 0
        return (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=pinned)

    return mapped(move, thing)


def carried(parts: Iterable[T], device: torch.device) -> Iterator[T]:
    """Parts on a device; on a GPU the next one travels while one is computed."""
    if device.type != "cuda":
        yield from (moved(part, device) for part in parts)
        return
    side, waiting = torch.cuda.Stream(device), None
    for part in parts:
        side.wait_stream(torch.cuda.current_stream(device))  # what was computed before: its memory may be used again
        with torch.cuda.stream(side):
            coming = moved(part, device), side.record_event()
        if waiting is not None:
            torch.cuda.current_stream(device).wait_event(waiting[1])
            yield waiting[0]
        waiting = coming
    if waiting is not None:
        torch.cuda.current_stream(device).wait_event(waiting[1])
        yield waiting[0]


def threads_for(points: int) -> AbstractContextManager[None]:
    """One thread for a small pool, all for a large one."""
    return threads(1 if points <= SMALL else None)


def by_run(
    function: Callable[..., T],  # gives a tensor, or what `mapped` goes into
    *tensors: Tensor,  # (..., ·) with `lead` leading dimensions
    points: int = 0,  # of the pool, where it may be large
    lead: int = 1,
) -> T:
    """`function` of tensors with one leading dimension, called once per run on the CPU and once in all elsewhere."""
    shape = tensors[0].shape[:lead]
    if lead != 1:
        flat = (t.reshape((-1, *t.shape[lead:])) for t in tensors)
        whole = by_run(function, *flat, points=points)
        return mapped(lambda part: part.reshape((*shape, *part.shape[1:])), whole)
    if tensors[0].device.type != "cpu":
        return function(*tensors)
    with threads_for(points):
        if shape[0] == 1:
            return function(*tensors)
        parts = [function(*(t[run : run + 1] for t in tensors)) for run in range(shape[0])]
        return mapped(lambda *column: torch.cat(column), *parts)


def side_by_side(tasks: Sequence[Callable[[], T]], device: torch.device) -> list[T]:
    """Results of independent tasks, on CUDA each on a stream of its own: together they take the time of the longest."""
    if device.type != "cuda" or len(tasks) < 2:
        return [task() for task in tasks]
    outer = torch.cuda.current_stream(device)
    inner = [torch.cuda.Stream(device) for _ in tasks]
    results = []
    for task, stream in zip(tasks, inner, strict=True):
        stream.wait_stream(outer)
        with torch.cuda.stream(stream):
            results.append(task())
    for stream in inner:
        stream.synchronize()
    return results


def repeated(step: Callable[..., tuple[Tensor, ...]], state: tuple[Tensor, ...]) -> Callable[[], tuple[Tensor, ...]]:
    """A function that applies `step` to the state once more at each call; on CUDA as one graph, launched at once."""
    if not state[0].is_cuda:
        now = state

        def plain() -> tuple[Tensor, ...]:
            nonlocal now
            now = step(*now)
            return now

        return plain
    device = state[0].device
    free, total = torch.cuda.mem_get_info(device)
    if free < ROOM * total:  # while a graph is recorded nothing that is kept for later can be given back
        torch.cuda.empty_cache()
    static = tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in state)
    outer, inner = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    inner.wait_stream(outer)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(inner):
        step(*static)  # once outside the graph: libraries make their handles and workspaces on first use
        graph.capture_begin(capture_error_mode="thread_local")
        for old, new in zip(static, step(*static), strict=True):
            old.copy_(new)
        graph.capture_end()
    outer.wait_stream(inner)

    def replay() -> tuple[Tensor, ...]:
        graph.replay()
        return static

    return replay
