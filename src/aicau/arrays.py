"""The round on arrays: `query` chooses, `predict` predicts, for a table and, if there is one, a model."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau import ensembles
from aicau.acquisition import View
from aicau.core import checks, streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.pool import coordinates
from aicau.core.task import REGRESSION, Task
from aicau.ensembles import Ensemble
from aicau.prediction import Prediction
from aicau.round import Round, round_keys
from aicau.strategy import Strategy, chooser

LARGEST = 1e60  # of y


def query(
    strategy: Strategy | str,
    X: Any,
    y: Any,
    candidates: Any = None,
    batch_size: int = 1,
    return_utilities: bool = False,
    *,
    batch: Any = None,
    ensemble: Ensemble | None = None,
    task: Task = REGRESSION,
    random_state: int = 0,
    weight: Any = None,
) -> NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Choose from a table, with the signature and the meaning of scikit-activeml.

    Parameters
    ----------
    strategy : Strategy or str
    X : array, shape (n, d)
        Numbers of like size: networks see them as they are (a campaign standardises them). Rows with the same features
        are replicates of one point.
    y : array, shape (n,)
        NaN where unlabelled; class numbers for classification.
    candidates : array, optional
        None: all unlabelled rows of X; row numbers of X; or features (then the answer points into them).
    batch_size : int
    return_utilities : bool
        Also return the score of every row at every step, shape (batch_size, n).
    batch : array, shape (n,), optional
        What was measured together (a plate, a day): shared shifts are taken out.
    ensemble : Ensemble, optional
        F_k; the paper's networks where it is not given.
    task : Task
    random_state : int
    weight : array, shape (n,), optional
        How much the error of each row of X counts, 0 or more; rows of `candidates` that are features count 1.

    Returns
    -------
    index : array of int, shape (batch_size,)
    utilities : array, shape (batch_size, n), if asked for

    Notes
    -----
    One call sees one round, so a strategy of differences answers with its plain version; `simulate` keeps rounds.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> y = np.where(np.arange(30) % 6 == 0, X[:, 0] ** 2, np.nan)
    >>> query("pemse:direct:spread", X, y, batch_size=2).shape
    (2,)
    """
    own, keys = _round(ensemble, task), round_keys(streams.runs(random_state, 1), 0)
    chosen = chooser(strategy, task)
    table = _table(X, y)
    features, number, size = _candidates(candidates, table)
    batch_size, rows = checks.positive(batch_size, "batch_size"), len(table.features)
    points, place = torch.unique(torch.cat([table.features, features]), dim=0, return_inverse=True)
    asked, seen = place[rows:], place[:rows][table.labelled]
    room = torch.zeros(1, len(points), dtype=torch.int64)
    room[0, asked] = 1
    if chosen.needs_model:
        if not len(seen):
            raise InputError(f"{chosen.name!r} needs at least one labelled row; start with 'random' or 'farthest'")
        state = own.fit(points, table.rows(seen, batch), keys)
        others = asked if np.ndim(candidates) == 2 else asked[:0]
        counts = None if weight is None else _weights(weight, place[:rows], others, len(points))
        choice = own.choose(chosen, state, own.estimate(chosen.bias, state), batch_size, room, weight=counts)
    else:
        measured = torch.zeros(1, len(points), dtype=torch.bool)
        measured[0, seen] = True
        choice = chosen.choose(View(coordinates(points), room > 0, measured, keys), batch_size)
    found = choice.selection.index[0][:, None] == asked  # several rows may be one point: the first is answered
    index = number[found.int().argmax(-1)].numpy()
    if not return_utilities:
        return index
    utilities = np.full((batch_size, size), np.nan)
    utilities[:, number] = choice.alpha[0, asked].numpy()
    for step in range(batch_size):
        utilities[step, index[:step]] = np.nan
    return index, utilities


