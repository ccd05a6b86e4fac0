"""A campaign's report as one HTML file: figures as SVG inside it, no network, no script."""

import html
from typing import Any

import numpy as np
import pandas as pd

import aicau
from aicau.errors import InputError
from aicau.page_data import WORDS, Labels, Map, Noise, Story, Words
from aicau.page_style import STYLE


def render(story: Story) -> str:
    """The whole page."""
    from aicau.page_figures import calibration, decomposition, learning, map_of_candidates

    if not story.status["asks"] and not story.status["tells"]:
        raise InputError("there is nothing to report yet; ask for a batch or tell some results first")
    target, words = story.settings["target"], WORDS[story.task]
    names = () if story.labels is None else story.labels.names
    cards = [
        _card("Learning curve", learning(story.rounds, target, words.error), _learning_words(story, words), 2),
        _card("Where the expected error comes from", decomposition(story.rounds, target, words), words.decomposition),
        _card("Calibration", calibration(story.calibration, words), _calibration_words(story)),
        *(_value_cards(story) if story.labels is None else _label_cards(story.labels, story.settings["batch"])),
        _card("Map of the candidates", map_of_candidates(story.map, target, names), _map_words(story.map), 2),
    ]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="aicau">
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


def _value_cards(story: Story) -> list[str]:
    from aicau.page_figures import noise, shifts

    target = story.settings["target"]
    return [
        _card("Noise", noise(story.noise, target), _noise_words(story.noise)),
        _card("Batch effects", shifts(story.noise, target, story.settings["batch"]), _batch_words(story)),
    ]


def _label_cards(labels: Labels, batch: str | None) -> list[str]:
    from aicau.page_label_figures import confusion, disagreement, shares

    several, split = sum(labels.agree) + sum(labels.differ), sum(labels.differ)
    right = sum(row[at] for at, row in enumerate(labels.confusion))
    tested = sum(sum(row) for row in labels.confusion)
    told = ", ".join(f"{_text(name)}: {n}" for name, n in zip(labels.names, labels.counts, strict=True))
    words = (
        f"Of {tested} labels, {right / tested:.0%} are what members that had not seen the candidate predicted."
        if tested
        else "Needs labels of at least two classes."
    )
    again = (
        f"Of {several} candidates with several labels, {split} have labels that differ: no model can be right on all."
        if several
        else "Nothing was labelled twice, so noisy labels cannot be told from model error. Replicates would show them."
    )
    plates = f"Share of each label in each {_text(batch)}." if labels.batches else "No batch column is known."
    return [
        _card("Confusion", confusion(labels), words),
        _card("Do replicates agree?", disagreement(labels), again),
        _card("Labels by batch", shares(labels, batch), f"{plates} All labels: {told or 'none yet'}.", 2),
    ]


def _learning_words(story: Story, words: Words) -> str:
    if not story.rounds:
        return "The first results give the first point."
    last = story.rounds[-1]
    held = (
        "Held out: the model of a round on what was measured next, before it saw it; those points were chosen where it"
        " is least sure."
    )
    now = f"Now: {_number(last.out_of_fold)} out of fold with {last.measurements} measurements."
    note = f" {_text(story.note[0].upper() + story.note[1:])}." if story.note else ""
    return f"{words.learning} {words.out_of_fold} {held} {now}{note}"


def _calibration_words(story: Story) -> str:
    rows = story.calibration
    if not rows:
        return "Needs measurements that a model had predicted before."
    if story.task == "classification":
        return (
            "Probabilities that a model gave to each class before the label was known, in groups of similar ones, and"
            " how often the label then was that class."
        )
    nominal, observed, number = rows[-1]
    return f"Of {number} new measurements, {observed:.0%} fell into the {nominal:.0%} interval given before." + (
        " Counts are whole numbers, so narrow intervals hold more than they state." if story.task == "count" else ""
    )


def _noise_words(noise: Noise) -> str:
    if not noise.freedom:
        return "Nothing was measured twice, so noise cannot be told from model error. Replicates would show it."
    if noise.dispersion is not None:
        return (
            f"Counts of one candidate scatter with {_number(noise.dispersion)} times the variance of a Poisson count"
            f" (line; {noise.freedom} degrees of freedom). Each point is one candidate."
        )
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
    words = "" if map.predicted is None else " Pale: predicted class; strong: what most labels of a candidate say."
    return (
        f"First two principal components of {map.features} encoded features ({map.shares[0]:.0%} and"
        f" {map.shares[1]:.0%} of the variance); {shown} candidates are drawn.{words}"
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
        f"<p>Distance is between standardised features; {WORDS[story.task].note}</p></section>"
    )
