"""The verbs of a campaign. Each takes the campaign first: a file such as screen.db, or a postgresql:// address."""

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from aicau.cli.app import app, opened
from aicau.cli.options import (
    Address,
    Author,
    Control,
    Edges,
    EngineName,
    Force,
    Json,
    Layout,
    Out,
    SheetName,
    Skip,
    Where,
)
from aicau.cli.output import busy, check_out, hand_out, many, say, written
from aicau.core.errors import InputError, StoreError
from aicau.core.files import reason


@app.command()
def init(
    campaign: Where,
    candidates: Annotated[Path, typer.Argument(help="CSV, Excel or Parquet: one row per candidate")],
    target: Annotated[list[str], typer.Option(help="What the column of results will be called; repeat for several")],
    id: Annotated[str, typer.Option(help="The column that tells candidates apart")] = "id",
    batch: Annotated[str | None, typer.Option(help="The results' column of what was measured together")] = None,
    strategy: Annotated[str | None, typer.Option(help="How batches are chosen after the first")] = None,
    task: Annotated[str, typer.Option(help="What a result is: regression, classification or count")] = "regression",
    ensemble: Annotated[str, typer.Option(help="What predicts: combined or paper (networks alone)")] = "combined",
    seed: Annotated[int, typer.Option(help="Same seed and same history, same batch")] = 0,
    ignore: Annotated[list[str] | None, typer.Option(help="A column that is kept but is no feature; repeat")] = None,
    goal: Annotated[str, typer.Option(help="What counts: map (all alike), max, min, above:3.5 or below:3.5")] = "map",
    weight: Annotated[str | None, typer.Option(help="The candidates' column of how much each counts")] = None,
    sheet: SheetName = None,
    skip: Skip = 0,
    layout: Layout = None,
    control: Control = None,
    edges: Edges = True,
    scale: Annotated[str, typer.Option(help="linear, or log for a positive target whose errors are ratios")] = "linear",
    cost: Annotated[str | None, typer.Option(help="The column with the cost of measuring each candidate")] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Leave candidates in their Parquet file or folder: nothing is copied")
    ] = False,
    target_weight: Annotated[
        list[str] | None, typer.Option(help="How much one of several targets counts: NAME=2; repeat")
    ] = None,
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Start a campaign over a table of candidates.

    Example: aicau init screen.db candidates.csv --id compound --target viability --batch plate
    """
    from aicau.campaign.campaign import Campaign
    from aicau.campaign.layout import read_controls
    from aicau.tables.candidates import summary

    names = target if len(target) > 1 else target[0]
    settings = (names, batch, strategy, seed, id, ignore or [], author, task, ensemble, goal, weight, sheet, skip)
    plate = (layout, read_controls(control), edges, scale, cost, _weights(target_weight or []), in_place)
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
    campaign: Where,
    n: Annotated[int, typer.Argument(help="How many points")],
    out: Out = None,
    request: Annotated[str | None, typer.Option(help="A name: the same name again gives the same batch")] = None,
    goal: Annotated[str | None, typer.Option(help="For this batch: map, max, min, above:3.5 or below:3.5")] = None,
    weight: Annotated[str | None, typer.Option(help="For this batch: the column of how much each counts")] = None,
    replicates: Annotated[int, typer.Option(help="Wells of each point")] = 1,
    preview: Annotated[bool, typer.Option("--preview", help="Only look: nothing is pending afterwards")] = False,
    budget: Annotated[float | None, typer.Option(help="Most that the points may cost together")] = None,
    layout: Layout = None,
    control: Control = None,
    edges: Edges = True,
    engine: EngineName = "local",
    address: Address = None,
    device: Annotated[str, typer.Option(help="Where the batch is computed: cpu, cuda or auto")] = "cpu",
    force: Force = False,
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Get the next batch: id, features, replicate and reason. Its points are pending until they are told or abandoned.

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
    except Exception as error:  # it is too late to take the points back
        if preview:
            raise
        raise StoreError(
            f"{out or 'the output'} could not be written ({reason(error)}), but the {len(frame)} points were asked for"
            " and are pending; print them again with 'aicau pending'"
        ) from error


@app.command()
def pending(
    campaign: Where,
    ask: Annotated[int | None, typer.Option(help="Only of this batch: its number in aicau batches")] = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
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
    campaign: Where,
    results: Annotated[Path, typer.Argument(help="CSV, Excel or Parquet: id, result and batch, a row per measurement")],
    correct: Annotated[bool, typer.Option("--correct", help="Replace what was told for the same id and batch")] = False,
    new: Annotated[
        list[str] | None, typer.Option(help="A batch or class that is new, though it looks like a known one; repeat")
    ] = None,
    sheet: SheetName = None,
    skip: Skip = 0,
    author: Author = None,
    as_json: Json = False,
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
def status(campaign: Where, as_json: Json = False) -> None:
    """Say where a campaign stands.

    Example: aicau status screen.db --json
    """
    with opened(campaign) as one:
        found = one.status()
    closed = f", {found['excluded']} excluded" if found["excluded"] else ""
    lines: tuple[str, ...] = (
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
    )
    for name, own in found.get("targets", {"": found}).items():
        if own["progress"]:
            words = f"after {own['progress']['measurements']} measurements: {own['progress']['advice']}"
            lines += (f"{name} {words}" if name else words,)
    say(as_json, found, "\n".join(lines))


def _next(campaign: str, found: dict[str, Any]) -> str:
    own = quote(campaign)
    if found["pending"]:
        return f"measure what is pending (aicau pending {own}), then aicau tell {own} RESULTS"
    if not found["measurements"]:
        return f"aicau ask {own} N --out plate-1.csv"
    return f"aicau ask {own} N, or aicau predict {own} --out predictions.csv"
