"""A table of replicated measurements as a problem: what a laboratory already has, replayed without replacement."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from aicau import checks, streams
from aicau.errors import InputError
from aicau.pool import Pool
from aicau.problems.base import Problem, repeat_number
from aicau.streams import Purpose


@dataclass(frozen=True)
class TableProblem(Problem):
    """Replicates of each point are handed out once each, in an order that depends on the run.

    The truth is the mean of a point's replicates, its noise their variance. A point can be measured as often as the
    table holds a value for it.
    """

    name: str
    pool: Pool
    index: Tensor  # (rows,) pool index of each measurement
    y: Tensor  # (rows,)

    @classmethod
    def from_arrays(
        cls,
        name: str,
        x: Any,  # (n, d) features, one row per point
        ids: Sequence[Hashable],  # (n,) id of each point
        row_ids: Sequence[Hashable],  # (rows,) id of each measurement
        y: Any,  # (rows,)
    ) -> "TableProblem":
        """From a table of points and a table of measurements that share an id. Points never measured are left out."""
        features, values = checks.features(x), checks.numbers(y, "y")
        ids, row_ids = list(ids), list(row_ids)
        if len(ids) != features.shape[0] or len(set(ids)) != len(ids):
            raise InputError(f"{features.shape[0]} points need as many distinct ids; got {len(set(ids))}")
        if len(row_ids) != values.shape[0] or not row_ids:
            raise InputError(f"{len(row_ids)} measurement ids and {values.shape[0]} values: need as many, at least one")
        measured = set(row_ids)
        if missing := measured - set(ids):
            raise InputError(
                f"{len(missing)} measured ids are not among the points, the first is {next(iter(missing))!r}"
            )
        kept = [row for row, name_ in enumerate(ids) if name_ in measured]
        place = {ids[row]: new for new, row in enumerate(kept)}
        pool = Pool(features[kept], tuple(str(ids[row]) for row in kept))
        return cls(name, pool, torch.tensor([place[i] for i in row_ids]), values)

    @cached_property
    def capacity(self) -> Tensor:
        return torch.bincount(self.index, minlength=self.pool.n)

    @cached_property
    def _replicates(self) -> Tensor:  # (n, most) NaN where there is none
        order = torch.argsort(self.index, stable=True)
        start = self.capacity.cumsum(0) - self.capacity
        slot = torch.arange(self.index.shape[0]) - start[self.index[order]]
        table = torch.full((self.pool.n, int(self.capacity.max())), torch.nan, dtype=torch.double)
        table[self.index[order], slot] = self.y[order]
        return table

    @cached_property
    def truth(self) -> Tensor:
        return self._replicates.nanmean(-1)

    @cached_property
    def aleatoric(self) -> Tensor:
        """Sample variance of the replicates; the pooled variance where a point has only one."""
        squares = (self._replicates - self.truth[:, None]) ** 2
        free = (self.capacity - 1).clamp_min(0)
        pooled = squares.nansum() / free.sum().clamp_min(1)
        return torch.where(free > 0, squares.nansum(-1) / free.clamp_min(1), pooled)

    def noise(self, keys: Tensor) -> Tensor:  # (...) -> (..., n)
        """One replicate of every point, drawn at random, minus its mean."""
        zero = torch.zeros(*keys.shape, self.pool.n, dtype=torch.int64)
        return self._pick(torch.arange(self.pool.n).expand_as(zero), zero, keys) - self.truth

    def measure(self, index: Tensor, earlier: Tensor, keys: Tensor, round: int) -> Tensor:
        number = earlier + repeat_number(index)
        if bool((number >= self.capacity[index]).any()):
            raise InputError("a point was asked for more often than the table holds measurements of it")
        return self._pick(index, number, streams.fold(keys, Purpose.ORDER))

    def _pick(self, index: Tensor, number: Tensor, keys: Tensor) -> Tensor:  # (..., m)
        """The `number`-th replicate of each point, in the order of that run."""
        most = self._replicates.shape[1]
        draws = streams.uniform(streams.fold(keys[..., None], index), most)  # (..., m, most)
        exists = torch.arange(most) < self.capacity[index][..., None]
        order = torch.where(exists, draws, 2.0).argsort(dim=-1, stable=True)
        chosen = order.gather(-1, number[..., None])[..., 0]
        return self._replicates[index, chosen]
