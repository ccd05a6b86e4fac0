"""The verbs of a campaign. Each takes the campaign first: a file such as screen.db, or a postgresql:// address."""

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from typer import Argument, Option

from aicau.cli import options as opt
from aicau.cli.app import app, opened
from aicau.cli.output import busy, check_out, hand_out, many, say, written
from aicau.core.errors import InputError, StoreError
from aicau.core.files import reason


@app.command()
def init(
    campaign: opt.Where,
    candidates: Annotated[Path, Argument(help="CSV, Excel or Parquet: one row per candidate")],
    target: Annotated[list[str], Option(help="The column of results, as it will be called; repeat for several")],
    id: Annotated[str, Option(help="The column of ids, different for every candidate")] = "id",
    batch: opt.Batch = None,
    strategy: opt.Strategy = None,
    task: Annotated[str, Option(help="What a result is: regression, classification or count")] = "regression",
    ensemble: Annotated[str, Option(help="What predicts: combined, or paper (networks alone)")] = "combined",
    seed: Annotated[int, Option(help="Start of the random numbers: same seed and same history, same batch")] = 0,
    ignore: Annotated[list[str] | None, Option(help="A column to keep, but not as a feature; repeat")] = None,
    goal: opt.Goal = "map",
    weight: opt.Weight = None,
    sheet: opt.SheetName = None,
    skip: opt.Skip = 0,
    layout: opt.Layout = None,
    control: opt.Control = None,
    edges: opt.Edges = True,
    scale: Annotated[str, Option(help="linear, or log for a positive target whose errors are ratios")] = "linear",
    cost: Annotated[str | None, Option(help="The column with the cost of one measurement of each candidate")] = None,
    in_place: Annotated[bool, Option("--in-place", help="Do not copy candidates out of their Parquet files")] = False,
    target_weight: Annotated[list[str] | None, Option(help="The weight of a target: yield=2; repeat")] = None,
    author: opt.Author = None,
    as_json: opt.Json = False,
) -> None:
    """Start a campaign over a table of candidates.

    Example: aicau init screen.db candidates.csv --id compound --target viability --batch plate
    """
    from aicau.campaign.campaign import Campaign
    from aicau.campaign.layout import read_controls
    from aicau.tables.candidates import summary

    names = target if len(target) > 1 else target[0]
    settings = (names, batch, strategy, seed, id, ignore or [], author, task, ensemble, goal or "map", weight)
    plate = (sheet, skip, layout, read_controls(control), edges, scale, cost, _weights(target_weight or []), in_place)
    with (
        busy("reading the candidates and trying the strategy"),
        Campaign.create(campaign, candidates, *settings, *plate) as made,
    ):
        status = made.status()
        understood = summary(made.settings["columns"])
    lines = [
        f"{made.store.where}: {many(status['candidates'], 'candidate')}; strategy {status['strategy']}",
        f"understood: {understood}",
        *(f"note: {words}" for words in status["warnings"]),
        f"next: aicau ask {quote(campaign)} {min(8, status['candidates'])} --out plate-1.csv",
    ]
    say(as_json, status | {"understood": understood}, "\n".join(lines))


def _weights(words: list[str]) -> dict[str, float]:
    """From NAME=2, once per target."""
    found: dict[str, float] = {}
    for word in words:
        name, _, number = (part.strip() for part in word.rpartition("="))
        if name in found:
            raise InputError(f"the weight of {name!r} is given twice; give it once")
        try:
            found[name] = float(number)
        except ValueError:
            raise InputError(f"the weight {word!r} cannot be read; write a target and a number, such as a=2") from None
    return found


@app.command()
def ask(
    campaign: opt.Where,
    n: Annotated[int, Argument(help="How many points")],
    out: opt.Out = None,
    request: Annotated[str | None, Option(help="A name: ask again under it, and you get the same batch")] = None,
    goal: opt.Goal = None,
    weight: opt.Weight = None,
    replicates: Annotated[int, Option(help="How many wells each point gets")] = 1,
    preview: Annotated[bool, Option("--preview", help="Only look at the batch: it is not reserved")] = False,
    budget: Annotated[float | None, Option(help="What all points together may cost at most")] = None,
    layout: opt.Layout = None,
    control: opt.Control = None,
    edges: opt.Edges = True,
    engine: opt.EngineName = "local",
    address: opt.Address = None,
    device: Annotated[str, Option(help="Where the batch is computed: cpu, cuda or auto")] = "cpu",
    force: opt.Force = False,
    author: opt.Author = None,
    as_json: opt.Json = False,
) -> None:
    """Get the next batch: id, features, replicate and reason. Its points are pending until they are told or abandoned.

    Goal, weight and plate are those of the campaign, unless others are given for this batch.
    A file has empty columns for the result, the batch and the status: fill them in and tell the file.

    Example: aicau ask screen.db 96 --out plate-1.csv
    """
    check_out(campaign, out, force)
    from aicau.campaign.layout import read_controls
    from aicau.core.engine import Engine

    plate = (layout, read_controls(control), edges, Engine(engine, address=address), device)
    with busy("choosing the batch"), opened(campaign, author) as found:
        frame = found.ask(n, request, goal, weight, replicates, preview, budget, *plate)
        blank = found.blank_columns()
    repeats = int((frame["replicate"] > 1).sum())
    points = int(frame["replicate"].notna().sum())
    wells = f" and {many(len(frame) - points, 'well')} of controls" if len(frame) > points else ""
    words = f"{out}: {many(points, 'point')}{wells}, {repeats} of them repeats"
    fill = f"next: fill in {', '.join(blank)}, then aicau tell {quote(campaign)} {quote(str(out))}"
    try:
        hand_out(frame, out, force, as_json, f"{words} (a preview)" if preview else f"{words}\n{fill}", blank)
        sys.stdout.flush()
    except Exception as error:  # the points are reserved already
        if preview:
            raise
        raise StoreError(
            f"{out or 'the output'} could not be written ({reason(error)}), but the {len(frame)} points were asked for"
            " and are pending; print them again with 'aicau pending'"
        ) from error


