"""`python -m bench`: run a suite, and write its tables, pictures and a page in plain words."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from aicau.core.engine import HERE, Engine
from aicau.ensembles import Ensemble
from aicau.paper.plan import Report, silent
from aicau.paper.reproduce import Folder
from bench import classes as bench_classes
from bench import figures as bench_figures
from bench import methods
from bench import scores as bench_scores
from bench import suites as bench
from bench.methods import REFERENCE
from bench.scores import Ranks, Row
from bench.suites import Outcome, Settings
from bench.words import cell, table


def compare(
    settings: Settings,
    out: Path,
    device: str = "auto",
    report: Report = silent,
    begin: float | None = None,  # when the command started, on the clock of time.perf_counter
    ensemble: Ensemble | None = None,
    engine: Engine = HERE,
) -> dict[str, object]:
    """Everything of a suite under `out`: tidy and score tables, pictures, bench.md; summary.json last."""
    folder = Folder(out, begin)
    outcome = bench.run(settings, device, report, ensemble, engine)
    families = methods.families(list(outcome.frame["strategy"].unique()))
    rows = bench_scores.rows(outcome.frame, outcome.choosing, families, settings.strong, REFERENCE)
    ranks, scores = rank(outcome, families), to_frame(rows)
    folder.add("bench.parquet", outcome.frame)
    folder.add("bench.csv", outcome.frame)
    folder.add("scores.csv", scores)
    folder.add("curves.png", bench_figures.curves(outcome, ranks))
    if ranks is not None:
        folder.add("critical-difference.png", bench_figures.critical_difference(ranks, families, settings.default))
    if settings.suite == "classes" and (shares := bench_classes.noise_shares(outcome.frame)):
        folder.add("label-noise.png", bench_classes.noise_figure(shares))
    folder.add("bench.md", to_markdown(outcome, rows, ranks))
    return folder.close(
        outcome.seconds,
        suite=settings.suite,
        runs=settings.runs,
        seed=settings.seed,
        ensemble=settings.ensemble,
        default=settings.default,
        scores=json.loads(scores.to_json(orient="records")),
        ranks=None if ranks is None else _ranks(ranks),
        notes=outcome.notes,
    )


def rank(outcome: Outcome, families: dict[str, str]) -> Ranks | None:
    """Ranks among methods that share F_k and do not cheat."""
    words = [word for word, family in families.items() if family not in ("cheats", "own model")]
    frame = outcome.frame
    return bench_scores.ranks([bench_scores.final(frame, panel) for panel in frame["panel"].unique()], words)


def _ranks(ranks: Ranks) -> dict[str, object]:
    return {
        "mean": {str(word): round(float(value), 4) for word, value in ranks.mean.items()},
        "blocks": ranks.blocks,
        "critical_difference": round(ranks.difference, 4),
        "friedman_p": None if np.isnan(ranks.friedman) else ranks.friedman,
        "not_told_from_the_best": ranks.with_the_best(),
    }


def to_frame(rows: list[Row]) -> pd.DataFrame:
    """Scores as a table: each interval becomes three columns."""
    out = []
    for row in rows:
        flat: dict[str, object] = {}
        for name, value in asdict(row).items():
            if isinstance(value, dict):
                flat |= {name: value["mean"], f"{name}_low": value["low"], f"{name}_high": value["high"]}
            elif value is None:
                flat |= {name: None, f"{name}_low": None, f"{name}_high": None}
            else:
                flat[name] = value
        out.append(flat)
    return pd.DataFrame(out)


def to_markdown(outcome: Outcome, rows: list[Row], ranks: Ranks | None) -> str:
    """The page: what the default does in each panel, where it loses, ranks, and every number."""
    settings, panels = outcome.settings, list(outcome.frame["panel"].unique())
    lines = [
        f"# Comparison, suite `{settings.suite}`",
        "",
        f"{settings.runs} paired runs, seed {settings.seed}, ensemble `{settings.ensemble}`. All methods of a panel"
        " share the model, the initial points and the noise. Intervals are 95%. A ratio below 1 means a smaller error.",
        "",
    ]
    if settings.suite == "real":
        lines += ["Errors are in units of the variance of the truth: 1 is the error of predicting the mean.", ""]
    if settings.suite == "classes":
        lines += ["Errors are the excess log loss: expected log loss less that of the true probabilities.", ""]
    lines += [f"- {note}" for note in outcome.notes] + ([""] if outcome.notes else [])
    lines += _headline(settings, rows, panels) + _losses(outcome, panels) + _rank_lines(ranks, len(panels))
    if settings.suite == "classes":
        lines += bench_classes.noise_lines(outcome.frame)
    for panel in panels:
        lines += _panel(outcome, [row for row in rows if row.panel == panel])
    return "\n".join(lines)


def _headline(settings: Settings, rows: list[Row], panels: list[str]) -> list[str]:
    ours = {row.panel: row for row in rows if row.strategy == settings.default}
    if not ours:
        return []
    field = "LCMD, BAIT, BADGE, Core-Set and BatchBALD on either kind of feature"
    if settings.suite == "classes":
        field = "entropy, margin, lc, bald and BatchBALD"
    lines = [
        f"## `{settings.default}` in each panel",
        "",
        f"The best peer is the best of {field}, picked after"
        f" the fact in each panel. The share is of the gain from random to `{REFERENCE}`, which knows the truth.",
        "",
    ]
    head = ["panel", f"final {settings.error}", "/ random", "/ farthest", "/ best peer", "share of the gain"]
    return lines + table(head, ([panel, cell(ours[panel].final, 4), *_ratios(ours[panel])] for panel in panels))


def _ratios(row: Row) -> list[str]:
    return [cell(value) for value in (row.to_random, row.to_farthest, row.to_best_peer, row.share)]


def _losses(outcome: Outcome, panels: list[str]) -> list[str]:
    """Where the default is worse than a method that does not cheat."""
    sure: list[str] = []
    perhaps: list[str] = []
    families, ours = methods.families(list(outcome.frame["strategy"].unique())), outcome.settings.default
    if ours not in families:
        return []
    for panel in panels:
        ends = bench_scores.final(outcome.frame, panel)
        for word in ends.mean().sort_values(kind="stable").index:
            against = bench_scores.ratio(ends, ours, str(word))
            if word == ours or families[word] == "cheats" or against is None or against.mean <= 1:
                continue
            note = ", which has its own model" if families[word] == "own model" else ""
            text = f"- {panel}: `{word}`{note}; ratio of errors {cell(against)}"
            (sure if against.low > 1 else perhaps).append(text)
    lines = ["## Where it loses", "", f"`{ours}` has a larger error than the methods named here.", ""]
    lines += ["Beyond doubt (the interval lies above 1):", "", *(sure or ["- nowhere"]), ""]
    more = "Perhaps (the interval contains 1, or there is one run only):"
    return [*lines, more, "", *(perhaps or ["- nowhere"]), ""]


def _rank_lines(ranks: Ranks | None, panels: int) -> list[str]:
    if ranks is None:
        return []
    same, k = ranks.with_the_best(), len(ranks.mean)
    lines = [
        "## Average rank",
        "",
        f"Among {k} methods that share the model and do not cheat, over {ranks.blocks} blocks (a panel and a run each;"
        " 1 is best). Two methods differ where their ranks lie more than"
        f" {ranks.difference:.2f} apart (Nemenyi, 5%); this speaks of new runs of these panels. Taking a panel as one"
        " block, as one must to speak of other data sets, the"
        f" distance is {bench_scores.critical_difference(k, panels):.2f}.",
        f"Not told from the best: {', '.join(f'`{word}`' for word in same)}.",
        "",
        "![average ranks](critical-difference.png)",
        "",
    ]
    rows = ([f"`{word}`", f"{rank:.2f}"] for word, rank in ranks.mean.items())
    return lines + table(["method", "average rank"], rows)


def _panel(outcome: Outcome, rows: list[Row]) -> list[str]:
    head = ["method", "kind", f"final {outcome.settings.error}", "area", "/ random", "/ farthest", "/ best peer"]
    cells = (
        [f"`{row.strategy}`", row.family, cell(row.final, 4), cell(row.area, 4), *_ratios(row), f"{row.seconds:.3f}"]
        for row in rows
    )
    return [f"## {rows[0].panel}", "", *table([*head, "share", "s per round and run"], cells)]
