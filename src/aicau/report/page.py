"""A campaign's report as one HTML file: figures as SVG inside it, no network, no script."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

import aicau
from aicau.core.errors import InputError
from aicau.report.data import Contents


def render(contents: Contents, *others: Contents, status: dict[str, Any] | None = None) -> str:
    """Return the whole page, of one target or of several; `status` is that of the campaign, of all targets.

    Every name, label and id in it is escaped.
    """
    every = (contents, *others)
    if not contents.status["asks"] and not contents.status["tells"]:
        raise InputError("there is nothing to report yet; ask for a batch or tell some results first")
    from aicau.report import figures

    template = environment("aicau.report").get_template("report.html.j2")
    columns, rows = last_batch(contents if not others else _together(every))
    drawn = [(one, figures.draw(one)) for one in every]
    about = {"contents": contents, "every": drawn, "status": status or contents.status}
    return template.render(**about, columns=columns, rows=rows, version=aicau.__version__)


def _together(every: Sequence[Contents]) -> Contents:
    """What was measured and is predicted of the last batch, target by target."""
    ids = {id for one in every for id in (*one.measured, *one.predicted)}
    named = [(one.settings["target"], one) for one in every]
    measured = {id: [f"{name} {', '.join(o.measured[id])}" for name, o in named if id in o.measured] for id in ids}
    predicted = {id: "; ".join(f"{name} {o.predicted[id]}" for name, o in named if id in o.predicted) for id in ids}
    return replace(every[0], measured=measured, predicted=predicted)


def environment(*packages: str) -> Environment:
    """Where templates come from; every name, label and id in them is escaped."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters["number"] = number
    return made


def number(value: Any, digits: int = 3) -> str:
    """A number in few digits; text as it is; a dash for what is not known."""
    if isinstance(value, str):
        return value
    return "–" if value is None or not np.isfinite(value) else f"{value:.{digits}g}"


def last_batch(contents: Contents) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns of the table of the last batch, and its rows: id, state, cells, reason and features of each point."""
    if contents.batch is None:
        return [], []
    id = contents.settings["id"]
    left_out = {id, "reason", *(c["name"] for c in contents.settings["columns"] if c["kind"] == "ignored")}
    names = [str(name) for name in contents.batch if name not in left_out]
    reasons = [name for name in names if name.startswith("reason_")]
    own = [name for name in ("well", "replicate") if name in names]
    features = [name for name in names if name not in (*own, *reasons)]
    rows = [
        {
            "id": row[id], "state": state, "reason": row["reason"],
            "features": [(name, number(row[name], 6)) for name in features],
            "cells": [
                ", ".join(contents.measured.get(str(row[id]), [])) or "–", contents.predicted.get(str(row[id]), "–"),
                *(number(row[c], 6) for c in own), *(number(row[c]) for c in reasons),
            ],
        }
        for row, state in zip(contents.batch.to_dict("records"), contents.states, strict=True)
    ]  # fmt: skip
    return [id, "state", "measured", "predicted now", *own, *(name.removeprefix("reason_") for name in reasons)], rows
