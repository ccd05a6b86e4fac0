"""The paper's claims, each as paired comparisons with an interval and one word.

The measure is the MSE averaged over the last 10 iterations of a run, as in the paper's Figure 5. A comparison is the
ratio of two strategies' measures in one panel, paired by run: geometric mean and 95% t interval over runs. A claim
pools its comparisons run by run (mean of log ratios) and counts the panels for and against it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aicau.core.statistics import Interval, mean_interval
from aicau.paper.plan import BATCH, BATCHED, INITIALS, SINGLE, TYPES, Outcome

LAST = 10
SIMILAR = (0.8, 1.25)

Pair = tuple[str, int, str, str]  # type, initial points, strategy, the one it is compared with
Table = dict[tuple[str, str, int, str], NDArray[np.float64]]  # setting, type, initial, strategy -> (runs,)
Judge = Callable[[Interval], int]  # +1 for the claim, −1 against, 0 open


def less(ratio: Interval) -> int:
    """The first is better: the interval lies below 1."""
    return 1 if ratio.high < 1 else -1 if ratio.low > 1 else 0


def not_less(ratio: Interval) -> int:
    """The first is not better: against where the interval lies below 1, for where it reaches 1 from above 0.95."""
    return -1 if ratio.high < 1 else 1 if ratio.high >= 1 and ratio.mean > 0.95 else 0


def similar(ratio: Interval) -> int:
    """Within a quarter of each other."""
    if ratio.low > SIMILAR[0] and ratio.high < SIMILAR[1]:
        return 1
    return -1 if ratio.high < SIMILAR[0] or ratio.low > SIMILAR[1] else 0


@dataclass(frozen=True)
class Claim:
    number: str
    text: str
    setting: str
    pairs: tuple[Pair, ...]
    judge: Judge = less
    universal: bool = False  # every single comparison must bear it out; else the pooled one decides


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    pooled: Interval
    supports: int
    contradicts: int
    comparisons: int

    @property
    def word(self) -> str:
        """holds, does not hold, or undecided."""
        if self.claim.universal:
            if self.contradicts:
                return "does not hold"
            return "holds" if self.supports == self.comparisons else "undecided"
        pooled = self.claim.judge(self.pooled)
        if pooled < 0:
            return "does not hold"
        return "holds" if pooled > 0 and self.contradicts * 4 <= self.comparisons else "undecided"


def claims() -> list[Claim]:
    """The ten claims, in the paper's order; 4, 7 and 10 have two halves."""
    panels = [(kind, initial) for initial in INITIALS for kind in TYPES]
    biased = ("br:perfect", "pemse:perfect", "br:perfect:difference", "pemse:perfect:difference")
    noisy = ("type2", "type3")
    best = "pemse:quadratic:eigen:difference"
    practical = tuple(word for word in BATCHED if "perfect" not in word)

    def across(pairs: Iterable[tuple[str, str]], where: Iterable[tuple[str, int]] = panels) -> tuple[Pair, ...]:
        places = list(where)
        return tuple((kind, initial, a, b) for a, b in pairs for kind, initial in places)

    def at(initial: int, kinds: Iterable[str] = TYPES) -> list[tuple[str, int]]:
        return [(kind, initial) for kind in kinds]

    single, batch = SINGLE.name, BATCH.name
    plain = [word for word in BATCHED if not word.endswith("difference")]
    both = [(f"pemse:quadratic:{b}{d}", f"pemse:direct:{b}{d}") for b in ("top", "eigen") for d in ("", ":difference")]
    estimated = [(f"{a}:quadratic", f"{a}:direct") for a in ("br", "pemse")]
    eigen = [(word, word.replace("eigen", "top")) for word in BATCHED if "eigen" in word]
    return [
        Claim(
            "1",
            "With perfect information every bias-based method beats LC, BALD and random in all six panels",
            single,
            across([(a, b) for a in biased for b in ("lc", "bald", "random")]),
            universal=True,
        ),
        Claim(
            "2",
            "No clear benefit of differences at one point a round",
            single,
            across([(f"{a}:difference", a) for a in ("lc", "br:perfect", "pemse:perfect")]),
            not_less,
        ),
        Claim(
            "3",
            "Direct and quadratic estimation keep some of the gain over random at 100 points in Types I and II",
            single,
            across(
                [(f"{a}:{b}", "random") for a in ("br", "pemse") for b in ("direct", "quadratic")],
                at(100, ("type1", "type2")),
            ),
        ),
        Claim("4a", "At 10 points quadratic is markedly better than direct", single, across(estimated, at(10))),
        Claim(
            "4b",
            "At 10 points quadratic is still worse than random",
            single,
            across([("random", f"{a}:quadratic") for a in ("br", "pemse")], at(10)),
        ),
        Claim(
            "5",
            "Type I: PEMSE beats difference-PEMSE",
            batch,
            across([(word, f"{word}:difference") for word in plain], [("type1", i) for i in INITIALS]),
        ),
        Claim(
            "6",
            "Types II and III: PEMSE and difference-PEMSE are similar (within a quarter)",
            batch,
            across([(word, f"{word}:difference") for word in plain], [(k, i) for k in noisy for i in INITIALS]),
            similar,
        ),
        Claim("7a", "Quadratic beats direct at 10 points", batch, across(both, at(10))),
        Claim("7b", "Direct beats quadratic at 100 points", batch, across([(b, a) for a, b in both], at(100))),
        Claim("8", "Eigen beats top, reproducibly", batch, across(eigen)),
        Claim(
            "9",
            "Types II and III: quadratic + difference + eigen is the best that does not cheat",
            batch,
            across([(best, other) for other in practical if other != best], [(k, i) for k in noisy for i in INITIALS]),
            universal=True,
        ),
        Claim("10a", "At 10 points it beats random", batch, across([(best, "random")], at(10))),
        Claim(
            "10b",
            "At 10 points nothing else that does not cheat beats random",
            batch,
            across([(other, "random") for other in practical if other != best], at(10)),
            not_less,
            universal=True,
        ),
    ]


