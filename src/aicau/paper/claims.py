"""Every sentence of the paper that states a result: where it stands, what it is said of, and the rule that decides it.

This table is fixed before a run and judged by `aicau.paper.verdicts`; `docs/statement.py` writes it down.

A comparison is the ratio of two strategies' errors in one panel, paired by run: geometric mean and 95% t interval over
runs. Below 1 the strategy that the sentence favours is better. A claim pools its comparisons run by run. A rule says of
a ratio: +1 for the claim, −1 against, 0 open.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aicau.core.statistics import Interval
from aicau.paper.plan import BATCH, BATCHED, CANONICAL, INITIALS, SINGLE, TYPES

Side = tuple[str, str, int, str]  # setting, type, initial points, strategy
BEST = "pemse:quadratic:eigen:difference"
NOISY = ("type2", "type3")
CLEAR = 0.95  # a difference below 5% cannot be seen in the paper's figures of 10 runs


def better(ratio: Interval) -> int:
    """At least 5% better."""
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


@dataclass(frozen=True)
class Claim:
    """One sentence; every pair of strategies is compared in every panel, the side of the claim first."""

    number: str
    section: str
    quote: str
    text: str
    setting: str
    pairs: tuple[tuple[str, str], ...]
    types: tuple[str, ...] = TYPES
    initials: tuple[int, ...] = INITIALS
    judge: Judge = better
    universal: bool = False  # every single comparison must bear it out; else the pooled one decides

    def comparisons(self) -> list[tuple[Side, Side]]:
        """The two sides in every panel, the side of the claim first."""
        panels = [(self.setting, kind, initial) for initial in self.initials for kind in self.types]
        return [((*panel, a), (*panel, b)) for a, b in self.pairs for panel in panels]


def against(firsts: Iterable[str], seconds: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((a, b) for a in firsts for b in list(seconds) if a != b)


def claims() -> list[Claim]:
    """The paper's results in its own order."""
    single, batch = SINGLE.name, BATCH.name
    biased = tuple(f"{a}:perfect{d}" for a in ("br", "pemse") for d in ("", ":difference"))
    estimated = tuple(f"{a}:{b}" for a in ("br", "pemse") for b in ("direct", "quadratic"))
    quadratic = tuple(word for word in estimated if "quadratic" in word)
    practical = (*CANONICAL, *(word for word in BATCHED if "perfect" not in word))
    plain = tuple((word, f"{word}:difference") for word in BATCHED if "difference" not in word)
    swapped = tuple((b, a) for a, b in plain)
    both = tuple((w, w.replace("quadratic", "direct")) for w in BATCHED if "quadratic" in w)
    eigen = tuple((w, w.replace("eigen", "top")) for w in practical if "eigen" in w)
    alone = tuple((f"{a}:difference", a) for a in ("lc", "br:perfect", "pemse:perfect"))
    # fmt: off
    return [
        Claim("1", "2.4", "in all 3 scenarios, any method that exploits the bias is clearly superior to LC, BALD, or"
            " random selection",
            "With perfect information every bias-based method beats LC, BALD and random in all six panels", single,
            against(biased, (*CANONICAL, "random")), universal=True),
        Claim("2a", "2.4", "the lack of clear benefit using the difference-based methods",
            "One point a round: differences bring no clear benefit", single, alone, judge=not_better),
        Claim("2b", "4.1", "difference-based methods performs largely similarly to non-difference-methods for"
            " single-point acquisition",
            "One point a round: differences perform similarly", single, alone, judge=similar),
        Claim("2c", "2.4", "the benefits should become apparent in a batched setting",
            "Batches, Types II and III: differences are better", batch, swapped, NOISY),
        Claim("3a", "4.1", "for Type I and Type II problems, either using direct estimation or quadratic estimation of"
            " the bias leads to retaining some of the performance gains seen when cheating",
            "Types I and II, 100 points: estimates beat random", single, against(estimated, ("random",)),
            ("type1", "type2"), (100,)),
        Claim("3b", "4.1", "beating random performance only appears possible when sufficient initial data is available",
            "Types I and II, 10 points: no estimate beats random", single, against(estimated, ("random",)),
            ("type1", "type2"), (10,), not_better, universal=True),
        Claim("4a", "4.1", "When we initialize with 10 points, the quadratic estimation approach is markedly better"
            " than direct", "10 points: quadratic beats direct", single,
            tuple((word, word.replace("quadratic", "direct")) for word in quadratic), initials=(10,)),
        Claim("4b", "4.1", "the performance of quadratic estimation is still inferior to random selection",
            "10 points: random beats quadratic", single, against(("random",), quadratic), initials=(10,)),
        Claim("5", "4.2", "for Type I problems that PEMSE outperforms difference-PEMSE",
            "Type I: PEMSE beats difference-PEMSE", batch, plain, ("type1",)),
        Claim("6", "4.2", "When considering Type II and Type III problems, PEMSE and difference-PEMSE perform"
            " similarly",
            "Types II and III: PEMSE and difference-PEMSE are similar", batch, plain, NOISY, judge=similar),
        Claim("7a", "4.2", "Typically, quadratic estimation outperforms direct estimation when initialized with 10"
            " initial data points", "Types II and III, 10 points: quadratic beats direct", batch, both, NOISY, (10,)),
        Claim("7b", "4.2", "but vice versa when 100 data points are available",
            "Types II and III, 100 points: direct beats quadratic", batch, tuple((b, a) for a, b in both), NOISY,
            (100,)),
        Claim("8", "4.2", "reproducible small benefits when using the eigendecomposition approach when compared to"
            " top-k selection", "Types II and III: eigen beats top, without cheating", batch, eigen, NOISY,
            judge=slightly_better),
        Claim("9", "4.2", "in both Type II and Type III scenarios, we see a clear benefit to using quadratic estimation"
            " with difference-PEMSE for the eigendecomposition approach ... when compared to direct estimation",
            "Types II and III: quadratic + difference + eigen beats direct + difference + eigen", batch,
            ((BEST, BEST.replace("quadratic", "direct")),), NOISY),
        Claim("10a", "5", "in the low initial data regime (initializing with 10 points), the only non-cheating method"
            " that can beat random selection in a batch setting is quadratic estimation with difference-PEMSE with"
            " eigendecomposition", "10 points: quadratic + difference + eigen beats random", batch,
            ((BEST, "random"),), initials=(10,)),
        Claim("10b", "5", "the only non-cheating method (the same sentence)",
            "10 points: nothing else that does not cheat beats random", batch,
            against((word for word in practical if word != BEST), ("random",)), initials=(10,), judge=not_better,
            universal=True),
        Claim("11", "5", "LC and BALD that do not appear effective in the noisy systems that we study",
            "Types II and III, one point a round: LC and BALD do not beat random", single,
            against(CANONICAL, ("random",)), NOISY, judge=not_better, universal=True),
        Claim("12", "Abstract", "our difference-based method leveraging the cobias-covariance relationship ... in a"
            " batched setting (with a quadratic estimator), we outperform a number of canonical methods including BALD"
            " and Least Confidence", "Batches: quadratic + difference + eigen beats LC and BALD", batch,
            against((BEST,), CANONICAL)),
    ]
    # fmt: on
