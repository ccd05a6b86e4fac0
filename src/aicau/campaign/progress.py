"""The expected error over all candidates, and advice. It comes from the store: no model is loaded, without PyTorch.

| symbol | name in code | meaning |
|---|---|---|
| u(x) | `unknown` | expected error of a prediction against the truth (squared for values) |
| ū | `Figures.unknown` | its mean over the pool, as the model of a round stated it |
| s(x) | `noise` | expected error of one measurement against the truth, without the shift of its plate |
| g | `common` | part of ū that all plates share |
| c | `factor` | errors on the batches that came next, relative to the u(x) stated for them |
| w | `SHARE` | part of s that may be an error of the model, while few candidates were measured twice |

The error over the pool is c·(ū − g) + g + w·s̄. New points are chosen where u(x) is large, so their mean error is not
that of the pool. The ratio of their errors to **the u(x) stated for them** holds for the pool, too: it is c. The mean
error of a new plate is its shift, and is taken out first.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from aicau.campaign.setup import called, is_log, task_of
from aicau.store import Session, numbers_of, schema

# Chosen on 18 data sets, checked on six others and with another seed: benchmarks/honest_error.py.
PRIOR = 0.5  # standard deviation of ln c before anything was held out
WEIGHT, DECAY = 0.5, 0.5  # of a measurement of the last batch: errors of one batch go together; of the batch before it
DOUBT = 0.6  # standard deviation of ln(error²) that no batch takes away: it was not drawn from the pool
SHARE, FREEDOM = 0.5, 10  # w without replicates, and measurements beyond the first of a candidate that halve it
Z = 1.645  # 90% intervals
LEAST, MOST = 0.004, 3.84  # 90% of squares of one normal draw: what all plates share is one number
GRID = np.linspace(-3, 3, 241)
LITTLE, ENOUGH, FEW = 0.1, 0.03, 5  # R² that is nothing; gain not worth a batch; points too few to judge
ENOUGH_HELD = 20  # measurements of new candidates that show whether anything was learned
POWER, TRUST = 0.35, 2.0  # of errors by measurements before any were seen, and how firmly
COLUMNS = ["round", "measurements", "error", "low", "high", "mean_only", "noise", "r2"]
COLUMNS += ["new_error", "new_low", "new_high", "gain"]
HELD = ["basis", "tell", "round", "candidate", "batch", "predicted", "low", "high", "measured"]
HELD += ["loss", "unknown", "noise"]


@dataclass(frozen=True)
class Progress:
    """Rounds with the error over the pool, and measurements beside the predictions made before them."""

    rounds: pd.DataFrame  # COLUMNS, and of the batch that came next: held_out, held_out_centred
    held: pd.DataFrame  # HELD, error and moved: one row per candidate and batch, none that had been measured before
    advice: str


def factor(loss: Any, unknown: Any, noise: Any, age: Any = 0) -> tuple[float, float]:  # (k,) each
    """c and the standard deviation of ln c, from errors of mean c·unknown + noise; `age` counts batches since."""
    loss, unknown, noise = (np.asarray(part, dtype=float) for part in (loss, unknown, noise))
    if not len(loss):
        return 1.0, PRIOR
    total = np.maximum(np.exp(GRID)[:, None] * unknown + noise, 1e-300)
    trust = WEIGHT * DECAY ** np.broadcast_to(np.asarray(age, dtype=float), loss.shape)
    cost = (trust * (np.log(total) + loss / total)).sum(-1) + (GRID / PRIOR) ** 2
    weight = np.exp(-0.5 * (cost - cost.min()))
    mean = float((weight * GRID).sum() / weight.sum())
    return float(np.exp(mean)), float(np.sqrt((weight * (GRID - mean) ** 2).sum() / weight.sum()))


def centred(held: pd.DataFrame, shared: float) -> pd.DataFrame:
    """Squared errors without the mean of their batch, `moved`; for a batch of one the shift is part of the noise."""
    mean = held.groupby("batch").error.transform("mean")
    size = held.groupby("batch").error.transform("size").to_numpy()
    alone = size == 1
    loss = np.where(alone, held.error**2, (held.error - mean) ** 2 * size / np.maximum(size - 1, 1))
    return held.assign(loss=loss, noise=held.noise + shared * alone, moved=np.where(alone, 0.0, mean))


def over_pool(figures: dict[str, Any], held: pd.DataFrame, root: bool, plates: int = 0) -> dict[str, float]:
    """The error over all candidates with its interval, that of predicting the mean, and the noise.

    Parameters
    ----------
    figures : dict
        Of the model (`aicau.prediction.Figures`).
    held : DataFrame
        Earlier held-out errors: `loss`, `unknown`, `noise`, and `basis`, the tells behind the model that predicted.
    root : bool
        Whether errors are squares.
    plates : int
        How many there were. The shift of a single plate is unknown, and taken to be as large as the noise.
    """
    age = held.basis.map({basis: at for at, basis in enumerate(sorted(held.basis.unique(), reverse=True))})
    c, doubt = factor(held.loss, held.unknown, held.noise, age)
    noise = max(figures["noise"], 0.0)
    common = noise if plates == 1 and root else figures["common"]
    mistaken = SHARE * noise / (1 + figures["freedom"] / FREEDOM) if root else 0.0
    error = c * max(figures["unknown"] - figures["common"], 0.0) + common + mistaken
    spread = max(figures["spread"] - figures["unknown"] + error, 1e-300)
    half = float(np.exp(Z * np.hypot(doubt, DOUBT)))
    local, own = error - common, noise - mistaken
    found = {"error": error, "low": local / half + LEAST * common, "high": local * half + MOST * common}
    found |= {"new_error": error + own, "new_low": (local + own) / half}
    found |= {"new_high": (local + own) * half + MOST * common, "mean_only": spread, "noise": own}
    found = {name: float(value) ** 0.5 if root else float(value) for name, value in found.items()}
    return found | {"r2": 1 - error / spread, "factor": c, "common": common}


def explained(held: pd.DataFrame) -> float:
    """R² of predictions of new candidates within their batches, of all models or of the last three if that is larger.

    NaN where too little was held out.
    """
    by = held.groupby(["basis", "batch"])
    some = held[["error", "measured"]]
    some = ((some - by[["error", "measured"]].transform("mean")) ** 2).assign(basis=held.basis)
    some = some[by.error.transform("size") > 1]
    if len(some) < ENOUGH_HELD:
        return float("nan")
    sums = some.groupby("basis").sum()
    return max(float(1 - part.error.sum() / max(part.measured.sum(), 1e-300)) for part in (sums, sums.iloc[-3:]))


def look(session: Session) -> Progress:
    """The progress of a campaign so far."""
    settings = session.settings
    root = task_of(settings) == "regression"
    fitted = [one for one in session.model_figures() if one[2].get("unknown") is not None]
    figures = {basis: own for basis, _, own in fitted}
    infos = {round: (basis, own) for basis, round, own in fitted}  # the last model of a round
    held = _held(session)
    plates = {(row.tell, row.batch) for row in session.measurements() if row.status == "ok"}
    parts = []
    for basis, group in held.groupby("basis"):
        own = figures.get(int(str(basis)), {"shared": 0.0, "common": 0.0})
        some = group.assign(unknown=(group.unknown - own["common"]).clip(lower=0))
        parts.append(centred(some, own["shared"]) if root and settings["batch"] is not None else some)
    held = pd.concat(parts) if parts else held
    rows: list[dict[str, Any]] = []
    for round, (basis, own) in infos.items():
        after = held[held.basis == basis]
        known = len({batch for tell, batch in plates if tell <= basis}) if settings["batch"] is not None else 0
        found: dict[str, Any] = {"round": round, "measurements": own["measurements"]}
        found |= over_pool(own, held[held.tell <= basis], root, known)
        before = [one for other, (_, one) in infos.items() if other <= round]
        counts, local = zip(*((one["measurements"], one["unknown"] - one["common"]) for one in before), strict=True)
        found["gain"] = gain(counts, found.pop("factor") * np.array(local), found["common"], own["shared"])
        found["held_r2"] = explained(held[held.tell <= basis]) if root else np.nan
        pairs = {"held_out": after.error**2 if root else after.loss, "held_out_centred": after.loss}
        found |= {k: float(v.mean()) ** (0.5 if root else 1) if len(v) else np.nan for k, v in pairs.items()}
        rows.append(found | {"points": own["points"]})
    table = pd.DataFrame(rows, columns=[*COLUMNS, "held_out", "held_out_centred", "held_r2", "points", "common"])
    rounds, words = table.drop(columns=["points", "common"]), advice(table, called(settings))
    return Progress(rounds, held.reset_index(drop=True), words)


def _held(session: Session) -> pd.DataFrame:
    """Measurements of new candidates, beside what their ask predicted."""
    task, log, current = task_of(session.settings), is_log(session.settings), session.measurements()
    classes = len({row.label for row in current} - {None})
    asks = {row.id: row for row in session.table(schema.asks)}
    said: dict[int, tuple[Any, dict[str, Any]]] = {}
    for row in session.proposals():
        numbers = numbers_of(row, session.target)
        if "prediction" in numbers and "measured_before" not in numbers:
            said.setdefault(row.candidate, (asks[row.ask], numbers))
    told = defaultdict(list)
    for row in current:
        if row.status == "ok" and row.candidate in said and row.tell > said[row.candidate][0].basis:
            told[(row.candidate, row.batch or "")].append(row)
    found = []
    for (candidate, batch), rows in told.items():
        ask, numbers = said[candidate]
        count = sum(row.repeats for row in rows)
        unknown = numbers.get("unknown", numbers["bias"] - numbers.get("taken_out", 0.0) ** 2)
        noise, measured, error = numbers["aleatoric"], np.nan, np.nan
        if task == "classification":
            p = min(max(float(numbers["probability"]), 1e-3), 1 - 1e-3)
            losses = [-np.log(p if r.label == numbers["prediction"] else (1 - p) / max(classes - 1, 1)) for r in rows]
            loss, predicted = float(np.mean(losses)), np.nan
        else:
            unit = np.log if log else float
            measured = sum(float(unit(r.value)) * r.repeats for r in rows) / count
            predicted = float(unit(numbers["prediction"]))
            error, noise = measured - predicted, noise / count
            loss = error**2
            if task == "count":  # the Poisson divergence
                loss = (measured * float(np.log(measured / predicted)) if measured > 0 else 0.0) - measured + predicted
        ends = tuple(np.log(numbers[k]) if log else numbers.get(k, np.nan) for k in ("new_low", "new_high"))
        own = (ask.basis, rows[0].tell, ask.round, candidate, batch, predicted, *ends, measured, loss, unknown, noise)
        found.append((*own, error, 0.0))
    return pd.DataFrame(found, columns=[*HELD, "error", "moved"])


def gain(measurements: Any, local: Any, common: float, shared: float) -> float:  # (rounds,) twice
    """Share of the error over the pool that another batch, as large as the last, is expected to take away.

    The error that a model states (`local`) falls about as a power of the measurements: the power of the rounds so far,
    shrunk to `POWER` (for its root). The part that plates share falls as their number grows.
    """
    rows, stated = np.asarray(measurements, dtype=float), np.maximum(np.asarray(local, dtype=float), 1e-300)
    moved = np.log(rows) - np.log(rows).mean()
    slope = float((moved * np.log(stated)).sum()) / 2
    power = float(np.clip((TRUST * POWER - slope) / (TRUST + (moved**2).sum()), 0, 1))
    step = rows[-1] - rows[-2] if len(rows) > 1 else rows[-1]
    plates = max(shared / common, 1.0) if common > 0 else 1.0
    after = stated[-1] * (1 + step / rows[-1]) ** (-2 * power) + common * plates / (plates + 1)
    return float(1 - np.sqrt(after / max(stated[-1] + common, 1e-300)))


def advice(table: pd.DataFrame, target: str) -> str:
    """One or two sentences: go on or stop, and why."""
    if not len(table) or table.points.iloc[-1] < FEW:
        return "Go on: too little is measured to say how good the predictions are."
    now = table.iloc[-1]
    share = now.gain
    error, mean, noise = (f"{now[name]:.3g}" for name in ("error", "mean_only", "noise"))
    state = f"The expected error of {target} over all candidates is {error} ({now.low:.3g} to {now.high:.3g})"
    if now.r2 < LITTLE or now.held_r2 < LITTLE:
        why = f"its expected error, {error}, is that of predicting the mean for every candidate ({mean})"
        if now.held_r2 < LITTLE:
            why = "new measurements were predicted no better than by the mean of their batch"
        return (
            f"The model has learned nothing yet: {why}. Check that the features can explain {target}, and measure some"
            " candidates twice to see how large the noise is, before you measure another batch."
        )
    if share < ENOUGH:
        return f"Stop: {state[0].lower()}{state[1:]}, and the next batch is expected to lower it by {share:.0%} only."
    if now.error < 0.25 * now.noise:
        return (
            f"You can stop: {state[0].lower()}{state[1:]}, far below the noise of one measurement ({noise});"
            f" the next batch is expected to lower it by {share:.0%}."
        )
    why = " Most of it is the shift that all plates so far may share; more plates make it known."
    why = why if now.common > 0.5 * now.error**2 else ""
    return f"Go on: {state[0].lower()}{state[1:]}, and the next batch is expected to lower it by {share:.0%}.{why}"
