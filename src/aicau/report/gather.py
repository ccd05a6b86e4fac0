"""What a report shows, read from a campaign through its public methods: plain numbers, no drawing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aicau.campaign.campaign import Campaign
from aicau.campaign.model import Model
from aicau.campaign.rows import Told, read, replicates
from aicau.core.pool import Frame
from aicau.gp import noise
from aicau.prediction import Check
from aicau.report.data import WORDS, Batch, Contents, Labels, Map, Noise, Round
from aicau.store import Moment

MOST_DRAWN = 4000  # candidates on the map
GROUP = 12  # stated probabilities behind a point of the calibration


def gather(campaign: Campaign) -> Contents:
    """Fits the model of the last measurements where no one has yet; reads everything else."""
    moment = campaign.moment()
    model = None if campaign.models.missing(moment) else campaign.models.at(moment)
    rounds, checks = _rounds(campaign, moment)
    told = read(moment.rows)
    frame, states, number = campaign.last_batch()
    return Contents(
        settings=campaign.settings,
        status=campaign.status(),
        rounds=rounds,
        calibration=_calibration(checks),
        noise=_noise(told, model) if model is not None and not told.labels else Noise((), (), 0.0, 0, None),
        map=_map(campaign, moment, told, model),
        batch=frame,
        batch_round=number,
        states=states,
        labels=_labels(told, model) if WORDS[campaign.task].labelled else None,
    )


def _rounds(campaign: Campaign, moment: Moment) -> tuple[list[Round], list[Check]]:
    """The model of every round, and what was measured next against it."""
    bases = campaign.models.rounds()
    ends = [*(basis for basis, _ in bases[1:]), moment.basis]
    rounds, checks = [], []
    for (basis, number), end in zip(bases, ends, strict=False):
        model = campaign.models.past(basis, number, keep=True)
        if model is None:
            continue
        seen = {row.candidate for row in moment.history if row.tell <= basis}
        new = [row for row in moment.rows if basis < row.tell <= end and row.candidate not in seen]
        error = None
        if new:
            said = model.predict([row.candidate for row in new])
            check = said.check([row.value if row.label is None else row.label for row in new])
            checks.append(check)
            error = WORDS[campaign.task].mean_error(check.loss)
        f = model.figures
        rounds.append(Round(number, f.measurements, f.error, error, len(new), f.epistemic, f.bias, f.aleatoric))
    return rounds, checks


def _calibration(checks: Sequence[Check]) -> list[tuple[float, float, int]]:
    """(stated, observed, number) of what was said before the measurement: by level of intervals, or in groups of
    similar probabilities."""
    if not checks:
        return []
    stated = np.concatenate([check.stated.ravel() for check in checks])
    true = np.concatenate([check.true.ravel() for check in checks])
    levels = np.unique(stated)
    if len(levels) <= 2 * GROUP:  # intervals, whose levels are the same for all
        return [(float(p), float(true[stated == p].mean()), int((stated == p).sum())) for p in levels]
    order = np.argsort(stated, kind="stable")
    groups = np.array_split(order, max(1, min(10, len(order) // GROUP)))
    return [(float(stated[some].mean()), float(true[some].mean()), len(some)) for some in groups]


def _tally(told: Told) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels of every class (columns) of each candidate that has any (rows), and which candidates these are."""
    index, place = np.unique(told.observations.index[0].numpy(), return_inverse=True)
    table = np.zeros((len(index), len(told.labels)), dtype=np.int64)
    np.add.at(table, (place, told.observations.y[0].numpy().astype(int)), 1)
    return table, index


def _most(table: NDArray[np.int64]) -> NDArray[np.int64]:  # (candidates, classes) -> (candidates,)
    """The most frequent class of each; of no candidates where there is no class yet."""
    return table.argmax(-1) if table.size else np.zeros(len(table), dtype=np.int64)


def _labels(told: Told, model: Model | None) -> Labels:
    table, _ = _tally(told)
    several = table[table.sum(-1) > 1]
    same = (several > 0).sum(-1) == 1
    c = len(told.labels)
    agree, differ = (np.bincount(_most(part), minlength=c) for part in (several[same], several[~same]))
    batch, code = told.observations.batch[0].numpy(), told.observations.y[0].numpy().astype(int)
    batches = [np.bincount(code[batch == at], minlength=c) for at in range(len(told.batches))]
    return Labels(
        told.labels,
        tuple(table.sum(0).tolist()),
        () if model is None else model.figures.confusion,
        tuple(agree.tolist()),
        tuple(differ.tolist()),
        tuple((name, tuple(counts.tolist())) for name, counts in zip(told.batches, batches, strict=True)),
    )


def _noise(told: Told, model: Model) -> Noise:
    """Scatter of replicates, and the plate effects as the model estimates them."""
    o = told.observations
    index, y = o.index[0].numpy(), o.y[0].numpy()
    _, place, count = np.unique(index, return_inverse=True, return_counts=True)
    mean = np.bincount(place, y) / count
    freedom = len(y) - len(mean)
    sd = float(np.sqrt(((y - mean[place]) ** 2).sum() / freedom)) if freedom else 0.0
    batches: list[Batch] = []
    between = None
    if len(told.batches) > 1:
        x = model.state.x
        points = Frame.of(x).coordinates(x[o.index[0]].double())
        effects = noise.plate_effects(points, o.y[0], o.batch[0])
        between = effects.variance**0.5
        rows = zip(told.batches, effects.batches.tolist(), effects.shift.tolist(), effects.error.tolist(), strict=False)
        batches = [Batch(name, int((o.batch[0] == at).sum()), shift, error) for name, at, shift, error in rows]
    dispersion = getattr(model.predictor, "dispersion", None) if freedom else None
    return Noise(tuple(batches), tuple(replicates(o)), sd, freedom, between, dispersion)


def _map(campaign: Campaign, moment: Moment, told: Told, model: Model | None) -> Map:
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

    predicted = None
    if told.labels:
        table, index = _tally(told)
        values = _most(table).astype(float)
        if model is not None:
            predicted = model.predict(sample).columns()["predicted"]
            predicted = np.array([told.labels.index(label) for label in predicted], dtype=np.int64)
    else:
        index, where = np.unique(told.observations.index[0].numpy(), return_inverse=True)
        values = np.bincount(where, told.observations.y[0].numpy()) / np.bincount(where) if len(index) else np.zeros(0)
    return Map(place(sample), place(index), values, place(moment.pending), (share + [0.0])[:2], d, n, predicted)
