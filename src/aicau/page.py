"""A campaign's report as one HTML file: figures as SVG inside it, no network, no script."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import aicau
from aicau.errors import InputError


@dataclass(frozen=True)
class Round:
    """The model before one batch."""

    round: int
    measurements: int
    out_of_fold: float | None
    held_out: float | None  # on what was measured next
    held_out_count: int
    epistemic: float
    square_bias: float
    aleatoric: float


@dataclass(frozen=True)
class Batch:
    """What was measured together, against the model."""

    name: str
    count: int
    shift: float
    error: float | None


@dataclass(frozen=True)
class Noise:
    batches: tuple[Batch, ...]
    replicates: tuple[tuple[float, float, int], ...]  # mean, standard deviation, count
    sd: float
    freedom: int
    between: float | None  # standard deviation between batches


@dataclass(frozen=True)
class Map:
    candidates: NDArray[np.float64]  # (k, 2)
    measured: NDArray[np.float64]
    values: NDArray[np.float64]
    pending: NDArray[np.float64]
    shares: Sequence[float]  # of the variance, per axis
    features: int
    total: int


@dataclass(frozen=True)
class Story:
    settings: dict[str, Any]
    status: dict[str, Any]
    rounds: list[Round]
    calibration: list[tuple[float, float, int]]
    noise: Noise
    map: Map
    batch: pd.DataFrame | None
    batch_round: int | None
    states: list[str]


def render(story: Story) -> str:
    """The whole page."""
    from aicau.page_figures import calibration, decomposition, learning, map_of_candidates, noise, shifts

    if story.batch is None and not story.rounds:
        raise InputError("there is nothing to report yet; ask for a batch or tell some results first")
    target = story.settings["target"]
    cards = [
        _card("Learning curve", learning(story.rounds, target), _learning_words(story.rounds), 2),
        _card("Where the expected error comes from", decomposition(story.rounds, target), DECOMPOSITION),
        _card("Calibration", calibration(story.calibration), _calibration_words(story.calibration)),
        _card("Noise", noise(story.noise, target), _noise_words(story.noise, target)),
        _card("Batch effects", shifts(story.noise, target, story.settings["batch"]), _batch_words(story)),
        _card("Map of the candidates", map_of_candidates(story.map, target), _map_words(story.map), 2),
    ]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(target)}: campaign report</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<header>
<h1>{_text(target)}</h1>
<p>Strategy <code>{_text(story.settings["strategy"])}</code>, seed {story.settings["seed"]},
aicau {aicau.__version__}</p>
</header>
{_tiles(story)}
<section class="grid">
{"".join(cards)}
</section>
{_table(story)}
</main>
</body>
</html>
"""


DECOMPOSITION = (
    "Averages over all candidates. Epistemic: the members of the ensemble disagree. Bias: all of them are off in the"
    " same direction, as far as measured points tell. Noise: what repeating a measurement would change."
)


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _number(value: float | None) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{value:.3g}"


def _tiles(story: Story) -> str:
    status = story.status
    tiles = [
        ("candidates", f"{status['candidates']:,}"),
        ("measured", f"{status['measured']:,}"),
        ("measurements", f"{status['measurements']:,}"),
        ("rounds", status["rounds"]),
        ("pending", status["pending"]),
        ("failed wells", status["failed_wells"]),
    ]
    return '<dl class="tiles">' + "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in tiles) + "</dl>"


def _card(title: str, figure: str, words: str, width: int = 1) -> str:
    body = figure or '<p class="none">Nothing to show yet.</p>'
    return f'<article class="w{width}"><h2>{title}</h2>{body}<p>{words}</p></article>\n'


def _learning_words(rounds: Sequence[Round]) -> str:
    if not rounds:
        return "The first results give the first point."
    words = (
        "Root mean squared error against measurements, so noise is in it. Out of fold: each member on the points it was"
        " not trained on. Held out: the model of a round on what was measured next, before it saw it; those points were"
        " chosen where it is least sure."
    )
    last = rounds[-1]
    return f"{words} Now: {_number(last.out_of_fold)} out of fold with {last.measurements} measurements."


def _calibration_words(rows: Sequence[tuple[float, float, int]]) -> str:
    if not rows:
        return "Needs measurements that a model had predicted before."
    nominal, observed, number = rows[-1]
    return f"Of {number} new measurements, {observed:.0%} fell into the {nominal:.0%} interval given before."


