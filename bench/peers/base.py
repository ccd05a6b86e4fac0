"""A method of another package behind `choose`, so that it can stand where a strategy stands.

Their code works on one run at a time and draws from the global generators of NumPy and PyTorch. Here every run gets
generators seeded from its own key, and the state found is put back: the same key gives the same batch, however many
runs are computed together.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from aicau.acquisition import Score, View
from aicau.batching import Selection
from aicau.batching.base import check_enough
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.streams import Purpose
from aicau.strategy import Choice

Select = Callable[[View, int], list[int]]  # a view of one run, m -> pool indices, best first


@dataclass(frozen=True)
class Peer:
    """A selection method by its name; `select` answers for one run."""

    name: str
    select: Select
    bias: ClassVar[None] = None

    def __str__(self) -> str:
        return self.name

    def choose(
        self,
        view: View,  # leading dimension: runs
        m: int,
        previous: Score | None = None,
    ) -> Choice:
        """The next batch of every run. α is the order of choice: m for the first point, 1 for the last, 0 elsewhere."""
        check_enough(view, m)
        runs = view.allowed.shape[0]
        chosen = torch.stack([self._choose_one(view[run : run + 1], m) for run in range(runs)])
        order = torch.arange(m, 0, -1, dtype=view.x.dtype, device=chosen.device).expand_as(chosen)
        alpha = torch.zeros_like(view.allowed, dtype=view.x.dtype).scatter(-1, chosen, order)
        return Choice(Selection(chosen, {}), alpha)

    def _choose_one(self, view: View, m: int) -> Tensor:  # (m,)
        with own_generators(view.keys):
            picked = self.select(view, m)
        return complete(picked, view, m)


def complete(picked: list[int], view: View, m: int) -> Tensor:  # (m,)
    """Exactly m distinct, allowed points of one run: those picked, then, where they are too few, others at random."""
    allowed = view.allowed[0].tolist()
    kept = [index for index in dict.fromkeys(picked) if allowed[index]][:m]
    if len(kept) < m:
        order = streams.permutation(streams.fold(view.keys[0], Purpose.CHOICE), len(allowed)).tolist()
        taken = set(kept)
        kept += [index for index in order if allowed[index] and index not in taken][: m - len(kept)]
    return torch.tensor(kept, dtype=torch.int64, device=view.allowed.device)


@contextmanager
def own_generators(keys: Tensor) -> Iterator[None]:  # (1,)
    """The global generators of NumPy and PyTorch, seeded from a run's key and put back afterwards."""
    seed = int(streams.fold(keys[0], Purpose.CHOICE)) & 0x7FFFFFFF
    before = np.random.get_state()  # noqa: NPY002 - the packages draw from this generator
    with torch.random.fork_rng(devices=[keys.device] if keys.device.type == "cuda" else []):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(before)  # noqa: NPY002


def require(module: str, method: str, install: str = "pip install 'aicau[peers]'") -> Any:
    """A module of another package, loaded when it is first used."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise InputError(f"{method} calls the package {package} and needs the extra peers: {install}") from error


def measured_rows(view: View) -> Tensor:  # (l,)
    """Pool indices of the measurements of one run, one per row; without rows, the points measured."""
    return view.measured[0].nonzero()[:, 0] if view.observations is None else view.observations.index[0]
