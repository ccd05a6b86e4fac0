"""Why a point was chosen, in words and numbers."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aicau.prediction.discrete import ClassPrediction, CountPrediction
from aicau.prediction.values import PARTS, Prediction
from aicau.strategy import Strategy

Numbers = dict[str, float | int | str | None]


@dataclass(frozen=True)
class Pick:
    """One proposed point."""

    candidate: int
    replicate: int
    why: str
    numbers: Numbers


def explain(
    at: int,
    place: int,  # in the batch
    distance: float,
    reason: str,
    count: int,  # measurements so far, those earlier in this batch included
    known: Sequence[Any],  # measurements of it so far, as rows of a store
    prediction: Prediction | ClassPrediction | CountPrediction | str,  # of the batch; or why there is none yet
    free: int,  # degrees of freedom behind the noise
    strategy: Strategy,
    worth: float | None,  # squared distance that the doubt about a known point is worth, where the batching weighs it
) -> Pick:
    """One point: what chose it, what is expected of it, and what a repeat would add."""
    numbers: Numbers = {"rule": strategy.name, "distance": distance if math.isfinite(distance) else None}
    if isinstance(prediction, str):
        words = reason if math.isfinite(distance) else "the first point, nearest to the centre of the candidates"
        return Pick(at, count + 1, f"space-filling, {prediction}: {words}", numbers)
    if not isinstance(prediction, Prediction):
        return _discrete(at, place, reason, count, known, prediction, free, strategy, numbers)
    said = {name: float(column[place]) for name, column in prediction.columns().items()}
    parts = {name: said[name] for name in PARTS}
    total, noise = sum(parts.values()), parts["aleatoric"]
    shares = {name: part / total if total > 0 else 0.0 for name, part in parts.items()}
    taken = said["ensemble"] - said["mean"]
    numbers |= {"prediction": said["mean"], "new_low": said["new_low"], "new_high": said["new_high"]}
    numbers |= {**parts, "taken_out": taken, **{f"{name}_share": share for name, share in shares.items()}}
    noise_words = f"noise (sd {math.sqrt(noise):.3g})" if free else "noise (a guess: nothing was measured twice)"
    bias_words = f"bias ({taken:+.3g} is taken out)" if taken else "bias (not taken out)"
    words = (
        f"{strategy.name}: {reason}; predicted {said['mean']:.3g} ({said['new_low']:.3g} to {said['new_high']:.3g}),"
        f" expected error of a network {math.sqrt(total):.3g}, of which {shares['epistemic']:.0%} epistemic,"
        f" {shares['bias']:.0%} {bias_words}, {shares['aleatoric']:.0%} {noise_words}"
    )
    if count == 0:
        return Pick(at, 1, words, numbers)
    before, after = noise / count, noise / (count + 1)
    numbers |= {"measured_before": count, "mean_variance_now": before, "mean_variance_after": after}
    gain = (
        f"one more takes the standard error of its mean from {math.sqrt(before):.3g} to {math.sqrt(after):.3g}"
        if free
        else "the noise is unknown, and a repeat shows it"
    )
    if worth is not None:
        numbers["doubt_as_distance"] = math.sqrt(worth)
        gain += f"; what it hides is worth a distance of {math.sqrt(worth):.3g}, more than any new point offers"
    return Pick(at, count + 1, f"repeat, measured {count}x before: {gain}; {words}", numbers)


def _discrete(
    at: int,
    place: int,
    reason: str,
    count: int,
    known: Sequence[Any],
    prediction: ClassPrediction | CountPrediction,
    free: int,
    strategy: Strategy,
    numbers: Numbers,
) -> Pick:
    """The same for labels and counts, whose parts are divergences and add up as they are."""
    parts = {name: float(getattr(prediction, name)[place]) for name in PARTS}
    total = sum(parts.values())
    shares = {name: part / total if total > 0 else 0.0 for name, part in parts.items()}
    numbers |= {**parts, **{f"{name}_share": share for name, share in shares.items()}}
    if isinstance(prediction, ClassPrediction):
        best = int(prediction.probability[place].argmax())
        chance = float(prediction.probability[place, best])
        numbers |= {"prediction": prediction.labels[best], "probability": chance}
        said, error = f"predicted {prediction.labels[best]!r} ({chance:.0%})", "log loss"
    else:
        low, high = int(prediction.new_low[place]), int(prediction.new_high[place])
        numbers |= {"prediction": float(prediction.mean[place]), "new_low": low, "new_high": high}
        said, error = f"predicted count {prediction.mean[place]:.3g} ({low} to {high})", "Poisson divergence"
    noise = "noise" if free else "noise (a guess: nothing was measured twice)"
    words = (
        f"{strategy.name}: {reason}; {said}, expected {error} {total:.3g}, of which {shares['epistemic']:.0%}"
        f" epistemic, {shares['bias']:.0%} bias, {shares['aleatoric']:.0%} {noise}"
    )
    if count == 0:
        return Pick(at, 1, words, numbers)
    numbers["measured_before"] = count
    return Pick(at, count + 1, f"repeat, measured {count}x before{_history(known)}: {words}", numbers)


def _history(rows: Sequence[Any]) -> str:
    """What the measurements of a candidate said."""
    if not rows:  # only asked for, earlier in this batch
        return ""
    labels: Counter[str] = Counter()
    for row in rows:
        if row.label is not None:
            labels[row.label] += row.repeats
    if not labels:
        values = [row.value for row in rows]
        return f" (from {min(values):.0f} to {max(values):.0f})" if len(values) > 1 else f" ({values[0]:.0f})"
    label, most = min(labels.items(), key=lambda one: (-one[1], one[0]))
    return f" ({most} of {labels.total()} say {label!r})"
