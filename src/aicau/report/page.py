"""A campaign's report as one HTML file: figures as SVG inside it, no network, no script."""

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
    if not contents.status["asks"] and not contents.status["tells"]:
        raise InputError("there is nothing to report yet; ask for a batch or tell some results first")
    from aicau.report import figures

    template = environment("aicau.report").get_template("report.html.j2")
    drawn = [(one, figures.draw(one)) for one in (contents, *others)]
    about = {"contents": contents, "every": drawn, "status": status or contents.status}
    return template.render(**about, batch=last_batch(contents), version=aicau.__version__)


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
    if contents.batch is None:
        return {"rows": []}
    id = contents.settings["id"]
    left_out = {id, "reason", *(c["name"] for c in contents.settings["columns"] if c["kind"] == "ignored")}
    names = [str(name) for name in contents.batch if name not in left_out]
    reasons = [name for name in names if name.startswith("reason_")]
    own = [name for name in ("well", "replicate") if name in names]
    rows = list(zip(contents.batch.to_dict("records"), contents.states, strict=True))
    features = [name for name in names if name not in (*own, *reasons)]
    return {"rows": rows, "id": id, "own": own, "features": features, "reasons": reasons}
