"""The verbs of a campaign. Each takes the campaign first: a file such as screen.db, or a postgresql:// address."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from aicau.cli.app import app
from aicau.cli.options import Author, Force, Json, Out, SheetName, Skip, Where
from aicau.cli.output import busy, check_out, hand_out, many, plain, say, show, written
from aicau.core.errors import InputError, StoreError
from aicau.core.files import PAGES, is_report, reason


@app.command()
def init(
    campaign: Where,
    candidates: Annotated[Path, typer.Argument(help="CSV, Excel or Parquet: one row per candidate")],
    target: Annotated[list[str], typer.Option(help="What the column of results will be called")],
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
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Start a campaign over a table of candidates.

    Example: aicau init screen.db candidates.csv --id compound --target viability --batch plate
    """
    from aicau.campaign.campaign import Campaign
    from aicau.tables.candidates import summary

    if len(target) > 1:
        names = " and ".join(map(repr, target))
        raise InputError(f"a campaign has one target, and {names} were named; make a campaign for each of them")
    settings = (target[0], batch, strategy, seed, id, ignore or [], author, task, ensemble, goal, weight, sheet, skip)
    with (
        busy("reading the candidates and trying the strategy"),
        Campaign.create(campaign, candidates, *settings) as made,
    ):
        status = made.status()
        understood = summary(made.settings["columns"])
    lines = [
        f"{made.store.where}: {many(status['candidates'], 'candidate')}; strategy {status['strategy']}",
        f"understood: {understood}",
        *(f"note: {words}" for words in status["warnings"]),
        f"next: aicau ask {campaign} 8 --out plate-1.csv",
    ]
    say(as_json, status | {"understood": understood}, "\n".join(lines))


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
    force: Force = False,
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Get the next batch: id, features, replicate and reason. Its points are pending until they are told or abandoned.

    A file has empty columns for the result, the batch and the status: fill them in and tell the file.

    Example: aicau ask screen.db 96 --out plate-1.csv
    """
    check_out(campaign, out, force)
    with busy("choosing the batch"):
        from aicau.campaign.campaign import Campaign

        with Campaign.open(campaign, author) as opened:
            frame = opened.ask(n, request, goal, weight, replicates, preview)
            blank = opened.blank_columns()
    repeats = int((frame["replicate"] > 1).sum())
    words = f"{out}: {many(len(frame), 'point')}, {repeats} of them repeats"
    fill = f"next: fill in {', '.join(blank)}, then aicau tell {campaign} {out}"
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
    from aicau.campaign.campaign import Campaign

    with Campaign.open(campaign) as opened:
        frame, blank = opened.pending(ask), opened.blank_columns()
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
    from aicau.campaign.campaign import Campaign
    from aicau.tables.results import summary

    with Campaign.open(campaign, author) as opened:
        told = opened.tell(results, correct, new or [], sheet, skip)
    after = "aicau pending lists them" if told["pending"] else f"aicau ask {campaign} N, or aicau predict {campaign}"
    notes = (f"note: {words}" for words in told["warnings"])
    say(as_json, told, "\n".join([f"{results}: {summary(told)}", *notes, f"next: {after}"]))


@app.command()
def status(campaign: Where, as_json: Json = False) -> None:
    """Say where a campaign stands.

    Example: aicau status screen.db --json
    """
    from aicau.campaign.campaign import Campaign

    with Campaign.open(campaign) as opened:
        found = opened.status()
    closed = f", {found['excluded']} excluded" if found["excluded"] else ""
    lines = (
        f"{many(found['candidates'], 'candidate')}, {found['measured']:,} of them measured"
        f" ({many(found['measurements'], 'measurement')}, {many(found['failed_wells'], 'failed well')},"
        f" {many(found['superseded'], 'superseded row')}){closed}",
        f"{many(found['rounds'], 'round')}, {many(found['asks'], 'ask')}, {many(found['tells'], 'tell')};"
        f" {many(found['pending'], 'point')} pending",
        f"{many(found['models'], 'model')} kept, {found['model_bytes'] / 1e6:.1f} MB ('aicau compact' drops the old"
        " ones)",
        f"strategy {found['strategy']}, seed {found['seed']}; target {found['target']!r}, batch {found['batch']!r}",
        f"task {found['task']}"
        + (f"; classes {', '.join(found['classes']) or 'none yet'}" if "classes" in found else ""),
        *(f"note: {words}" for words in found["warnings"][:10]),
        *([f"note: {len(found['warnings']) - 10} more; --json has all of them"] if len(found["warnings"]) > 10 else []),
        f"next: {_next(campaign, found)}",
    )
    if found["progress"]:
        lines += (f"after {found['progress']['measurements']} measurements: {found['progress']['advice']}",)
    say(as_json, found, "\n".join(lines))


def _next(campaign: str, found: dict[str, Any]) -> str:
    if found["pending"]:
        return f"measure what is pending (aicau pending {campaign}), then aicau tell {campaign} RESULTS"
    if not found["measurements"]:
        return f"aicau ask {campaign} N --out plate-1.csv"
    return f"aicau ask {campaign} N, or aicau predict {campaign} --out predictions.csv"


@app.command()
def predict(
    campaign: Where,
    out: Out = None,
    details: Annotated[
        bool, typer.Option("--details", help="Also ignored columns, and mean and number of measurements")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict every candidate: debiased mean and 95% intervals, or probabilities; epistemic, bias, aleatoric.

    Example: aicau predict screen.db --out predictions.csv
    """
    check_out(campaign, out, force)
    with busy("predicting"):
        from aicau.campaign.campaign import Campaign

        with Campaign.open(campaign) as opened:
            if out is not None:
                written(out, lambda: opened.predict(out, force, details))
                words = f"next: aicau ask {campaign} N, or aicau report {campaign}"
                found = {"path": str(out), "candidates": opened.n}
                say(as_json, found, f"{out}: {many(opened.n, 'candidate')}\n{words}")
                return
            for at, table in enumerate(opened.predictions(details)):
                if not as_json:
                    show(table, header=at == 0)
                    continue
                words = json.dumps(plain(table.to_pandas()), allow_nan=False)[1:-1]
                print(("[" if at == 0 else ", ") + words, end="")
            if as_json:
                print("]")


