"""The verbs of a campaign that give its results: predictions, a report, files, pages."""

import json
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Annotated

from typer import Argument, Option

from aicau.cli import options as opt
from aicau.cli.app import app, opened
from aicau.cli.output import busy, check_out, many, say, show, written
from aicau.core.errors import InputError, StoreError
from aicau.core.files import PAGES, is_report


@app.command()
def predict(
    campaign: opt.Where,
    out: opt.Out = None,
    details: Annotated[bool, Option("--details", help="Also ignored columns, and what was measured how often")] = False,
    force: opt.Force = False,
    engine: opt.EngineName = "local",
    address: opt.Address = None,
    as_json: opt.Json = False,
) -> None:
    """Predict every candidate: mean and 95% intervals, or probabilities; and the parts of the expected error.

    Example: aicau predict screen.db --out predictions.csv
    """
    check_out(campaign, out, force)
    from aicau.core.engine import Engine
    from aicau.web.plain import plain

    where = Engine(engine, address=address)
    with opened(campaign) as found:
        if out is not None:
            with busy("predicting"):
                written(out, lambda: found.predict(out, force, details, where))
            words = f"next: aicau ask {quote(campaign)} N, or aicau report {quote(campaign)}"
            made = {"path": str(out), "candidates": found.n}
            say(as_json, made, f"{out}: {many(found.n, 'candidate')}\n{words}")
            return
        with busy("predicting"):  # until there is something to print
            stream = found.predictions(details, where)
            first = next(stream)
        for at, table in enumerate(chain([first], stream)):
            if as_json:  # the rows of all tables in one list
                rows = json.dumps(plain(table.to_pandas()), allow_nan=False)[1:-1]
                print(f"{', ' if at else '['}{rows}", end="")
            else:
                show(table, header=at == 0)
        if as_json:
            print("]")


@app.command()
def report(
    campaign: opt.Where,
    out: Annotated[Path, Option(help="The HTML file; an earlier report is replaced")] = Path("report.html"),
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Write one HTML file, readable offline: errors over rounds, calibration, noise, map, and the last batch.

    Example: aicau report screen.db --out report.html
    """
    check_out(campaign, out, force or is_report(out), PAGES)
    with busy("writing the report"), opened(campaign) as found:
        written(out, lambda: found.report(out, force))
    say(as_json, {"path": str(out)}, f"{out}")


@app.command()
def export(
    campaign: opt.Where,
    folder: Annotated[Path, Argument(help="Folder for the files; an earlier export is replaced")],
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Write the whole campaign as plain files: CSV, JSON and safetensors.

    Example: aicau export screen.db backup
    """
    with opened(campaign) as found:
        files = written(folder, lambda: found.export(folder, force))
    say(as_json, {"files": [str(file) for file in files]}, "\n".join(str(file) for file in files))


@app.command()
def doctor(campaign: opt.Where, as_json: opt.Json = False) -> None:
    """Check that a campaign is whole; nothing is changed. Exit code 1 where something is wrong.

    Example: aicau doctor screen.db
    """
    with opened(campaign) as found:
        checks = found.doctor()
    rows = [{"check": check.name, "ok": check.ok, "problem": check.problem} for check in checks]
    say(as_json, rows, "\n".join(f"{check.name}: {check.problem or 'in order'}" for check in checks))
    if not all(check.ok for check in checks):
        raise StoreError(f"{found.store.where} is not in order: do what is said above, or restore it from a copy")


@app.command()
def compact(campaign: opt.Where, author: opt.Author = None, as_json: opt.Json = False) -> None:
    """Drop the kept models of earlier rounds and make the file smaller. Nothing that was asked or told changes.

    A report then has held-out errors of the last rounds only.

    Example: aicau compact screen.db
    """
    with opened(campaign, author) as found:
        done = found.compact()
    say(as_json, done, f"{many(done['dropped'], 'old model')} dropped, {done['bytes'] / 1e6:.1f} MB")


@app.command()
def serve(
    places: Annotated[list[str], Argument(metavar="CAMPAIGN", help="Files of campaigns, or folders that hold some")],
    host: Annotated[str, Option(help="Address to listen at; any other than this machine needs a token")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port to listen at; 0 takes a free one", min=0, max=65535)] = 8765,
    token: Annotated[
        str | None, Option(envvar="AICAU_TOKEN", help="Password of the pages; safer in $AICAU_TOKEN")
    ] = None,
) -> None:
    """Show campaigns as pages in a browser: plan, look, drop results. Runs until it is stopped.

    Example: aicau serve screen.db
    """
    try:
        from aicau.web.serve import serve
    except ImportError as error:
        raise InputError(f"pages need more packages ({error.name}): pip install 'aicau[web]'") from None
    serve(places, host, port, token)