def predict(
    X: Any,
    y: Any,
    *,
    batch: Any = None,
    ensemble: Ensemble | None = None,
    task: Task = REGRESSION,
    random_state: int = 0,
) -> Prediction:
    """Predict every row of a table, as a campaign does: debiased, with calibrated intervals.

    Parameters
    ----------
    X : array, shape (n, d)
        Numbers of like size: networks see them as they are (a campaign standardises them). Rows with the same features
        are replicates of one point.
    y : array, shape (n,)
        NaN where unlabelled; class numbers for classification.
    batch : array, shape (n,), optional
        What was measured together (a plate, a day): shared shifts are taken out.
    ensemble : Ensemble, optional
        F_k; the paper's networks where it is not given.
    task : Task
    random_state : int

    Returns
    -------
    ValuePrediction, ClassPrediction or CountPrediction
        For the n rows, by task; `columns()` gives arrays by name.

    Raises
    ------
    InputError
        Nothing is labelled, shapes differ, or a number is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from aicau import predict
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> y = np.where(np.arange(30) % 3 == 0, X[:, 0] ** 2, np.nan)
    >>> predict(X, y).columns()["mean"].shape
    (30,)
    """
    own, table = _round(ensemble, task), _table(X, y)
    points, place = torch.unique(table.features, dim=0, return_inverse=True)
    keys = round_keys(streams.runs(random_state, 1), 0)
    state = own.fit(points, table.rows(place[table.labelled], batch), keys)
    return own.predictor(state).predict(state, place)


@dataclass(frozen=True)
class _Table:
    features: Tensor  # (n, d)
    labels: Tensor  # (n,) NaN where unlabelled
    labelled: Tensor  # (n,)

    def rows(self, index: Tensor, batch: Any) -> Observations:  # (l,) points of the labelled rows -> (1, l)
        """Measurements, one row each, with their plates."""
        plates = torch.zeros_like(index)
        if batch is not None:
            names = np.asarray(batch)
            if names.shape != tuple(self.labels.shape):
                raise InputError(f"batch needs one entry per row of X: {len(self.labels)}; got shape {names.shape}")
            codes = np.unique(names[self.labelled.numpy()].astype(str), return_inverse=True)[1]
            plates = torch.from_numpy(codes.astype(np.int64))
        return Observations(index[None], self.labels[self.labelled][None], torch.zeros_like(index), plates[None])


def _table(X: Any, y: Any) -> _Table:
    features = checks.features(X, "X")
    labels = checks.numbers(y, "y", missing=True)
    if labels.shape != features.shape[:1]:
        raise InputError(f"y needs one entry per row of X: {len(features)}; got shape {tuple(labels.shape)}")
    if (size := float(labels.nan_to_num().abs().max())) > LARGEST:
        raise InputError(f"y holds {size:.3g}, and its square is no number; write it in a larger unit")
    return _Table(features, labels, ~torch.isnan(labels))


def _round(ensemble: Ensemble | None, task: Task) -> Round:
    made = ensembles.make(task=task) if ensemble is None and isinstance(task, Task) else ensemble
    return Round(made, task)


def _weights(weight: Any, place: Tensor, others: Tensor, points: int) -> Tensor:  # (n,), (n,), (c,) -> (1, points)
    """How much each point counts: the largest weight of its rows of X, and at least 1 for other candidates."""
    values = checks.numbers(weight, "weight")
    fits = values.shape == place.shape
    if not fits or bool((values < 0).any()):
        got = f"{float(values.min()):g}" if fits else f"shape {tuple(values.shape)}"
        raise InputError(f"weight needs one number per row of X, 0 or more: {len(place)}; got {got}")
    least = torch.zeros(1, points).to(values).index_fill(1, others, 1.0)
    return least.scatter_reduce(1, place[None], values[None], "amax")


def _candidates(candidates: Any, table: _Table) -> tuple[Tensor, Tensor, int]:  # (c, d), (c,)
    """Features of the candidates, their numbers in the answer, and the number of rows these point into."""
    features = table.features
    array = (~table.labelled).nonzero()[:, 0].numpy() if candidates is None else np.asarray(candidates)
    if array.ndim == 2:
        extra = checks.features(array, "candidates")
        if extra.shape[1] != features.shape[1]:
            raise InputError(f"candidates need {features.shape[1]} features, as X; got {extra.shape[1]}")
        return extra, torch.arange(len(extra)), len(extra)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InputError("candidates are row numbers of X or a table of features")
    rows = torch.as_tensor(array).long()
    if len(rows) == 0:
        raise InputError("there is no candidate to choose from; in y, NaN says that a row may be chosen")
    if int(rows.min()) < 0 or int(rows.max()) >= len(features):
        raise InputError(f"candidates point outside X, which has {len(features)} rows")
    return features[rows], rows, len(features)