def _noise_words(noise: Noise, target: str) -> str:
    if not noise.freedom:
        return "Nothing was measured twice, so noise cannot be told from model error. Replicates would show it."
    return (
        f"Standard deviation between measurements of one candidate: {_number(noise.sd)} ({noise.freedom} degrees of"
        " freedom, differences between batches included). Each point is one candidate."
    )


def _batch_words(story: Story) -> str:
    if not story.noise.batches:
        return "No batch column is known, or nothing was measured yet."
    words = "How far each batch lies above or below the model, with 95% intervals."
    if story.noise.between is not None:
        words += f" Standard deviation between batches beyond chance: {_number(story.noise.between)}."
    return words


def _map_words(map: Map) -> str:
    shown = "all" if len(map.candidates) == map.total else f"{len(map.candidates):,} of {map.total:,}"
    return (
        f"First two principal components of {map.features} encoded features ({map.shares[0]:.0%} and"
        f" {map.shares[1]:.0%} of the variance); {shown} candidates are drawn."
    )


def _table(story: Story) -> str:
    if story.batch is None:
        return ""
    hidden = [c["name"] for c in story.settings["columns"] if c["kind"] == "ignored"]
    frame = story.batch.drop(columns=[c for c in hidden if c in story.batch])
    id = story.settings["id"]
    features = [c for c in frame.columns if not c.startswith("why") and c not in (id, "replicate")][:8]
    numbers = [c for c in frame.columns if c.startswith("why_")]
    heads = [id, "state", *features, "replicate", *(c.removeprefix("why_") for c in numbers)]
    lines = []
    for state, (_, row) in zip(story.states, frame.iterrows(), strict=True):
        cells = [_text(row[id]), f'<span class="{_text(state)}">{_text(state)}</span>']
        for name in [*features, "replicate", *numbers]:
            value = row[name]
            is_text = isinstance(value, str)
            cells.append(_text(value) if is_text else _number(None if pd.isna(value) else float(value)))
        lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        lines.append(f'<tr class="why"><td colspan="{len(heads)}">{_text(row["why"])}</td></tr>')
    head = "".join(f"<th>{_text(name)}</th>" for name in heads)
    return (
        f'<section class="batch"><h2>Last batch (round {story.batch_round}, {len(frame)} points)</h2>'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        "<p>Distance is in standard deviations of the features; epistemic and aleatoric are variances and bias is a"
        " difference, in the units of the target.</p></section>"
    )


STYLE = """
:root{color-scheme:light;--ink:#1d2433;--soft:#5b6577;--line:#dfe3ea;--paper:#fff;--back:#f5f6f9;--blue:#0072b2}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,
sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:28px;margin:0;letter-spacing:-.01em}
h2{font-size:17px;margin:0 0 8px}
header p{color:var(--soft);margin:2px 0 18px}
code{font:13px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;background:#e9ecf2;border-radius:4px;
padding:1px 5px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(120px,1fr));gap:12px;margin:0 0 16px}
.tiles div,article,.batch{background:var(--paper);border:1px solid var(--line);border-radius:10px}
.tiles div{padding:10px 14px}
dt{color:var(--soft);font-size:13px}
dd{margin:0;font-size:23px;font-weight:600;font-variant-numeric:tabular-nums}
.grid{display:grid;grid-template-columns:1fr 1fr;gap:16px}
article{padding:16px 18px}
article p,.batch p{color:var(--soft);font-size:13.5px;margin:8px 0 0}
.w2{grid-column:span 2}
svg{display:block;width:100%;height:auto}
.none{padding:48px 0;text-align:center}
.batch{margin-top:16px;padding:16px 18px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th{text-align:left;font-weight:600;color:var(--soft);border-bottom:2px solid var(--line);padding:6px 10px;
white-space:nowrap}
td{padding:7px 10px 0;vertical-align:top;white-space:nowrap}
.why td{border-bottom:1px solid var(--line);padding:1px 10px 7px;color:var(--soft);white-space:normal}
.pending{color:#a85d00}.completed{color:#007a5a}.failed,.abandoned{color:#b3261e}
@media(max-width:820px){.grid{grid-template-columns:1fr}.w2{grid-column:auto}}
@media print{body{background:#fff}main{max-width:none}}
"""
