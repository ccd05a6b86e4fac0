"""What a report shows, read from a campaign and its kept models: plain numbers, no drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aicau.campaign.campaign.campaign import Campaign
from aicau.campaign.campaign.model import Model
from aicau.core import bregman
from aicau.prediction.values import discrete
from aicau.prediction.values.discrete import ClassPrediction, CountPrediction
from aicau.prediction.values.measured import Measured
from aicau.simulation.curves.data import Batch, Labels, Map, Noise, Round, Story
from aicau.store import PENDING, Moment

MOST_DRAWN = 4000  # candidates on the map
LEAST = 1e-3  # probability that counts for a label which the model had never seen
GROUP = 12  # stated probabilities behind a point of the calibration
LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])


@dataclass(frozen=True)
class Held:
    """New measurements of a round, against what the model before them had said."""

    loss: NDArray[np.float64]  # (k,) squared error, log loss or divergence of each
    stated: NDArray[np.float64]  # (k, q) probabilities that were stated, of intervals or of classes
    true: NDArray[np.bool_]  # (k, q) whether it came so


def tell_story(campaign: Campaign) -> Story:
    """Fits the model of the last measurements where no one has yet; reads everything else."""
    with campaign.store.reading() as session:
        moment = Moment.read(session)
        last = session.last_ask()
        last_batch = campaign._batch(session, last.id) if last is not None else None
        states = [row.status for row in session.proposals(last.id)] if last is not None else []
    model = campaign.models.at(moment) if campaign.models.enough(moment) else None
    with campaign.store.reading() as session:
        infos = session.model_infos()
    held = [_held(campaign, moment.rows, basis, nxt) for basis, nxt in _steps([i[0] for i in infos], moment.basis)]
    rounds = [_round(round, info, one) for (_, round, info), one in zip(infos, held, strict=True)]
    classes = campaign.task == "classification"
    noise = _noise(moment.rows, model) if model is not None and not classes else Noise((), (), 0.0, 0, None)
    return Story(
        settings=campaign.settings,
        status=campaign.status(),
        rounds=rounds,
        calibration=_calibration(held, classes),
        noise=noise,
        map=_map(campaign, moment, model),
        batch=last_batch,
        batch_round=None if last is None else last.round,
        states=states,
        labels=_labels(moment.rows, model) if classes else None,
        note="" if model is None else model.note,
    )


def _steps(bases: Sequence[int], end: int) -> list[tuple[int, int]]:
    """Each model and the first later moment: what was told in between, the model had not seen."""
    return list(zip(bases, [*bases[1:], end][: len(bases)], strict=True))


def _held(campaign: Campaign, rows: Sequence[Any], basis: int, end: int) -> Held:
    seen = {row.candidate for row in rows if row.tell <= basis}
    new = [row for row in rows if basis < row.tell <= end and row.candidate not in seen]
    if not new or (model := campaign.models.kept(basis)) is None:
        return Held(np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0), dtype=bool))
    index = np.array([row.candidate for row in new], dtype=np.int64)
    said = model.predict(index)
    if isinstance(said, ClassPrediction):
        true = np.array([[row.label == label for label in said.labels] for row in new])
        given = np.where(true.any(-1), (said.probability * true).sum(-1), LEAST)
        return Held(-np.log(np.maximum(given, LEAST)), said.probability, true)
    y = np.array([row.value for row in new])
    stated = np.broadcast_to(LEVELS, (len(y), len(LEVELS)))
    if isinstance(said, CountPrediction):
        ends = [
            discrete.interval(said.mean, said.variance, model.info["measurements"], float(level)) for level in LEVELS
        ]
        true = np.stack([(low <= y) & (y <= high) for low, high in ends], -1)
        return Held(bregman.divergence("poisson", y[:, None], said.mean[:, None]).numpy(), stated, true)
    stages = [model.predict(index, float(level)).columns() for level in LEVELS]
    inside = np.stack([(one["new_low"] <= y) & (y <= one["new_high"]) for one in stages], -1)
    return Held((y - said.mean.numpy()) ** 2, stated, inside)


def _round(round: int, info: dict[str, Any], held: Held) -> Round:
    values = "out_of_fold_rmse" in info
    error = float(held.loss.mean()) if len(held.loss) else None
    return Round(
        round,
        info["measurements"],
        info["out_of_fold_rmse" if values else "out_of_fold"],
        error**0.5 if values and error is not None else error,
        len(held.loss),
        info["mean_epistemic"],
        info["mean_square_bias" if values else "mean_bias"],
        info["aleatoric"],
    )


def _calibration(held: Sequence[Held], classes: bool) -> list[tuple[float, float, int]]:
    """(stated, observed, number) of what was said before the measurement: by level of intervals, or in groups of
    similar probabilities."""
    there = [h for h in held if len(h.loss)]
    if not there:
        return []
    stated, true = (np.concatenate([getattr(h, name).ravel() for h in there]) for name in ("stated", "true"))
    if not classes:
        return [(float(p), float(true[stated == p].mean()), int((stated == p).sum())) for p in LEVELS]
    order = np.argsort(stated, kind="stable")
    groups = np.array_split(order, max(1, min(10, len(order) // GROUP)))
    return [(float(stated[some].mean()), float(true[some].mean()), len(some)) for some in groups]


def _tally(rows: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], Measured]:
    """Labels of every class (columns) of each candidate that has any (rows), and which candidates these are."""
    measured = Measured.of(rows)
    index, place = np.unique(measured.index, return_inverse=True)
    table = np.zeros((len(index), len(measured.labels)), dtype=np.int64)
    np.add.at(table, (place, measured.y.astype(int)), measured.count)
    return table, index, measured


def _most(table: NDArray[np.int64]) -> NDArray[np.int64]:  # (candidates, classes) -> (candidates,)
    """The most frequent class of each; of no candidates where there is no class yet."""
    return table.argmax(-1) if table.size else np.zeros(len(table), dtype=np.int64)


def _labels(rows: Sequence[Any], model: Model | None) -> Labels:
    table, _, measured = _tally(rows)
    several = table[table.sum(-1) > 1]
    same = (several > 0).sum(-1) == 1
    c = len(measured.labels)
    agree, differ = (np.bincount(_most(part), minlength=c) for part in (several[same], several[~same]))
    batches: dict[str, Any] = {}
    for row, code in zip(rows, measured.y.astype(int), strict=True):
        if row.batch is not None:
            batches.setdefault(row.batch, np.zeros(c, dtype=np.int64))[code] += row.repeats
    confusion = [] if model is None else model.info["confusion"]
    return Labels(
        measured.labels,
        tuple(table.sum(0).tolist()),
        tuple(tuple(row) for row in confusion),
        tuple(agree.tolist()),
        tuple(differ.tolist()),
        tuple((name, tuple(counts.tolist())) for name, counts in batches.items()),
    )


def _noise(rows: Sequence[Any], model: Model) -> Noise:
    measured = Measured.of(rows)
    said = model.predict(measured.index)
    assert not isinstance(said, ClassPrediction)
    residual = measured.y - said.columns()["mean"]
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
    known_scatter = model.info.get("dispersion") if freedom else None
    return Noise(tuple(shifts), _replicates(measured), float(np.sqrt(variance)), freedom, between, known_scatter)


def _replicates(measured: Any) -> tuple[tuple[float, float, int], ...]:
    """(mean, standard deviation, count) of every candidate with at least two single values."""
    single = np.flatnonzero(np.isnan(measured.sem))
    found = []
    for candidate, count in zip(*np.unique(measured.index[single], return_counts=True), strict=True):
        if count > 1:
            values = measured.y[single][measured.index[single] == candidate]
            found.append((float(values.mean()), float(values.std(ddof=1)), int(count)))
    return tuple(found)


def _map(campaign: Campaign, moment: Moment, model: Model | None) -> Map:
    """First two principal components of the encoded features; a sample of the candidates stands for all."""
    x = campaign.models.features()
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

    if campaign.task == "classification":
        table, index, _ = _tally(moment.rows)
        values = dict(zip(index.tolist(), _most(table).astype(float), strict=True))
    else:
        known = Measured.of(moment.rows)
        values = {int(at): float(known.y[known.index == at].mean()) for at in dict.fromkeys(known.index.tolist())}
    predicted = None
    if model is not None and isinstance(said := model.predict(sample), ClassPrediction):
        predicted = said.probability.argmax(-1)
    with campaign.store.reading() as session:
        pending = session.candidates(PENDING)
    drawn = np.array(list(values.values()))
    return Map(place(sample), place(list(values)), drawn, place(pending), (share + [0.0])[:2], d, n, predicted)
