"""Candidates: what can be measured, with ids for people and standardised features for distances."""

import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from aicau.core import checks
from aicau.core.errors import InputError
from aicau.core.runs import over, portion

WIDTH = math.sqrt(12)  # of a uniform distribution of variance 1
TOGETHER = 16_384  # rows that the mean and variance of a large pool are computed from at a time
HELD = 200_000  # rows that stay in memory after they were asked for
RECENT = 4  # chunks that stay in memory
READING = threading.RLock()  # so that threads read a chunk once


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
        return Frame.of(self.x).coordinates(self.x)

    def to(self, device: torch.device) -> "Pool":
        return Pool(self.x.to(device), self.ids)


@dataclass(frozen=True)
class Frame:
    """Turns features of a pool, all or some of its rows, into coordinates."""

    mean: Tensor  # (d,), like all
    spread: Tensor
    stretch: Tensor

    @classmethod
    def of(cls, x: "Tensor | Rows") -> "Frame":  # (n, d)
        if isinstance(x, Rows):
            return x.frame
        if len(x) > TOGETHER:
            return cls.over(x.split(TOGETHER if x.device.type == "cpu" else portion(x.device)))
        return cls._of(x.mean(0), x.std(0, correction=0), x.amax(0), x.amin(0))

    @classmethod
    def over(cls, parts: Iterable[Tensor]) -> "Frame":
        """Of a pool that is read in parts; sums are in double precision, about the mean of the first part."""
        parts = iter(parts)
        first = next(parts)
        centre = first.double().mean(0)

        def sums(x: Tensor) -> tuple[Any, ...]:
            away = x.double() - centre
            return len(x), away.sum(0), (away**2).sum(0), x.amax(0), x.amin(0)

        found = over(sums, itertools.chain([first], parts), first.device)
        counts, totals, squares, highs, lows = zip(*found, strict=True)
        high, low, away = torch.stack(highs).amax(0), torch.stack(lows).amin(0), sum(totals) / sum(counts)
        spread = (sum(squares) / sum(counts) - away**2).clamp_min(0).sqrt()
        return cls._of((centre + away).to(high), spread.to(high), high, low)

    @classmethod
    def _of(cls, mean: Tensor, spread: Tensor, high: Tensor, low: Tensor) -> "Frame":
        spread = torch.where(spread > 0, spread, 1.0)
        return cls(mean, spread, WIDTH / ((high - mean) / spread - (low - mean) / spread).clamp_min(WIDTH))

    def standardise(self, x: Tensor) -> Tensor:  # (..., d)
        """Mean 0 and variance 1 per column; a constant column becomes 0."""
        return (x - self.mean) / self.spread

    def coordinates(self, x: Tensor) -> Tensor:  # (..., d)
        return self.standardise(x) * self.stretch


class Rows:
    """Candidates that are read from chunks when they are needed: a table (n, d) that is indexed like a tensor.

    `parts` are the chunks, in single precision, or functions that read them; `sizes` their numbers of rows. Rows that
    were asked for stay in memory, up to `HELD`, unless they follow each other: passes over the pool are not kept.
    """

    device, dtype = torch.device("cpu"), torch.float

    def __init__(self, parts: Sequence[Any], sizes: Sequence[int], width: int) -> None:
        self.starts, self.parts = torch.tensor([0, *sizes]).cumsum(0), parts
        self.shape = torch.Size((int(self.starts[-1]), width))
        self.held = torch.zeros(0, dtype=torch.long), torch.zeros(0, width)  # numbers, ascending, and rows
        self.recent: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return self.shape[0]

    def split(self, size: int) -> Iterator[Tensor]:
        """All rows in their order, `size` at a time."""
        rest = torch.zeros(0, self.shape[1])
        for number in range(len(self.starts) - 1):
            chunk = self._read(number)
            *whole, rest = (torch.cat([rest, chunk]) if len(rest) else chunk).split(size)
            if len(rest) == size:
                whole, rest = [*whole, rest], rest[:0]
            yield from whole
        if len(rest):
            yield rest

    def __getitem__(self, index: Tensor | slice) -> Tensor:  # (...) -> (..., d)
        index = torch.arange(len(self))[index] if isinstance(index, slice) else index.cpu()
        flat = index.reshape(-1)
        if index.ndim == 1 and len(index) and bool((index.diff() == 1).all()):  # they follow each other
            return self._found(index)
        numbers, rows = self.held
        known = torch.isin(flat, numbers)
        missing = flat[~known].unique()
        found = torch.empty(len(flat), self.shape[1])
        found[known] = rows[torch.searchsorted(numbers, flat[known])]
        if len(missing):
            new = self._found(missing)
            found[~known] = new[torch.searchsorted(missing, flat[~known])]
            alone = int(missing[-1] - missing[0]) > 2 * len(missing) or len(missing) < 2
            if alone and len(numbers) + len(missing) <= HELD:
                numbers, order = torch.cat([numbers, missing]).sort()
                self.held = numbers, torch.cat([rows, new])[order]
        return found.reshape(*index.shape, self.shape[1])

    def then(self, function: Callable[[Tensor], Tensor]) -> "Rows":  # (s, d) -> (s, d)
        """The table whose chunks are `function` of these; computed when they are read."""
        sizes = self.starts.diff().tolist()
        return Rows([lambda at=at: function(self._read(at)) for at in range(len(sizes))], sizes, self.shape[1])

    def _found(self, index: Tensor) -> Tensor:  # (m,) ascending -> (m, d)
        chunk, parts = torch.searchsorted(self.starts, index, right=True) - 1, []
        with READING:
            for number in chunk.unique().tolist():
                rows = self.recent.get(number)
                if rows is None:
                    rows = self._read(number)
                    self.recent = dict([*self.recent.items(), (number, rows)][-RECENT:])
                parts.append(rows[index[chunk == number] - self.starts[number]])
        return torch.cat(parts)

    def _read(self, number: int) -> Tensor:
        part = self.parts[number]
        found: Tensor = part if isinstance(part, Tensor) else part()
        return found

    @cached_property
    def frame(self) -> Frame:
        """Where the pool lies."""
        return Frame.over(self.split(TOGETHER))


@dataclass(frozen=True)
class OnDemand:
    """A function of the candidates, computed for those that are asked for: indexed like a tensor (1, ..., n)."""

    function: Callable[[Tensor], Tensor]  # (m, d) -> (1, ..., m)
    x: Rows

    def then(self, function: Callable[[Tensor], Tensor]) -> "OnDemand":
        """`function` of the answers."""
        return OnDemand(lambda x: function(self.function(x)), self.x)

    def double(self) -> "OnDemand":
        return self.then(Tensor.double)

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        return self.function(self.x[index])

    def gather(self, dim: int, index: Tensor) -> Tensor:  # (1, ..., m), the same for all members
        return self.function(self.x[index.reshape(-1, index.shape[-1])[0]])

    def __getitem__(self, at: Any) -> Any:  # the only run, then its members (m,)
        return self.function(self.x[at[1]])[0] if isinstance(at, tuple) else self


def coordinates(x: "Tensor | Rows") -> Any:  # (n, d)
    """Features for distances: standardised, and no column wider than a uniform one of variance 1, because a rare
    category or an outlier would else be far from everything (docs/comparison.md has figures)."""
    return x.then(x.frame.coordinates) if isinstance(x, Rows) else Frame.of(x).coordinates(x)


def standardise(x: Any) -> Tensor:  # (n, d)
    """Mean 0 and variance 1 per column; a constant column becomes 0."""
    x = torch.as_tensor(x)
    return Frame.of(x).standardise(x)
