"""The contents of a report, read from a campaign through its public methods."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from aicau.campaign.campaign import Campaign
from aicau.campaign.model import Model, Told, replicates
from aicau.core.errors import InputError
from aicau.core.pool import Frame
from aicau.gp.plates import plate_effects
from aicau.prediction import Check
from aicau.report import figures, platemap
from aicau.report.data import Batch, Contents, Labels, Map, Noise
from aicau.store import Moment

MOST_DRAWN = 4000  # candidates on the map
GROUP = 12  # stated probabilities behind a point of the calibration
PARTS = ("measurements", "epistemic", "bias", "aleatoric")  # of what a model states of itself
APART = 0.8  # share of candidates with a place of their own below which points are moved apart
_KEPT: "WeakKeyDictionary[Campaign, tuple[int, Contents]]" = WeakKeyDictionary()


def gather(campaign: Campaign) -> Contents:
    """The contents of a report, kept until the campaign changes; fits the models that are missing."""
    version = campaign.version()
    if (kept := _KEPT.get(campaign)) is None or kept[0] != version:
        kept = _KEPT[campaign] = (version, _gather(campaign, campaign.moment()))
    return kept[1]


def plot(campaign: Campaign, *names: str) -> Figure:
    """The first of these figures that has something to show."""
    contents = gather(campaign)
    for name in names:
        if (made := figures.figure(name, contents)) is not None:
            return made
    raise InputError("there is nothing to draw yet; tell more results first (the report says what each figure needs)")


def _gather(campaign: Campaign, moment: Moment) -> Contents:
    model = None if campaign.models.missing(moment) else campaign.models.at(moment)
    progress = campaign.outlook()
    rounds, checks = _rounds(campaign, moment)
    told, batch = campaign.models.told(moment), campaign.last_batch()
    seen = sorted({row.candidate for row in moment.rows} | set(moment.pending))
    names = dict(zip(seen, campaign.describe(seen).iloc[:, 0].astype(str), strict=True))
    values = defaultdict(list)
    for row in moment.rows:
        values[row.candidate].append(row.label or f"{row.value:.4g}")
    held = progress.held[progress.held.predicted.notna()]
    titles = {
        "measured": [f"{names[at]}: {', '.join(values[at][:4])}" for at in sorted(values)],
        "ink-next": [f"{names[at]}: next" for at in moment.pending],
    }
    for name, some in (("last", held.basis == held.basis.max()), ("earlier", held.basis < held.basis.max())):
        rows = held[some].itertuples()
        titles[name] = [f"{names[r.candidate]}: measured {r.measured:.4g}, predicted {r.predicted:.4g}" for r in rows]
    return Contents(
        settings=campaign.settings,
        rounds=rounds,
        calibration=_calibration(checks),
        noise=Noise() if model is None or told.labels else _noise(told, model),
        map=_map(campaign, moment, told, model),
        batch=batch,
        progress=progress,
        titles=titles,
        plates=platemap.draw(campaign),
        predicted=_predicted(names, batch[0], model),
        measured={names[at]: ", ".join(own) for at, own in values.items()},
        labels=_labels(told, model) if campaign.task == "classification" else None,
    )


def _predicted(names: dict[int, str], frame: pd.DataFrame | None, model: Model | None) -> dict[str, str]:
    """The present predictions of the points of the last batch, by id."""
    if model is None or frame is None:
        return {}
    batch = set(frame.iloc[:, 0].astype(str))
    some = {at: id for at, id in names.items() if id in batch}
    said = pd.DataFrame(model.predict(list(some)).columns(), index=[*some.values()])
    if "mean" not in said:
        return dict(said["predicted"].astype(str))
    return {str(row.Index): f"{row.mean:.3g} ({row.new_low:.3g} to {row.new_high:.3g})" for row in said.itertuples()}


def _rounds(campaign: Campaign, moment: Moment) -> tuple[pd.DataFrame, list[Check]]:
    """The stated errors of the model of every round, and its predictions checked by the next measurements."""
    bases = campaign.models.rounds()
    ends = [*(basis for basis, _ in bases[1:]), moment.basis]
    rounds, checks = [], []
    for (basis, number), end in zip(bases, ends, strict=False):
        if (model := campaign.models.past(basis, number, keep=True)) is None:
            continue
        seen = {row.candidate for row in moment.history if row.tell <= basis}
        new = [row for row in moment.rows if basis < row.tell <= end and row.candidate not in seen]
        if new:
            said = model.predict([row.candidate for row in new])
            checks.append(said.check([row.value if row.label is None else row.label for row in new]))
        rounds.append((number, *(getattr(model.figures, name) for name in PARTS)))
    return pd.DataFrame(rounds, columns=["round", *PARTS]), checks


def _calibration(checks: Sequence[Check]) -> list[tuple[float, float, int]]:
    """(stated probability, observed share, number) of predictions: by level of intervals, or in groups of similar
    probabilities."""
    if not checks:
        return []
    stated, true = (np.concatenate([getattr(c, name).ravel() for c in checks]) for name in ("stated", "true"))
    levels = np.unique(stated)
    if len(levels) <= 2 * GROUP:  # intervals, whose levels are the same for all
        return [(float(p), float(true[stated == p].mean()), int((stated == p).sum())) for p in levels]
    order = np.argsort(stated, kind="stable")
    groups = np.array_split(order, max(1, min(10, len(order) // GROUP)))
    return [(float(stated[some].mean()), float(true[some].mean()), len(some)) for some in groups]


def _rows(told: Told) -> pd.DataFrame:
    """The numbers of candidate and batch of every measurement, and its value or the number of its label."""
    o = told.observations
    return pd.DataFrame({"candidate": o.index[0].numpy(), "batch": o.batch[0].numpy(), "y": o.y[0].numpy()})


def _tally(told: Told, by: str) -> pd.DataFrame:
    """How many labels of each class (columns) every candidate or batch has (rows)."""
    rows = _rows(told)
    found = rows.assign(y=rows.y.astype(int)).groupby([by, "y"]).size().unstack(fill_value=0)
    return found.reindex(columns=range(len(told.labels)), fill_value=0)


def _labels(told: Told, model: Model | None) -> Labels:
    table = _tally(told, "candidate").to_numpy()
    several = table[table.sum(-1) > 1]
    same = (several > 0).sum(-1) == 1
    most = [several.argmax(-1) == at for at in range(len(told.labels))]
    agree, differ = ([int((one & kind).sum()) for one in most] for kind in (same, ~same))
    confusion = () if model is None else model.figures.confusion
    batches = tuple(zip(told.batches, _tally(told, "batch").to_numpy().tolist(), strict=False))
    return Labels(told.labels, table.sum(0).tolist(), confusion, agree, differ, batches)


def _noise(told: Told, model: Model) -> Noise:
    """How far replicates scatter, and the effects of plates."""
    o, rows = told.observations, _rows(told)
    values = rows.groupby("candidate").y
    freedom = len(rows) - values.ngroups
    sd = float(np.sqrt(((rows.y - values.transform("mean")) ** 2).sum() / freedom)) if freedom else 0.0
    batches, between, reach = list[Batch](), None, (0.0, 0.0)
    if len(told.batches) > 1:
        x = model.state.x
        points = Frame.of(x).coordinates(x[o.index[0]].double())
        effects = plate_effects(points, o.y[0], o.batch[0], controls=told.controls)
        between, reach = effects.variance**0.5, (effects.interval[0] ** 0.5, effects.interval[1] ** 0.5)
        count = rows.batch.value_counts()
        found = zip(effects.batches.tolist(), effects.shift.tolist(), effects.error.tolist(), strict=True)
        known = [one for one in found if one[0] < len(told.batches)]  # some of very many rows may leave out a batch
        batches = [Batch(told.batches[at], int(count[at]), shift, error) for at, shift, error in known]
    dispersion = getattr(model.predictor, "dispersion", None) if freedom else None
    expected: list[float] = []
    if freedom and dispersion is None:
        count = values.size()
        count = count[count > 1]
        beside = rows.groupby(["candidate", "batch"]).y.transform("size") - 1  # on one plate: they share its shift
        share = beside.groupby(rows.candidate).sum()[count.index] / (count * (count - 1))
        aleatoric = np.asarray(model.predict(np.array(count.index)).aleatoric)
        expected = np.sqrt(np.maximum(aleatoric - share * model.figures.shared, 0.0)).tolist()
    return Noise(batches, replicates(o), sd, freedom, between, reach, dispersion, expected)


def plane(
    x: torch.Tensor,  # (n, d)
    columns: Sequence[dict[str, Any]],
) -> tuple[tuple[str, str], list[float], NDArray[np.int64], Callable[[Any], NDArray[np.float64]]]:
    """The map of the candidates: one or two features as they are, else the first two principal components.

    Returns the names of the axes, their shares of the variance, a sample of the candidates, and a function from numbers
    of candidates to their places (k, 2).
    """
    n, d = x.shape
    sample = np.linspace(0, n - 1, min(n, MOST_DRAWN)).astype(np.int64)
    part = x[torch.from_numpy(sample)].double()
    features = [column["name"] for column in columns if column["kind"] != "ignored"]
    names = ("first principal component", "second principal component")
    centre, share = part.mean(0), [1.0, 0.0]
    axes = torch.eye(d, dtype=torch.double)
    if d > 2:
        _, s, axes = torch.linalg.svd(part - centre, full_matrices=False)
        for row in axes:  # the sign of an axis is free: make its largest entry positive
            if float(row[row.abs().argmax()]) < 0:
                row.neg_()
        share = (s**2 / (s**2).sum().clamp_min(1e-300)).tolist()
    elif len(features) == d:
        names = (f"{features[0]} (standardised)", f"{features[1]} (standardised)" if d == 2 else "")

    def flat(index: Any) -> NDArray[np.float64]:  # (k, 2)
        points = (x[torch.as_tensor(np.asarray(index, dtype=np.int64))].double() - centre) @ axes[:2].T
        return np.asarray(torch.nn.functional.pad(points, (0, 2 - points.shape[1])).numpy())

    return names, (share + [0.0])[:2], sample, flat


def _map(campaign: Campaign, moment: Moment, told: Told, model: Model | None) -> Map:
    x = campaign.models.features()
    n, d = x.shape
    names, share, sample, flat = plane(x, campaign.settings["columns"])
    drawn = flat(sample)
    moved = len(np.unique(drawn.round(6), axis=0)) < APART * len(drawn)
    room = _room(drawn) if moved else np.zeros(2)

    def place(index: Any) -> NDArray[np.float64]:  # (k, 2)
        # Fractions of multiples of the plastic number's powers: the same for a candidate wherever it is drawn.
        turn = np.asarray(index, dtype=np.float64)[:, None] * np.array([0.7548776662466927, 0.5698402909980532]) % 1
        return flat(index) + room * (turn - 0.5)

    predicted = None
    if told.labels:
        table = _tally(told, "candidate")
        index, values = np.array(table.index), table.to_numpy().argmax(-1).astype(float)
        if model is not None:
            predicted = model.predict(sample).columns()["predicted"]
            predicted = np.array([told.labels.index(label) for label in predicted], dtype=np.int64)
    else:
        means = _rows(told).groupby("candidate").y.mean()
        index, values = np.array(means.index), means.to_numpy()
    return Map(place(sample), place(index), values, place(moment.pending), share, d, n, predicted, names, moved)


def _room(points: NDArray[np.float64]) -> NDArray[np.float64]:  # (k, 2) -> (2,)
    """How far points may move along each axis without meeting those of the next place."""
    steps = [np.diff(np.unique(column.round(6))) for column in points.T]
    return np.array([0.7 * float(np.median(own)) if len(own) else 1.0 for own in steps])
