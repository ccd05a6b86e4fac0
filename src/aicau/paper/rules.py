"""Rules that decide a comparison: +1 for the claim, −1 against, 0 open. A ratio below 1 is good for the claim."""

from collections.abc import Callable

from aicau.core.statistics import Interval

CLEAR = 0.95  # a difference below 5% cannot be seen in the paper's figures of 10 runs


def better(ratio: Interval) -> int:
    """At least 5% better: +1 for, −1 against, 0 open."""
    if ratio.high < 1 and ratio.mean < CLEAR:
        return 1
    return -1 if ratio.low > CLEAR else 0


def slightly_better(ratio: Interval) -> int:
    """Better, by however little."""
    return 1 if ratio.high < 1 else -1 if ratio.low > 1 else 0


def not_better(ratio: Interval) -> int:
    """The opposite of `better`: ignorance supports neither."""
    return -better(ratio)


def similar(ratio: Interval) -> int:
    """Within 5% of each other; where either is `better`, they are not `similar`."""
    if ratio.low > CLEAR and ratio.high < 1 / CLEAR:
        return 1
    turned = Interval(1 / ratio.mean, 1 / ratio.high, 1 / ratio.low)
    return -1 if better(ratio) > 0 or better(turned) > 0 else 0


Judge = Callable[[Interval], int]
RULES: dict[Judge, tuple[str, str]] = {
    better: ("better", "for: mean below 0.95 and interval below 1; against: interval above 0.95"),
    not_better: ("not better", "for: interval above 0.95; against: mean below 0.95 and interval below 1"),
    similar: (
        "similar",
        "for: interval within 0.95 and 1/0.95; against: the first or the second is *better*",
    ),
    slightly_better: ("slightly better", "for: interval below 1; against: interval above 1"),
}
