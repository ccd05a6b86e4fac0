"""Measurements are rows, never overwritten and never averaged on the way in; (mean, count) per point is a view."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau.core.errors import InputError
from aicau.core.runs import OfRuns, mapped, moved


@dataclass(frozen=True)
class Collapsed:
    """One entry per distinct point, padded to the number of rows so that its shape never depends on the values."""

    index: Tensor  # (..., l) pool index; 0 where padded
    mean: Tensor  # (..., l) mean of the measurements; 0 where padded
    count: Tensor  # (..., l) number of measurements; 0 where padded

    @property
    def valid(self) -> Tensor:  # (..., l)
        return self.count > 0


@dataclass(frozen=True)
class Observations(OfRuns):
    """All measurements so far, one row each. Leading dimensions are runs.

    Parameters
    ----------
    index : Tensor of int64, shape (..., l)
        Which point of the pool.
    y : Tensor of float64, shape (..., l)
        What came out.
    round : Tensor of int64, shape (l,)
        In which round.
    batch : Tensor of int64, shape (..., l), optional
        What was measured together (a plate, a day) and shares noise; the round where it is not given.

    Raises
    ------
    InputError
        Shapes that do not belong together.

    Examples
    --------
    >>> import torch
    >>> from aicau import Observations
    >>> rows = Observations(torch.tensor([4, 7, 4]), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 0, 1]))
    >>> rows.collapse().mean
    tensor([2., 2., 0.])
    """

    common: ClassVar[tuple[str, ...]] = ("round",)
    index: Tensor
    y: Tensor
    round: Tensor
    batch: Tensor = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.index.shape != self.y.shape or self.index.shape[-1:] != self.round.shape:
            shapes = tuple(self.index.shape), tuple(self.y.shape), tuple(self.round.shape)
            raise InputError(f"index, y and round must have as many rows; got shapes {shapes}")
        if self.batch is None:
            object.__setattr__(self, "batch", self.round.expand_as(self.index))
        if self.batch.shape != self.index.shape:
            raise InputError(
                f"batch ids need the shape of the index {tuple(self.index.shape)}; got {tuple(self.batch.shape)}"
            )

    @property
    def rows(self) -> int:
        return self.index.shape[-1]

    def append(self, index: Tensor, y: Tensor, round: int, batch: Tensor | None = None) -> "Observations":
        """A new table with the rows of one round behind the old ones."""
        new = Observations(index, y, self.round.new_full((index.shape[-1],), round), batch)  # type: ignore[arg-type]
        return mapped(lambda *parts: torch.cat(parts, -1), self, new)

    def to(self, device: torch.device) -> "Observations":
        return moved(self, device)

    def thin(self, most: int) -> "Observations":
        """At most that many rows, evenly spaced."""
        at = torch.linspace(0, self.rows - 1, min(self.rows, most), device=self.y.device).long()
        return mapped(lambda part: part[..., at], self)

    def counts(self, n: int) -> Tensor:  # (..., n)
        """How often each of n pool points was measured."""
        zeros = torch.zeros(*self.index.shape[:-1], n, dtype=torch.int64, device=self.index.device)
        return zeros.scatter_add(-1, self.index, torch.ones_like(self.index))

    def draws(self, n: int, run: int = 0) -> Tensor:  # (N, n)
        """What was measured together, as rows over the pool (Appendix D): one per batch, NaN where nothing was.

        A point measured twice in a batch gives that batch a second row. `omega_together` and `omega_uncorrelated`
        take the result.
        """
        index, y, batch = (t[run] if t.ndim > 1 else t for t in (self.index, self.y, self.batch))
        rows: dict[tuple[int, int], Tensor] = {}
        often: dict[tuple[int, int], int] = {}
        for i, value, b in zip(index.tolist(), y, batch.tolist(), strict=True):
            again = often[b, i] = often.get((b, i), -1) + 1
            rows.setdefault((b, again), torch.full((n,), torch.nan, dtype=y.dtype, device=y.device))[i] = value
        return torch.stack([rows[key] for key in sorted(rows)])

    def collapse(self) -> Collapsed:
        """The view (point, mean, count), in rising order of the pool index."""
        order = torch.argsort(self.index, dim=-1, stable=True)
        index, y = self.index.gather(-1, order), self.y.gather(-1, order)
        fresh = torch.ones_like(index)
        fresh[..., 1:] = (index[..., 1:] != index[..., :-1]).to(index.dtype)
        slot = fresh.cumsum(-1) - 1
        count = torch.zeros_like(index).scatter_add(-1, slot, torch.ones_like(index))
        total = torch.zeros_like(y).scatter_add(-1, slot, y)
        first = torch.zeros_like(index).scatter(-1, slot, index)
        return Collapsed(first, total / count.clamp_min(1), count)
