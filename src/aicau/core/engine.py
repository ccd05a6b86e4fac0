"""Where independent parts of one piece of work are computed: in this process, in several, or on the machines of Ray.

Every part is a pure function of its arguments: the result does not depend on the place, and a lost part is repeated.
"""

import logging
import multiprocessing
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

from aicau.core.errors import AicauError, InputError, unknown

S = TypeVar("S")
T = TypeVar("T")
LOCAL, RAY = "local", "ray"
RETRIES = 20  # of a part whose machine was lost
PATIENCE = 10.0  # seconds for a cluster to answer


@dataclass(frozen=True)
class Engine:
    """A choice of where to compute.

    Parameters
    ----------
    name : {"local", "ray"}
    jobs : int
        Processes of this machine, for `local`; 1 computes in this one.
    address : str, optional
        Of a Ray cluster; without one, that of the environment (`RAY_ADDRESS`), else one is started on this machine.

    Examples
    --------
    >>> from aicau import Engine
    >>> list(Engine().over(abs, [-1, 2, -3]))
    [1, 2, 3]
    """

    name: str = LOCAL
    jobs: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.jobs, int) or self.jobs < 1:
            raise InputError(f"jobs must be a whole number of at least 1; got {self.jobs}")
        if self.name not in (LOCAL, RAY):
            raise unknown("engine", self.name, [LOCAL, RAY])
        if self.name == LOCAL and self.address is not None:
            raise InputError("an address is that of a Ray cluster; add --engine ray")

    @property
    def here(self) -> bool:
        """Whether everything is computed in this process."""
        return self.name == LOCAL and self.jobs == 1

    @property
    def width(self) -> int:
        """How many parts are computed at once."""
        return self.jobs if self.name == LOCAL else max(1, int(_ray(self.address).cluster_resources().get("CPU", 1)))

    def slices(self, n: int) -> list[tuple[int, int]]:
        """The numbers below n in slices: two for every process, or one where everything is computed here."""
        each = n if self.here else -(-n // (2 * self.width))
        return [(first, min(first + each, n)) for first in range(0, n, each)]

    def over(self, function: Callable[[S], T], parts: Iterable[S], device: str = "cpu") -> Iterator[T]:
        """`function`, of a module's top level, of every part, in their order; each with a GPU of its own if a cluster
        has some and the device is not the CPU."""
        if self.here:
            yield from map(function, parts)
        elif self.name == LOCAL:
            with ProcessPoolExecutor(self.jobs, multiprocessing.get_context("spawn"), one_thread) as pool:
                try:
                    yield from window(parts, lambda part: pool.submit(function, part), Future.result, 4 * self.jobs)
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
        else:
            yield from self._on_ray(function, parts, device)

    def _on_ray(self, function: Callable[[S], T], parts: Iterable[S], device: str) -> Iterator[T]:
        ray = _ray(self.address)
        gpus = float(device != "cpu" and ray.cluster_resources().get("GPU", 0) > 0)
        if device == "cuda" and not gpus:
            raise InputError("no machine of the Ray cluster has a GPU; use --device cpu")
        kept = ray.put(function)  # once for each machine, not with every part
        task = ray.remote(_alone).options(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)
        try:
            yield from window(parts, lambda part: task.remote(kept, part), ray.get, 4 * self.width)
        except ray.exceptions.RayTaskError as error:  # what a part raised, as if it had been raised here
            if isinstance(error.cause, Exception):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            raise AicauError(f"Ray could not finish the work ({type(error).__name__}: {error}); try again") from error


HERE = Engine()


def window(parts: Iterable[S], begin: Callable[[S], Any], result: Callable[[Any], T], most: int) -> Iterator[T]:
    """Results in the order of their parts; at most `most` parts are under way."""
    rest = iter(parts)
    waiting = deque(map(begin, islice(rest, most)))
    while waiting:
        yield result(waiting.popleft())
        waiting.extend(map(begin, islice(rest, 1)))


def _alone(function: Callable[[S], T], part: S) -> T:
    """In a worker of Ray, which counts on one thread for each."""
    one_thread()
    return function(part)


def one_thread() -> None:
    import numba
    import torch

    torch.set_num_threads(1)
    numba.set_num_threads(1)


def _ray(address: str | None) -> Any:
    """The module, connected to a cluster."""
    try:
        import ray
    except ImportError:
        raise InputError("the engine ray needs Ray; install it with: pip install 'aicau[ray]'") from None
    if not ray.is_initialized():
        try:
            found = urlsplit(f"//{(address or '').removeprefix('ray://')}")
            if found.hostname and found.port:  # Ray itself would wait for minutes
                socket.create_connection((found.hostname, found.port), PATIENCE).close()
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            where = f" at {address}" if address else ""
            raise InputError(f"no Ray cluster answers{where} ({error}); start one, or leave --address out") from error
    return ray