def judge(outcome: Outcome) -> list[Verdict]:
    """Verdicts on the claims whose strategies and panels were run."""
    frame = outcome.frame
    last = frame.groupby(["setting", "type", "initial"])["round"].transform("max")
    tail = frame[(frame["round"] > last - LAST) & (frame["round"] > 0)]
    means = tail.groupby(["setting", "type", "initial", "strategy", "run"])["mse"].mean()
    table: Table = {key: part.to_numpy() for key, part in means.groupby(level=[0, 1, 2, 3])}  # type: ignore[misc]
    verdicts = []
    for claim in claims():
        logs = [row for pair in claim.pairs if (row := log_ratio(table, claim.setting, pair)) is not None]
        if not logs:
            continue
        votes = [claim.judge(_ratio(row)) for row in logs]
        pooled = _ratio(np.mean(logs, axis=0))
        verdicts.append(Verdict(claim, pooled, votes.count(1), votes.count(-1), len(votes)))
    return verdicts


def log_ratio(table: Table, setting: str, pair: Pair) -> NDArray[np.float64] | None:  # (runs,)
    kind, initial, a, b = pair
    first, second = table.get((setting, kind, initial, a)), table.get((setting, kind, initial, b))
    return None if first is None or second is None else np.log(first) - np.log(second)


def _ratio(logs: NDArray[np.float64]) -> Interval:
    log = mean_interval(logs)
    return Interval(float(np.exp(log.mean)), float(np.exp(log.low)), float(np.exp(log.high)))


def to_frame(verdicts: list[Verdict]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "claim": v.claim.number,
                "text": v.claim.text,
                "ratio": v.pooled.mean,
                "low": v.pooled.low,
                "high": v.pooled.high,
                "for": v.supports,
                "against": v.contradicts,
                "comparisons": v.comparisons,
                "verdict": v.word,
            }
            for v in verdicts
        ]
    )


def to_markdown(verdicts: list[Verdict], runs: int) -> str:
    """The table of claims."""
    lines = [
        "# The paper's claims, tested",
        "",
        f"{runs} paired runs. The measure is the MSE averaged over the last {LAST} iterations; a ratio compares the",
        "strategy the claim favours with the other one (below 1: the claim's side is better), pooled over all",
        "comparisons of the claim, with its 95% interval. *For* and *against* count single comparisons whose own",
        "interval decides.",
        "",
        "| | claim | ratio | 95% interval | for | against | of | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for v in verdicts:
        p = v.pooled
        interval = "-" if np.isnan(p.low) else f"{p.low:.2f} to {p.high:.2f}"
        counts = f"{v.supports} | {v.contradicts} | {v.comparisons}"
        lines.append(f"| {v.claim.number} | {v.claim.text} | {p.mean:.2f} | {interval} | {counts} | {v.word} |")
    return "\n".join(lines) + "\n"