@app.command()
def report(
    campaign: Where,
    out: Annotated[Path, typer.Option(help="The HTML file; an earlier report is replaced")] = Path("report.html"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write one HTML file, readable offline: errors over rounds, calibration, noise, map, and the last batch.

    Example: aicau report screen.db --out report.html
    """
    check_out(campaign, out, force or is_report(out), PAGES)
    from aicau.campaign.campaign import Campaign

    with busy("writing the report"), Campaign.open(campaign) as opened:
        written(out, lambda: opened.report(out, force))
    say(as_json, {"path": str(out)}, f"{out}")


@app.command()
def export(
    campaign: Where,
    folder: Annotated[Path, typer.Argument(help="Folder for the files; an earlier export is replaced")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the whole campaign as plain files: CSV, JSON and safetensors.

    Example: aicau export screen.db backup
    """
    from aicau.campaign.campaign import Campaign

    with Campaign.open(campaign) as opened:
        files = written(folder, lambda: opened.export(folder, force))
    say(as_json, {"files": [str(file) for file in files]}, "\n".join(str(file) for file in files))


@app.command()
def doctor(campaign: Where, as_json: Json = False) -> None:
    """Check that a campaign is whole; nothing is changed. Exit code 1 where something is wrong.

    Example: aicau doctor screen.db
    """
    from aicau.campaign.campaign import Campaign

    with Campaign.open(campaign) as opened:
        checks = opened.doctor()
    rows = [{"check": check.name, "ok": check.ok, "problem": check.problem} for check in checks]
    say(as_json, rows, "\n".join(f"{check.name}: {check.problem or 'in order'}" for check in checks))
    if not all(check.ok for check in checks):
        raise StoreError(f"{opened.store.where} is damaged; restore it from a copy, or export what can be read")


@app.command()
def compact(campaign: Where, author: Author = None, as_json: Json = False) -> None:
    """Drop the kept models of earlier rounds and make the file smaller. Nothing that was asked or told changes.

    A report then has held-out errors of the last rounds only.

    Example: aicau compact screen.db
    """
    from aicau.campaign.campaign import Campaign

    with Campaign.open(campaign, author) as opened:
        done = opened.compact()
    say(as_json, done, f"{many(done['dropped'], 'old model')} dropped, {done['bytes'] / 1e6:.1f} MB")
