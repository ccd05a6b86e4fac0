"""A table of replicated measurements as a problem: what a laboratory already has, replayed without replacement."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from aicau.core import checks, streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.pool import Pool
from aicau.core.streams import Purpose
from aicau.problems.base import Problem, repeat_number


@dataclass(frozen=True)
class TableProblem(Problem):
    """A table of measurements, replayed: replicates of each point come once each, in an order that depends on the run.

    The truth is the mean of a point's replicates, its noise their variance. A point can be measured as often as the
    table holds a value for it. With batch ids, a measurement belongs to the batch it was taken in. With `daily`, a
    round is one of the batches in turn: what was measured in that batch is handed out first.

    Parameters
    ----------
    name : str
    pool : Pool
    index : Tensor of int64, shape (rows,)
        Pool index of each measurement.
    y : Tensor, shape (rows,)
    batch : Tensor of int64, shape (rows,), optional
        0 to levels − 1; None: a round is a batch.
    daily : bool
        A round is one of the batches in turn.

    Examples
    --------
    >>> from aicau import TableProblem
    >>> table = TableProblem.from_arrays("two", [[0.0], [1.0]], ["a", "b"], ["a", "a", "b"], [1.0, 3.0, 5.0])
    >>> table.truth.tolist()
    [2.0, 5.0]
    """

    name: str
    pool: Pool
    index: Tensor
    y: Tensor
    batch: Tensor | None = None
    daily: bool = False

    def __post_init__(self) -> None:
        if self.daily and self.batch is None:
            raise InputError("a table replayed batch by batch needs the batch of each measurement")
        if self.batch is not None and self.batch.shape != self.y.shape:
            raise InputError(f"{self.y.shape[0]} measurements need as many batch ids; got {self.batch.shape[0]}")

    @classmethod
    def from_arrays(
        cls,
        name: str,
        x: Any,  # (n, d) features, one row per point
        ids: Sequence[Hashable],  # (n,) id of each point
        row_ids: Sequence[Hashable],  # (rows,) id of each measurement
        y: Any,  # (rows,)
        batch: Sequence[Any] | None = None,  # (rows,) plate, day or source of each measurement
        daily: bool = False,
    ) -> "TableProblem":
        """From a table of points and a table of measurements that share an id. Points never measured are left out."""
        features, values = checks.features(x), checks.numbers(y, "y")
        ids, row_ids, batch = list(ids), list(row_ids), None if batch is None else list(batch)
        if len(ids) != features.shape[0] or len(set(ids)) != len(ids):
            raise InputError(f"{features.shape[0]} points need as many distinct ids; got {len(set(ids))}")
        if len(row_ids) != values.shape[0] or not row_ids:
            raise InputError(f"{len(row_ids)} measurement ids and {values.shape[0]} values: need as many, at least one")
        measured = set(row_ids)
        if missing := measured - set(ids):
            raise InputError(f"{len(missing)} measured ids are not among the points, e.g. {next(iter(missing))!r}")
        kept = [row for row, name_ in enumerate(ids) if name_ in measured]
        place = {ids[row]: new for new, row in enumerate(kept)}
        pool = Pool(features[kept], tuple(str(ids[row]) for row in kept))
        if (
            missing_at := next((row for row, one in enumerate(batch or ()) if one is None or one != one), None)
        ) is not None:
            raise InputError(f"measurement {missing_at} has no batch id; give each measurement one, or leave batch out")
        words = sorted(set(batch or ()), key=lambda one: (str(type(one)), one))  # numbers beside text, too
        level = {word: number for number, word in enumerate(words)}
        levels = None if batch is None else torch.tensor([level[word] for word in batch], dtype=torch.int64)
        return cls(name, pool, torch.tensor([place[i] for i in row_ids]), values, levels, daily)

    @cached_property
    def capacity(self) -> Tensor:
        return torch.bincount(self.index, minlength=self.pool.n)

    @cached_property
    def _rows(self) -> Tensor:  # (n, most) rows of the table that belong to each point, −1 where there are no more
        order = torch.argsort(self.index, stable=True)
        return pad_sequence(order.split(self.capacity.tolist()), batch_first=True, padding_value=-1)

    @cached_property
    def _replicates(self) -> Tensor:  # (n, most) NaN where there is none
        return torch.where(self._rows >= 0, self.y[self._rows], torch.nan)

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
        points = torch.arange(self.pool.n).expand(*keys.shape, -1)
        return self.y[self._row(points, torch.zeros_like(points), keys)] - self.truth

    def measure(self, index: Tensor, earlier: Tensor, keys: Tensor, round: int) -> Tensor:
        return self.y[self._next(index, earlier, keys)]

    def draw(self, index: Tensor, history: Observations, keys: Tensor, round: int) -> tuple[Tensor, Tensor]:
        if self.batch is None:
            return super().draw(index, history, keys, round)
        if self.daily:
            rows = self._next_of_day(index, history, keys, round % (int(self.batch.max()) + 1))
        else:
            rows = self._next(index, history.counts(self.pool.n).gather(-1, index), keys)
        return self.y[rows], self.batch[rows]

    def _next(self, index: Tensor, earlier: Tensor, keys: Tensor) -> Tensor:  # (..., m) rows of the table
        number = earlier + repeat_number(index)
        self._check_left(number, self.capacity[index])
        return self._row(index, number, streams.fold(keys, Purpose.ORDER))

    def _next_of_day(self, index: Tensor, history: Observations, keys: Tensor, day: int) -> Tensor:  # (..., m)
        """Rows not used yet, those of `day` first, else in the order of the run.

        Rows of one point and one day are always used in the order of the run, so how many were used says which.
        """
        assert self.batch is not None
        rows, exists = self._in_order(index, streams.fold(keys, Purpose.ORDER))  # (..., m, most)
        days = torch.where(exists, self.batch[rows], -1)
        place = torch.tril(days[..., :, None] == days[..., None, :], diagonal=-1).sum(-1)  # among the rows of its day
        same = index[..., :, None] == history.index[..., None, :]  # (..., m, l)
        used = [(same & (history.batch[..., None, :] == slot[..., None])).sum(-1) for slot in days.unbind(-1)]
        free = exists & (place >= torch.stack(used, -1))
        number = repeat_number(index)
        self._check_left(number, free.sum(-1))
        order = torch.where(free, (days != day).long(), 2).argsort(dim=-1, stable=True)
        return rows.gather(-1, order.gather(-1, number[..., None]))[..., 0]

    def _check_left(self, number: Tensor, left: Tensor) -> None:
        if bool((number >= left).any()):
            raise InputError("a point was asked for more often than the table holds measurements of it")

    def _row(self, index: Tensor, number: Tensor, keys: Tensor) -> Tensor:  # (..., m)
        """The row of the `number`-th replicate of each point, in the order of that run."""
        return self._in_order(index, keys)[0].gather(-1, number[..., None])[..., 0]

    def _in_order(self, index: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:  # (..., m, most) twice
        """The rows of each point in the order of that run, and which of them exist."""
        most = self._rows.shape[1]
        draws = streams.uniform(streams.fold(keys[..., None], index), most)
        exists = torch.arange(most) < self.capacity[index][..., None]
        order = torch.where(exists, draws, 2.0).argsort(dim=-1, stable=True)
        return self._rows[index].gather(-1, order), exists
