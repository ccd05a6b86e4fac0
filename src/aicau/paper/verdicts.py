"""Verdicts on the claims: paired ratios with intervals, and one word."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aicau.core.statistics import Interval, ratio
from aicau.paper.claims import Claim, Side, claims
from aicau.paper.plan import ANY, PRESETS, Outcome

LAST = 10
MEASURES = ("last ten", "final")  # the first decides

Table = dict[Side, NDArray[np.float64]]  # (runs,)


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    pooled: Interval
    supports: int
    contradicts: int
    comparisons: int
    preset: str = "learns"
    measure: str = MEASURES[0]

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


def judge(outcome: Outcome) -> list[Verdict]:
    """Verdicts on the claims whose strategies and panels were run, for every preset and measure."""
    verdicts = []
    for preset, measure in product(outcome.plan.presets, MEASURES):
        table = log_errors(outcome.frame, preset, measure)
        for claim in claims():
            pairs = claim.comparisons()
            if logs := [table[a] - table[b] for a, b in pairs if a in table and b in table]:
                votes = [claim.judge(ratio(row)) for row in logs]
                counts = votes.count(1), votes.count(-1), len(votes)
                verdicts.append(Verdict(claim, ratio(np.mean(logs, axis=0)), *counts, preset, measure))
    return verdicts


def log_errors(frame: pd.DataFrame, preset: str, measure: str) -> Table:
    """The logarithm of the error of every run, under one preset of Q and one measure."""
    frame = frame[frame["preset"].isin((preset, ANY))]
    last = frame.groupby(["setting", "type", "initial"])["round"].transform("max")
    tail = frame[(frame["round"] > last - (LAST if measure == MEASURES[0] else 1)) & (frame["round"] > 0)]
    means = tail.groupby(["setting", "type", "initial", "strategy", "run"])["mse"].mean()
    return {key: np.log(part.to_numpy()) for key, part in means.groupby(level=[0, 1, 2, 3])}  # type: ignore[misc]


def to_frame(verdicts: list[Verdict]) -> pd.DataFrame:
    """One row per claim, preset and measure."""
    names = ("claim", "text", "preset", "measure", "ratio", "low", "high", "for", "against", "comparisons", "verdict")
    rows = [
        (v.claim.number, v.claim.text, v.preset, v.measure, v.pooled.mean, v.pooled.low, v.pooled.high)
        + (v.supports, v.contradicts, v.comparisons, v.word)
        for v in verdicts
    ]
    return pd.DataFrame(rows, columns=names)


def to_markdown(verdicts: list[Verdict], runs: int) -> str:
    """The table of claims, one set of columns per preset."""
    presets = list(dict.fromkeys(v.preset for v in verdicts))
    found = {(v.claim.number, v.preset, v.measure): v for v in verdicts}
    texts = {v.claim.number: v.claim.text for v in verdicts}
    lines = [
        "# The paper's claims, tested",
        "",
        f"{runs} paired runs. Rules and scope of every claim: docs/claims.md. A ratio compares the claim's side with",
        "the other one (below 1: the claim's side is better), pooled over all comparisons, with its 95% interval; then",
        "how many single comparisons count for and against the claim, and of how many. Where the final MSE gives",
        "another verdict than the mean of the last ten, it is in brackets.",
        "",
        "Training of Q: " + "; ".join(f"*{p}*, {PRESETS[p]}" for p in presets) + ".",
        "",
        "| | claim | " + " | ".join(presets) + " |",
        "|---|---" + "|---" * len(presets) + "|",
    ]
    for number, text in texts.items():
        cells = []
        for preset in presets:
            v, final = (found[number, preset, measure] for measure in MEASURES)
            other = f" (final: {_short(final)}, {final.word})" if final.word != v.word else ""
            cells.append(f"{_short(v)}; {v.supports}:{v.contradicts} of {v.comparisons}; **{v.word}**{other}")
        lines.append(f"| {number} | {text} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _short(v: Verdict) -> str:
    p = v.pooled
    return f"{p.mean:.2f}" + ("" if np.isnan(p.low) else f" ({p.low:.2f} to {p.high:.2f})")
