"""A campaign's report as one HTML file: figures as SVG inside it, no network, no script."""

from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

import aicau
from aicau.campaign.campaign import Campaign
from aicau.core.errors import InputError
from aicau.report.data import Contents


def render(campaign: Campaign) -> str:
    """Return the whole page, of one target or of several; fits the models that are missing."""
    status = campaign.status()
    if not status["asks"] and not status["tells"]:
        raise InputError("there is nothing to report yet; ask for a batch or tell some results first")
    from aicau.report import figures
    from aicau.report.gather import gather

    every = [(contents, figures.draw(contents)) for contents in map(gather, campaign.views())]
    about = {"campaign": campaign, "status": status, "every": every, "next_step": _next_step(campaign.name, status)}
    template, first = environment("aicau.report").get_template("report.html.j2"), every[0][0]
    return template.render(**about, contents=first, batch=last_batch(first), version=aicau.__version__)


def _next_step(name: str, status: dict[str, Any]) -> str:
    """The command that comes next."""
    if pending := status["pending"]:
        points = "the pending point" if pending == 1 else f"the {pending} pending points"
        return f"Measure {points}, then tell the results: aicau tell {name} results.csv"
    return f"Ask for the next batch: aicau ask {name} {status['last_size'] or 8}"


def environment(*packages: str) -> Environment:
    """Where templates come from; every name, label and id in them is escaped."""
    loader = ChoiceLoader([PackageLoader(package) for package in packages])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters["number"] = number
    return made


def number(value: Any, digits: int = 3) -> str:
    """A number in few digits; text as it is; a dash for what is not known."""
    if isinstance(value, str):
        return value
    return "–" if value is None or not np.isfinite(value) else f"{value:.{digits}g}"


def last_batch(contents: Contents) -> dict[str, Any]:
    """Points of the last batch with their states, and the names of their columns by what they hold."""
    frame, states, round = contents.batch
    if frame is None:
        return {"rows": []}
    id = contents.settings["id"]
    left_out = {id, "reason", *(c["name"] for c in contents.settings["columns"] if c["kind"] == "ignored")}
    names = [str(name) for name in frame if name not in left_out]
    reasons = [name for name in names if name.startswith("reason_")]
    own = [name for name in ("well", "replicate") if name in names]
    rows = list(zip(frame.to_dict("records"), states, strict=True))
    features = [name for name in names if name not in (*own, *reasons)]
    return {"rows": rows, "round": round, "id": id, "own": own, "features": features, "reasons": reasons}
