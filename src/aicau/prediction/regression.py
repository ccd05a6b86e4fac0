"""Values: the ensemble combined with Gaussian processes and trees (`combination`), with intervals.

Up to four measured points the debiased ensemble μ_F − m is handed out, and C, the posterior variance of the process
behind `posterior`, is what is left to learn about the truth. Intervals are Gaussian, widened or narrowed by how large
the standardised errors of left-out measurements turned out (a conformal quantile, shrunk to the Gaussian one).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.bias import BiasEstimator, Correction, Posterior
from aicau.core import decomposition
from aicau.core.runs import PORTION, SMALL, over, threads
from aicau.prediction import combination
from aicau.prediction.base import LEVELS, PARTS, Check, Figures, Numbers, State, parts_at, quantile
from aicau.prediction.combination import Combination

LEVEL = 0.95
COMBINED = "combination."  # before the names of its tensors
COLUMNS = ("mean", "low", "high", "new_low", "new_high", *PARTS, "ensemble")


@dataclass(frozen=True)
class ValuePrediction:
    """Means with intervals and the parts of the expected squared error; all of shape (n,).

    Parameters
    ----------
    mean : Tensor
        The combination; the debiased ensemble μ_F − m where there is none.
    ensemble : Tensor
        μ_F as it is.
    epistemic, bias, aleatoric : Tensor
        σ²_F, (μ_F − mean)² + unknown, and the variance of one measurement (its plate included).
    unknown : Tensor
        Expected squared error of `mean`.
    left_out, share : Tensor, shape (l,)
        Standardised errors of left-out measurements, and what each weighs.
    level : float
        Of the intervals `low` to `high` (of the truth) and `new_low` to `new_high` (of a new measurement).

    Examples
    --------
    >>> import numpy as np
    >>> from aicau import predict
    >>> X = np.linspace(0, 1, 20)[:, None]
    >>> said = predict(X, np.where(np.arange(20) % 4 == 0, X[:, 0], np.nan))
    >>> bool((said.new_low <= said.low).all() and (said.low <= said.mean).all())
    True
    """

    mean: Tensor
    ensemble: Tensor
    epistemic: Tensor
    bias: Tensor
    aleatoric: Tensor
    unknown: Tensor
    left_out: Tensor
    share: Tensor
    level: float = LEVEL

    def _end(self, side: int, variance: Tensor) -> Tensor:
        return self.mean + side * quantile(self.left_out, self.level, self.share) * variance.sqrt()

    @property
    def low(self) -> Tensor:
        return self._end(-1, self.unknown)

    @property
    def high(self) -> Tensor:
        return self._end(1, self.unknown)

    @property
    def new_low(self) -> Tensor:
        return self._end(-1, self.unknown + self.aleatoric)

    @property
    def new_high(self) -> Tensor:
        return self._end(1, self.unknown + self.aleatoric)

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """By their names in a table."""
        return {name: getattr(self, name).cpu().numpy() for name in COLUMNS}

    def check(self, y: Sequence[Any]) -> Check:
        """Squared errors, and which intervals held."""
        new = np.asarray(y, dtype=float)
        ends = [replace(self, level=float(level)) for level in LEVELS]
        inside = [(one.new_low.numpy() <= new) & (new <= one.new_high.numpy()) for one in ends]
        stated = np.broadcast_to(LEVELS, (len(new), len(LEVELS)))
        return Check((new - self.mean.numpy()) ** 2, stated, np.stack(inside, -1))

    def spread(self) -> float:
        """Variance of the truth over these candidates."""
        return float(self.mean.var(correction=0) + self.unknown.mean())

    def summary(self, place: int) -> tuple[str, Numbers]:
        """One candidate in words, and as numbers."""
        kept = (self.mean, self.ensemble, self.new_low, self.new_high, self.unknown)
        mean, ensemble, low, high, unknown = (float(part[place]) for part in kept)
        taken = ensemble - mean
        parts, total, words = parts_at(self, place, f" ({taken:+.3g} is taken out)")
        words = (
            f"predicted {mean:.3g} ({low:.3g} to {high:.3g}), expected error of a network {total**0.5:.3g}: {words}"
            f" (sd {parts['aleatoric'] ** 0.5:.3g})"
        )
        numbers = {"prediction": mean, "new_low": low, "new_high": high, **parts, "taken_out": taken}
        return words, {**numbers, "unknown": unknown}


@dataclass(frozen=True)
class ValuePredictor:
    """The process that corrects the ensemble, what it is combined with, and what plates share."""

    correction: Correction
    shared: float  # variance of what a plate adds, in units
    batches: int
    figures: Figures
    combination: Combination | None = None  # None: too few points

    @classmethod
    def fit(
        cls, state: State, estimator: BiasEstimator | None = None, labels: Sequence[str] = (), combine: bool = True
    ) -> "ValuePredictor":
        """The correction is that of `posterior`, also where the strategy chooses by another estimator."""
        process = estimator if isinstance(estimator, Posterior) else Posterior()
        evidence = state.evidence()
        correction = process.correction(evidence)
        with threads(1):  # so that a second core never changes a bit
            together = combination.fit(state, correction, process.most_rows) if combine else None
        if together is None:  # a candidate is left out with its replicates
            rows = evidence.at_most(process.most_rows)[0].observations.index[0]
            error = float((correction.process.posterior.left_out_groups(rows)[0] ** 2).mean())
        else:
            error = together.error
        batches = max(1, int(state.observations.batch[0].unique().numel()))
        scale, shared = float(state.scale[0]), float(state.shared[0])
        own = {"shared": shared * scale**2, "common": shared / batches * scale**2}
        figures = Figures.of(state, error**0.5 * scale, **own)
        found = cls(correction, shared, batches, figures, together)
        return replace(found, figures=figures.with_parts(found, state))

    @classmethod
    def load(cls, tensors: dict[str, Tensor], words: dict[str, Any], figures: Figures) -> "ValuePredictor":
        with threads(1):  # as it was fitted
            correction = Correction.load(tensors, **words["correction"])
            together = None
            if words["combination"] is not None:
                own = {name.removeprefix(COMBINED): t for name, t in tensors.items() if name.startswith(COMBINED)}
                together = Combination.load(own, words["combination"], correction.frame)
        return cls(correction, words["shared"], words["batches"], figures, together)

    def predict(self, state: State, index: Tensor | None = None) -> ValuePrediction:
        """All candidates or some, in the target's own units; of a large pool in portions side by side."""
        index = torch.arange(len(state.x)) if index is None else index
        if len(state.x) <= SMALL:
            with threads(1):
                parts = self._parts(state, index)
        else:
            found = over(lambda some: self._parts(state, some), index.split(PORTION))
            parts = tuple(torch.cat(part) for part in zip(*found, strict=True))
        mean, ensemble, apart, off, new, left = parts
        return ValuePrediction(mean, ensemble, apart, off, new, left, *self._left_out())

    def _parts(self, state: State, index: Tensor) -> tuple[Tensor, ...]:  # (m,) -> (m,) each
        """Mean, ensemble, epistemic, bias, aleatoric, unknown."""
        members, x, scale = state.predictions[0][:, index], state.x[index], state.scale[0]
        ensemble = decomposition.mean(members).double()
        mean, unknown, own = self._at(x, index, ensemble)
        # What the plates so far have in common nobody can tell from the truth; a new plate has a shift of its own.
        unknown = unknown + self.shared / self.batches
        off = ((ensemble - mean) ** 2 + unknown) * scale**2
        apart = decomposition.epistemic(members).double() * scale**2
        own_mean, own_ensemble = (state.in_units(part[None])[0] for part in (mean, ensemble))
        return own_mean, own_ensemble, apart, off, (own + self.shared) * scale**2, unknown * scale**2

    def _at(self, x: Tensor, index: Tensor, ensemble: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, expected squared error and noise of the candidates x (m, d), in units; all (m,)."""
        if self.combination is None:
            bias, unknown, own = (part[0] for part in self.correction.at(x, ensemble[None]))
            return ensemble - bias, unknown, own
        return self.combination.at(x, index, ensemble, self.correction.noise(x))

    def _left_out(self) -> tuple[Tensor, Tensor]:  # (l,) twice
        """Standardised left-out errors, and what each weighs."""
        if self.combination is not None:
            return self.combination.left_out, self.combination.share
        return self.correction.left_out[0], torch.ones_like(self.correction.left_out[0])

    def tensors(self) -> dict[str, Tensor]:
        kept = self.correction.state()
        if self.combination is not None:
            kept |= {f"{COMBINED}{name}": part for name, part in self.combination.tensors().items()}
        return kept

    def words(self) -> dict[str, Any]:
        own = None if self.combination is None else self.combination.words()
        words = {"correction": self.correction.words(), "combination": own}
        return words | {"shared": self.shared, "batches": self.batches}
