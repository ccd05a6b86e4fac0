"""Greedy sampling of scikit-activeml (Wu, Lin & Huang 2019): far from what was measured, in x, in y, or in both.

`gsx` is GreedySamplingX; `gsi` is GreedySamplingTarget as it comes (distance in x times distance in y) and `gsy` the
same in y alone. Distances in x are Euclidean in the coordinates of the pool; y is measured where there are measurements
and the mean of our F_k elsewhere, handed over as a regressor that is already fitted.

Points are taken one by one, each then counted as labelled with its predicted value, which is what one call for a whole
batch does; but that call holds a matrix of n² distances and copies it for each point. Only points not measured yet are
candidates (a measured one has distance 0); ties are broken at random, as they do.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicau.acquisition import View
from aicau.core import decomposition, streams
from aicau.core.errors import InputError
from aicau.core.streams import Purpose
from bench.peers.base import Peer, require

CHUNK = 2000  # candidates in one call
Array = NDArray[np.float64]


def select(name: str, method: str | None, view: View, m: int) -> list[int]:
    pool = require("skactiveml.pool", name)
    x = view.x.double().cpu().numpy()
    candidates = (view.allowed[0] & ~view.measured[0]).nonzero()[:, 0].cpu().numpy()
    known, y, mean = _labels(name, method, view)
    tie = streams.uniform(streams.fold(view.keys[0], Purpose.CHOICE), len(x)).cpu().numpy()
    chosen: list[int] = []
    while len(chosen) < min(m, len(candidates)):
        left = np.setdiff1d(candidates, chosen)
        labelled = np.concatenate([known, chosen]).astype(np.int64)
        values = np.concatenate([y, mean[chosen]])
        parts = np.array_split(left, -(-len(left) // CHUNK))
        score = np.concatenate([_utilities(pool, method, x, labelled, values, part, mean) for part in parts])
        best = left[score == score.max()]
        chosen.append(int(best[tie[best].argmax()]))
    return chosen


def _utilities(
    pool: Any,
    method: str | None,
    x: Array,  # (n, d)
    labelled: NDArray[np.int64],  # (l,)
    values: Array,  # (l,)
    part: NDArray[np.int64],  # (c,)
    mean: Array,  # (n,)
) -> Array:  # (c,)
    question = {"X": x[labelled], "y": values, "candidates": x[part], "return_utilities": True}
    if method is None:
        _, utilities = pool.GreedySamplingX(random_state=0).query(**question)
    else:
        strategy = pool.GreedySamplingTarget(method=method, random_state=0)
        _, utilities = strategy.query(**question, reg=_fitted(mean[part]), fit_reg=False)
    return np.asarray(utilities)[0]


def _fitted(values: Array) -> Any:
    """A regressor in the eyes of scikit-activeml that answers with the predictions of F_k at the candidates."""
    base = require("skactiveml.base", "gsi").SkactivemlRegressor

    class Lookup(base):  # type: ignore[misc, valid-type]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Lookup":
            return self

        def predict(self, X: Any) -> Array:
            if len(X) != len(values):
                raise InputError(f"predictions were asked at {len(X)} points and belong to {len(values)}")
            return values

    return Lookup()


def _labels(name: str, method: str | None, view: View) -> tuple[NDArray[np.int64], Array, Array]:
    """Points measured (l,), their mean measurements (l,), and the mean of F_k over the pool (n,)."""
    known = view.measured[0].nonzero()[:, 0].cpu().numpy()
    if len(known) == 0:
        raise InputError(f"{name} needs at least one measurement; start with 'random' or 'farthest'")
    if method is None:
        return known, np.zeros(len(known)), np.zeros(view.x.shape[0])
    if view.observations is None or view.predictions is None:
        raise InputError(f"{name} needs the measurements and the predictions of an ensemble")
    seen = view.observations[0].collapse()
    mean = decomposition.mean(view.predictions[0]).double().cpu().numpy()
    return seen.index[seen.valid].cpu().numpy(), seen.mean[seen.valid].cpu().numpy(), mean


PEERS = (
    Peer("gsx", partial(select, "gsx", None)),
    Peer("gsi", partial(select, "gsi", "GSi")),
    Peer("gsy", partial(select, "gsy", "GSy")),
)
