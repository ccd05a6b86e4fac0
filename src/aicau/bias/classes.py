"""Where an ensemble of classifiers is wrong: beliefs about the probabilities p(x) behind noisy labels.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| F̄ | `centre` | (..., n, c) | dual mean of the members |
| f̂ | `frequency` | (..., l, c) | share of each class among the labels of a point |
| p | `Belief` | (..., n, c) | estimate of E Y from the labels |

`direct` is the paper's estimate in the dual space: the residual there is a difference of logarithms. `posterior` keeps
the second moment: far from data p is unknown, and the expected divergence says so (aicau.acquisition.terms).
"""

from functools import partial

import torch
from torch import Tensor

from aicau.bias.base import Belief, Evidence
from aicau.core import bregman
from aicau.core.observations import Collapsed, Observations
from aicau.core.runs import by_run
from aicau.ensembles.base import one_hot
from aicau.ensembles.process import centre_and_spread
from aicau.gp import noise

MOST_LABELS = 800  # that the processes see: every class has one of its own
LEAST = 1e-3  # probability that a process may leave a class
FULL = 0.999  # of the largest variance a probability can have
TINY = 1e-12  # of a probability whose logarithm is taken


def frequencies(observations: Observations, classes: int) -> tuple[Collapsed, Tensor]:  # (..., l, c)
    """Measured points, and the share of each class among the labels of each; 0 where padded."""
    hot, o = one_hot(observations.y, classes), observations
    seen = [Observations(o.index, hot[..., c], o.round, o.batch).collapse() for c in range(classes)]
    return seen[0], torch.stack([one.mean for one in seen], -1)


def direct(evidence: Evidence) -> Belief:
    """A process on [x, log F̄, spread] predicts log F̄ − log q, class by class; q are frequencies shrunk to F̄.

    A point with N labels has q = (N f̂ + F̄)/(N + 1): the ensemble counts as one label, so that a single label that
    agrees with it is no evidence of a bias. Residuals of single labels are rough, so unlike the paper's process for
    values this one learns their noise and smooths measured points, too.
    """
    c = evidence.task.classes
    seen, share = frequencies(evidence.observations, c)
    centre = evidence.centre().clamp_min(TINY)
    n = centre.shape[-2]

    def believe(predictions: Tensor, centre: Tensor, index: Tensor, count: Tensor, share: Tensor) -> Tensor:
        log = centre.log()
        spread = bregman.epistemic_of(bregman.KL, evidence.task.members(predictions).clamp_min(TINY), centre)
        x = evidence.x.double().expand(*centre.shape[:-1], -1)
        side = torch.cat([x, log - log.mean(-1, keepdim=True), spread[..., None]], -1)
        shift, scale = evidence.learned("side", lambda: centre_and_spread(side))
        side = (side - shift[..., None, :]) / scale[..., None, :]
        rows, own = (part.take_along_dim(index[..., None], -2) for part in (side, centre))
        shrunk = (count[..., None] * share + own) / (count[..., None] + 1)
        residual = torch.where(count[..., None] > 0, own.log() - shrunk.log(), 0.0)
        counts, valid = each(count.clamp_min(1), c), each(count > 0, c)
        fit = partial(noise.fit, each(rows, c), apiece(residual), counts=counts, valid=valid)
        seen = evidence.learned("direct", fit)
        guess = seen.posterior.mean(each(side, c)).reshape(-1, c, n).mT
        return torch.softmax(log - guess, -1)

    parts = (evidence.predictions, centre, seen.index, seen.count, share)
    return Belief(by_run(believe, *parts, lead=evidence.keys.ndim))


def posterior(evidence: Evidence, batches: str, rank: int) -> Belief:
    """A Gaussian process on the indicator of each class, one row per label, batch effects taken out."""
    c, o = evidence.task.classes, evidence.observations.thin(MOST_LABELS)
    points = evidence.frame.coordinates(evidence.x.double())
    n = len(points)

    def believe(index: Tensor, hot: Tensor, batch: Tensor) -> tuple[Tensor, ...]:
        together = each(batch, c) if batches != "none" and noise.several(batch) else None
        rows = each(points[index], c)
        fit = partial(noise.fit, rows, apiece(hot), together, None, batches == "field", True)
        found = evidence.learned(("posterior", batches), fit)
        at = points.expand(len(rows), -1, -1)
        pivots = evidence.learned(("pivots", batches, rank), lambda: found.posterior.pivots(at, rank))
        factor, rest = found.posterior.factor(at, pivots)
        shares = (found.posterior.mean(at), rest, found.variance_at(at))
        mean, rest, own = (part.reshape(-1, c, n).mT for part in shares)
        return mean, factor.reshape(len(hot), c, n, factor.shape[-1]), rest, own

    return on_simplex(*by_run(believe, o.index, one_hot(o.y, c), o.batch, lead=o.y.ndim - 1))


def each(part: Tensor, c: int) -> Tensor:  # (runs, ...) -> (runs·c, ...)
    """The same for every class: the processes of one run's classes are fitted in one call."""
    return part.repeat_interleave(c, 0)


def apiece(values: Tensor) -> Tensor:  # (runs, l, c) -> (runs·c, l)
    """Each class its own target."""
    return values.mT.reshape(-1, values.shape[-2])


def on_simplex(mean: Tensor, factor: Tensor, rest: Tensor, own: Tensor) -> Belief:
    # (..., n, c), (..., c, n, r), (..., n, c) twice; `own` is the variance of the noise
    """A Gaussian belief made one about probabilities: means in the simplex, variances that a probability can have.

    A label that comes with probability p̂ varies by p̂(1 − p̂) around it, whatever the process thinks. Of that, what is
    unknown of p is the share that it has for the process, v/(v + σ²); the rest is noise.
    """
    inside = mean.clamp_min(LEAST)
    inside = inside / inside.sum(-1, keepdim=True)
    raw = Belief(inside, factor, rest)
    scale = FULL * inside * (1 - inside) / (raw.variance() + own).clamp_min(1e-300)  # (..., n, c)
    return Belief(inside, factor * scale.mT.sqrt()[..., None], rest * scale)
