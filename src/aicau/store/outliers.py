"""Values that lie far from all that is known: pointed out, stored all the same.

A value is compared with all values of the campaign (by their median and median deviation; where all are positive also
on a logarithmic scale, so that a skewed target alone is no alarm), with the replicates of its candidate, and with what
was predicted when its candidate was asked for. It is pointed out when every comparison that can be made calls it far.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from aicau.store.identity import Measurement
from aicau.store.session import numbers_of

FAR = 8.0  # robust standard deviations from all values, from replicates and from the prediction
MOST = 5  # suspects that are named
FEWEST = 8  # values, or differences between replicates, that say what is usual


class Suspect(NamedTuple):
    """A value that may be a slip."""

    place: int  # among the new rows
    expected: float
    sentence: str


def find(new: Sequence[Measurement], told: Iterable[Any], proposals: Iterable[Any], target: str = "") -> list[Suspect]:
    """Suspects among new rows of a target, beside current rows told before and the points that wait for a value."""
    together: dict[int, list[float]] = defaultdict(list)
    for row in (*told, *new):
        if row.value is not None and row.target == target:
            together[row.candidate].append(row.value)
    values = [value for some in together.values() for value in some]
    if len(values) < FEWEST:
        return []
    scales: list[tuple[Callable[[float], float], float, float]] = []  # with the middle of all values and their spread
    for scale in (float, math.log) if min(values) > 0 else (float,):
        some = [scale(value) for value in values]
        middle = median(some)
        scales.append((scale, middle, 1.4826 * median(abs(value - middle) for value in some)))
    if not all(spread for _, _, spread in scales):  # more than half of them are equal: nothing is unusual
        return []
    middles = [(some, median(some)) for some in together.values() if len(some) > 1]
    away = [abs(value - middle) for some, middle in middles for value in some]
    scatter = 2.0 * median(away) if len(away) >= FEWEST else 0.0  # of one measurement, by its replicates
    predicted, centre, found = _predicted(proposals, target), median(values), []
    for place, row in enumerate(new):
        if row.value is None or row.target != target:
            continue
        near = [abs(scale(row.value) - middle) <= FAR * spread for scale, middle, spread in scales]
        expected, others = centre, list(together[row.candidate])
        others.remove(row.value)
        if others:
            expected = median(others)
            near.append(scatter > 0 and abs(row.value - expected) <= FAR * scatter)
        if row.candidate in predicted:
            expected, deviation = predicted[row.candidate]
            near.append(abs(row.value - expected) <= FAR * deviation)
        if not any(near):
            what = f"{target} {row.value:.6g}" if target else f"{row.value:.6g}"
            words = f"row {row.line}: {what} is far from what is known (about {expected:.3g}); it is stored;"
            found.append(Suspect(place, expected, f"{words} is it a slip? replace it with --correct"))
    return found


def sentences(suspects: Sequence[Suspect]) -> list[str]:
    """What to say of them; not more than a person reads."""
    words = [one.sentence for one in suspects[:MOST]]
    return words + ([f"{len(suspects) - MOST} more values are far from what is known"] if len(suspects) > MOST else [])


def _predicted(proposals: Iterable[Any], target: str) -> dict[int, tuple[float, float]]:
    """Prediction and standard deviation of a new measurement of points that wait, as `ask` computed them."""
    found = {}
    for row in proposals:
        numbers = numbers_of(row, target)
        try:
            middle, low, high = (float(numbers[name]) for name in ("prediction", "new_low", "new_high"))
        except (KeyError, TypeError, ValueError):
            continue
        found[row.candidate] = (middle, max((high - low) / 3.92, 0.0))
    return found
