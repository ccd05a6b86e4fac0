"""A campaign's report as one HTML file: figures as SVG inside it, no network, no script."""

from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

import aicau
from aicau.core.errors import InputError
from aicau.simulation.curves import figures
from aicau.simulation.curves.data import Story

MOST_FEATURES = 8  # columns of the last batch


def render(story: Story) -> str:
    """Return the whole page. Every name, label and id in it is escaped."""
    if story.batch is None and not story.rounds:
        raise InputError("there is nothing to report yet; ask for a batch or tell some results first")
    pages = Environment(
        loader=PackageLoader("aicau.simulation.curves"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    pages.filters["number"] = number
    template = pages.get_template("report.html.j2")
    columns, rows = last_batch(story)
    return template.render(
        story=story, figures=figures.draw(story), columns=columns, rows=rows, version=aicau.__version__
    )


def number(value: Any, digits: int = 3) -> str:
    """A number in few digits; text as it is; a dash for what is not known."""
    if isinstance(value, str):
        return value
    return "–" if value is None or not np.isfinite(value) else f"{value:.{digits}g}"


def last_batch(story: Story) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns of the table of the last batch, and its rows: id, state, cells and reason of each point."""
    if story.batch is None:
        return [], []
    id = story.settings["id"]
    left_out = {id, "why", *(c["name"] for c in story.settings["columns"] if c["kind"] == "ignored")}
    names = [str(name) for name in story.batch if name not in left_out]
    reasons = [name for name in names if name.startswith("why_")]
    features = [name for name in names if name not in ("replicate", *reasons)][:MOST_FEATURES]
    rows = [
        {
            "id": row[id], "state": state, "reason": row["why"],
            "cells": [number(row[c], 6) for c in (*features, "replicate")] + [number(row[c]) for c in reasons],
        }
        for row, state in zip(story.batch.to_dict("records"), story.states, strict=True)
    ]  # fmt: skip
    return [id, "state", *features, "replicate", *(name.removeprefix("why_") for name in reasons)], rows
