"""What a report shows, read from a campaign and its kept models: plain numbers, no drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from aicau.campaign import Campaign
from aicau.measured import Measured
from aicau.model import Prediction
from aicau.page import Batch, Map, Noise, Round, Story
from aicau.store import PENDING, Moment

MOST_DRAWN = 4000  # candidates on the map
LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])


@dataclass(frozen=True)
class Held:
    """New points of a round and what the model before them had said."""

    y: NDArray[np.float64]
    mean: NDArray[np.float64]
    half: NDArray[np.float64]  # of the 95% interval


def tell_story(campaign: Campaign) -> Story:
    """Fits the model of the last measurements where no one has yet; reads everything else."""
    with campaign.store.reading() as session:
        moment = Moment.read(session)
        last = session.last_ask()
        last_batch = campaign._batch(session, last.id) if last is not None else None
        states = [row.status for row in session.proposals(last.id)] if last is not None else []
    if moment.rows:
        campaign._fitted(moment)
    with campaign.store.reading() as session:
        infos = session.model_infos()
    held = [_held(campaign, moment.rows, basis, nxt) for basis, nxt in _steps([i[0] for i in infos], moment.basis)]
    rounds = [_round(round, info, one) for (_, round, info), one in zip(infos, held, strict=True)]
    model = campaign._fitted(moment) if moment.rows else None
    noise = _noise(moment.rows, model) if model is not None else Noise((), (), 0.0, 0, None)
    return Story(
        settings=campaign.settings,
        status=campaign.status(),
        rounds=rounds,
        calibration=_calibration(held),
        noise=noise,
        map=_map(campaign, moment),
        batch=last_batch,
        batch_round=None if last is None else last.round,
        states=states,
    )


def _steps(bases: Sequence[int], end: int) -> list[tuple[int, int]]:
    """Each model and the first later moment: what was told in between, the model had not seen."""
    return list(zip(bases, [*bases[1:], end][: len(bases)], strict=True))


def _held(campaign: Campaign, rows: Sequence[Any], basis: int, end: int) -> Held:
    seen = {row.candidate for row in rows if row.tell <= basis}
    new = [row for row in rows if basis < row.tell <= end and row.candidate not in seen]
    if not new:
        return Held(np.zeros(0), np.zeros(0), np.zeros(0))
    with campaign.store.reading() as session:
        kept = session.model(basis)
    said = campaign._loaded(kept).predict(np.array([row.candidate for row in new], dtype=np.int64))
    assert isinstance(said, Prediction)
    return Held(np.array([row.value for row in new]), said.mean, (said.high - said.low) / 2)


def _round(round: int, info: dict[str, Any], held: Held) -> Round:
    error = float(np.sqrt(np.mean((held.y - held.mean) ** 2))) if len(held.y) else None
    return Round(
        round,
        info["measurements"],
        info["out_of_fold_rmse"],
        error,
        len(held.y),
        info["mean_epistemic"],
        info["mean_square_bias"],
        info["aleatoric"],
    )


def _calibration(held: Sequence[Held]) -> list[tuple[float, float, int]]:
    """(nominal, observed, number) of intervals around predictions made before the measurement."""
    if not any(len(h.y) for h in held):
        return []
    y, mean, half = (np.concatenate([getattr(h, name) for h in held]) for name in ("y", "mean", "half"))
    ratio = np.abs(y - mean) / np.maximum(half, 1e-300)
    unit = stats.norm.ppf(0.975)
    return [(float(p), float(np.mean(ratio <= stats.norm.ppf(0.5 + p / 2) / unit)), len(y)) for p in LEVELS]


def _noise(rows: Sequence[Any], model: Any) -> Noise:
    measured = Measured.of(rows)
    said = model.predict(measured.index)
    residual = measured.y - said.mean
    batches: dict[str, list[int]] = {}
    for at, row in enumerate(rows):
        if row.batch is not None:
            batches.setdefault(row.batch, []).append(at)
    shifts = []
    for name, members in batches.items():
        part = residual[members]
        error = float(part.std(ddof=1) / np.sqrt(len(part))) if len(part) > 1 else None
        shifts.append(Batch(name, len(part), float(part.mean()), error))
    known = [b for b in shifts if b.error is not None]
    between = None
    if len(known) > 1:
        chance = np.mean([b.error**2 for b in known if b.error is not None])
        spread = float(np.var([b.shift for b in known], ddof=1) - chance)
        between = float(np.sqrt(max(spread, 0.0)))
    variance, freedom = measured.replicate_variance()
    return Noise(tuple(shifts), _replicates(measured), float(np.sqrt(variance)), freedom, between)


def _replicates(measured: Any) -> tuple[tuple[float, float, int], ...]:
    """(mean, standard deviation, count) of every candidate with at least two single values."""
    single = np.flatnonzero(np.isnan(measured.sem))
    found = []
    for candidate, count in zip(*np.unique(measured.index[single], return_counts=True), strict=True):
        if count > 1:
            values = measured.y[single][measured.index[single] == candidate]
            found.append((float(values.mean()), float(values.std(ddof=1)), int(count)))
    return tuple(found)


def _map(campaign: Campaign, moment: Moment) -> Map:
    """First two principal components of the encoded features; a sample of the candidates stands for all."""
    x = campaign._features()
    n, d = x.shape
    sample = np.linspace(0, n - 1, min(n, MOST_DRAWN)).astype(np.int64)
    part = x[torch.from_numpy(sample)].double()
    centre = part.mean(0)
    _, s, axes = torch.linalg.svd(part - centre, full_matrices=False)
    for row in axes:  # the sign of an axis is free: make its largest entry positive
        if float(row[row.abs().argmax()]) < 0:
            row.neg_()
    share = (s**2 / (s**2).sum().clamp_min(1e-300)).tolist()

    def place(index: Any) -> NDArray[np.float64]:  # (k, 2)
        points = (x[torch.as_tensor(np.asarray(index, dtype=np.int64))].double() - centre) @ axes[:2].T
        return np.asarray(torch.nn.functional.pad(points, (0, 2 - points.shape[1])).numpy())

    values: dict[int, list[float]] = {}
    for row in moment.rows:
        values.setdefault(row.candidate, []).append(row.value)
    with campaign.store.reading() as session:
        pending = session.candidates(PENDING)
    mean = np.array([np.mean(v) for v in values.values()])
    return Map(place(sample), place(list(values)), mean, place(pending), (share + [0.0])[:2], d, n)