@app.command()
def pending(
    campaign: opt.Where,
    ask: Annotated[int | None, Option(help="Only of this batch: its number, as aicau batches lists it")] = None,
    out: opt.Out = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """List the points that were asked for and neither told nor abandoned yet, as ask handed them out.

    Example: aicau pending screen.db --out still-to-measure.csv
    """
    check_out(campaign, out, force)
    with opened(campaign) as found:
        frame, blank = found.pending(ask), found.blank_columns()
    written(out, lambda: hand_out(frame, out, force, as_json, f"{out}: {many(len(frame), 'point')}", blank))


@app.command()
def tell(
    campaign: opt.Where,
    results: Annotated[Path, Argument(help="CSV, Excel or Parquet: id, result and batch, a row per measurement")],
    correct: Annotated[bool, Option("--correct", help="Replace what was told for the same id and batch")] = False,
    new: Annotated[list[str] | None, Option(help="A new batch or class with a name like a known one; repeat")] = None,
    sheet: opt.SheetName = None,
    skip: opt.Skip = 0,
    author: opt.Author = None,
    as_json: opt.Json = False,
) -> None:
    """Tell what came out, all of a file or none of it; rows that are known already are not stored again.

    Several rows of one id are replicates. A failed well has 'failed' in a column 'status'; a mean has its
    standard error and count in 'sem' and 'count'. Labels of classification are words or numbers.

    Example: aicau tell screen.db plate-1-results.csv
    """
    from aicau.tables.results import summary

    with opened(campaign, author) as found:
        told = found.tell(results, correct, new or [], sheet, skip)
    own = quote(campaign)
    after = "aicau pending lists them" if told["pending"] else f"aicau ask {own} N, or aicau predict {own}"
    notes = (f"note: {words}" for words in told["warnings"])
    say(as_json, told, "\n".join([f"{results}: {summary(told)}", *notes, f"next: {after}"]))


@app.command()
def status(campaign: opt.Where, as_json: opt.Json = False) -> None:
    """Say where a campaign stands.

    Example: aicau status screen.db --json
    """
    with opened(campaign) as one:
        found = one.status()
    closed = f", {found['excluded']} excluded" if found["excluded"] else ""
    lines = [
        f"{many(found['candidates'], 'candidate')}, {found['measured']:,} of them measured"
        f" ({many(found['measurements'], 'measurement')}, {many(found['failed_wells'], 'failed well')},"
        f" {many(found['superseded'], 'superseded row')}){closed}",
        f"{many(found['rounds'], 'round')}, {many(found['asks'], 'ask')}, {many(found['tells'], 'tell')};"
        f" {many(found['pending'], 'point')} pending",
        f"{many(found['models'], 'model')} kept, {found['model_bytes'] / 1e6:.1f} MB ('aicau compact' drops the old"
        " ones)",
        f"strategy {found['strategy']}, seed {found['seed']}; target {found['target']!r},"
        f" {'batch ' + repr(found['batch']) if found['batch'] else 'no batch column'}",
        f"task {found['task']}"
        + (f"; classes {', '.join(found['classes']) or 'none yet'}" if found["task"] == "classification" else ""),
        *(f"note: {words}" for words in found["warnings"][:10]),
        *([f"note: {len(found['warnings']) - 10} more; --json has all of them"] if len(found["warnings"]) > 10 else []),
        f"next: {_next(campaign, found)}",
    ]
    for name, own in found.get("targets", {"": found}).items():
        if now := own["progress"]:
            lines.append(f"{name} after {now['measurements']} measurements: {now['advice']}".lstrip())
    say(as_json, found, "\n".join(lines))


def _next(campaign: str, found: dict[str, Any]) -> str:
    own = quote(campaign)
    if found["pending"]:
        return f"measure what is pending (aicau pending {own}), then aicau tell {own} RESULTS"
    if not found["measurements"]:
        return f"aicau ask {own} N --out plate-1.csv"
    return f"aicau ask {own} N, or aicau predict {own} --out predictions.csv"
