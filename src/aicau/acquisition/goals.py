"""Goals: w(z), how much the error at a candidate z counts.

It is 1 for `map`, else the probability that z passes a threshold: T of `above:T` and `below:T`, for `max` and `min` the
value that a twentieth of all candidates is expected to pass, Σ_z P(f(z) > t) = n/20. f(z) is taken as normal, with the
predicted mean and its expected squared error.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.core.errors import InputError, unknown

GOALS = ("map", "max", "min", "above", "below")
BEST = 0.05  # share of the candidates that is looked for
HALVINGS = 60  # of the interval that holds the threshold: down to rounding


@dataclass(frozen=True)
class Goal:
    """What a campaign is for."""

    name: str = "map"
    threshold: float | None = None  # for above and below

    @classmethod
    def parse(cls, text: str) -> "Goal":
        """A goal from its words: map, max, min, above:T or below:T."""
        name, colon, rest = str(text).strip().lower().partition(":")
        if name not in GOALS:
            raise unknown("goal", name, list(GOALS))
        beyond = name in ("above", "below")
        if bool(colon) != beyond:
            clear = f"{name}:3.5, with your threshold" if beyond else name
            raise InputError(f"goal {text!r} is not clear; write {clear}")
        if not beyond:
            return cls(name)
        try:
            threshold = float(rest)
        except ValueError:
            threshold = math.nan
        if not math.isfinite(threshold):
            raise InputError(f"goal {text!r} needs a number behind the colon, for example {name}:3.5")
        return cls(name, threshold)

    def __str__(self) -> str:
        return self.name if self.threshold is None else f"{self.name}:{self.threshold:g}"

    @property
    def seeks(self) -> bool:
        """Whether the points themselves are wanted, not only a good prediction of them."""
        return self.name in ("max", "min")

    @property
    def meaning(self) -> str:
        """What w is, in words; empty where all candidates count alike."""
        if self.name == "map":
            return ""
        beyond = f"lies {self.name} {self.threshold:g}" if self.threshold is not None else "is among the best twentieth"
        return f"chance that it {beyond}"

    def weights(self, mean: Tensor, variance: Tensor) -> Tensor | None:  # (n,) twice -> (n,)
        """w over the candidates; None where all count alike."""
        if self.name == "map":
            return None
        sign = -1.0 if self.name in ("min", "below") else 1.0
        mean, spread = sign * mean, variance.clamp_min(0).sqrt()
        at = _best_from(mean, spread) if self.threshold is None else torch.as_tensor(sign * self.threshold).to(mean)
        return beyond(mean, spread, at)


def beyond(mean: Tensor, spread: Tensor, at: Tensor) -> Tensor:  # (n,) twice, ()
    """P(f > t) of a normal f; ½ if f is certain and equal to t."""
    tiny = torch.finfo(mean.dtype).tiny
    return torch.special.ndtr(((mean - at) / spread.clamp_min(tiny)).nan_to_num(0.0))


def _best_from(mean: Tensor, spread: Tensor) -> Tensor:  # (n,) twice -> ()
    """The value that a share of `BEST` of the candidates is expected to pass."""
    wanted = max(1.0, BEST * len(mean))
    low, high = (mean - 9 * spread).min() - 1, (mean + 9 * spread).max() + 1
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        more = beyond(mean, spread, middle).sum() > wanted
        low, high = torch.where(more, middle, low), torch.where(more, high, middle)
    return (low + high) / 2
