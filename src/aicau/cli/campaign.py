"""The verbs of a campaign. Each takes the campaign first: a file such as screen.db, or a postgresql:// address."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from aicau.cli.app import app
from aicau.cli.output import check_out, hand_out, plain, say, show, written
from aicau.core.errors import StoreError
from aicau.core.files import PAGES, is_report, reason

Where = Annotated[
    str, typer.Argument(metavar="CAMPAIGN", help="A file such as screen.db, or postgresql://host/database")
]
Author = Annotated[str | None, typer.Option(help="Who does this; default $AICAU_AUTHOR, else the user's name")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file of that name")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text")]


@app.command()
def init(
    campaign: Where,
    candidates: Annotated[Path, typer.Argument(help="CSV or Parquet: one row per candidate")],
    target: Annotated[str, typer.Option(help="What the column of results will be called")],
    id: Annotated[str, typer.Option(help="The column that tells candidates apart")] = "id",
    batch: Annotated[str | None, typer.Option(help="The results' column of what was measured together")] = None,
    strategy: Annotated[str | None, typer.Option(help="How batches are chosen after the first")] = None,
    task: Annotated[str, typer.Option(help="What a result is: regression, classification or count")] = "regression",
    ensemble: Annotated[str, typer.Option(help="What predicts: combined or paper (networks alone)")] = "combined",
    seed: Annotated[int, typer.Option(help="Same seed and same history, same batch")] = 0,
    ignore: Annotated[list[str] | None, typer.Option(help="A column that is kept but is no feature; repeat")] = None,
    goal: Annotated[str, typer.Option(help="What counts: map (all alike), max, min, above:3.5 or below:3.5")] = "map",
    weight: Annotated[str | None, typer.Option(help="The candidates' column of how much each counts")] = None,
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Start a campaign over a table of candidates.

    Example: aicau init screen.db candidates.csv --id compound --target viability --batch plate
    """
    from aicau.campaign.campaign import Campaign

    settings = (target, batch, strategy, seed, id, ignore or [], author, task, ensemble, goal, weight)
    with Campaign.create(campaign, candidates, *settings) as made:
        status = made.status()
    features = ", ".join(status["features"])
    say(
        as_json,
        status,
        f"{made.store.where}: {status['candidates']:,} candidates with {features}; strategy {status['strategy']}",
    )


@app.command()
def ask(
    campaign: Where,
    n: Annotated[int, typer.Argument(help="How many points")],
    out: Annotated[Path | None, typer.Option(help="Write the batch to this CSV or Parquet file")] = None,
    request: Annotated[str | None, typer.Option(help="A name: the same name again gives the same batch")] = None,
    goal: Annotated[str | None, typer.Option(help="For this batch: map, max, min, above:3.5 or below:3.5")] = None,
    weight: Annotated[str | None, typer.Option(help="For this batch: the column of how much each counts")] = None,
    force: Force = False,
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Get the next batch: id, features, replicate and reason. Its points are pending until they are told or abandoned.

    Example: aicau ask screen.db 96 --out plate-1.csv
    """
    check_out(campaign, out, force)
    from aicau.campaign.campaign import Campaign

    with Campaign.open(campaign, author) as opened:
        frame = opened.ask(n, request, goal, weight)
    try:
        hand_out(frame, out, force, as_json)
        sys.stdout.flush()
    except Exception as error:  # it is too late to take the points back
        raise StoreError(
            f"{out or 'the output'} could not be written ({reason(error)}), but the {len(frame)} points were asked for"
            " and are pending; print them again with 'aicau pending'"
        ) from error


@app.command()
def pending(
    campaign: Where,
    out: Annotated[Path | None, typer.Option(help="Write the points to this CSV or Parquet file")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """List the points that were asked for and neither told nor abandoned yet, as ask handed them out.

    Example: aicau pending screen.db --out still-to-measure.csv
    """
    check_out(campaign, out, force)
    from aicau.campaign.campaign import Campaign

    with Campaign.open(campaign) as opened:
        frame = opened.pending()
    written(out, lambda: hand_out(frame, out, force, as_json))


@app.command()
def tell(
    campaign: Where,
    results: Annotated[Path, typer.Argument(help="CSV or Parquet: id, result and batch, one row per measurement")],
    correct: Annotated[bool, typer.Option("--correct", help="Replace what was told for the same id and batch")] = False,
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
        told = opened.tell(results, correct)
    say(as_json, told, "\n".join([f"{results}: {summary(told)}", *(f"note: {words}" for words in told["warnings"])]))


@app.command()
def abandon(
    campaign: Where,
    ids: Annotated[list[str], typer.Argument(help="Ids of pending points")],
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Give up pending points that will not be measured: they are not proposed again.

    Example: aicau abandon screen.db compound-17 compound-42
    """
    from aicau.campaign.campaign import Campaign

    with Campaign.open(campaign, author) as opened:
        count = opened.abandon(ids)
    say(as_json, {"abandoned": count}, f"{count} pending points abandoned")


@app.command()
def status(campaign: Where, as_json: Json = False) -> None:
    """Say where a campaign stands.

    Example: aicau status screen.db --json
    """
    from aicau.campaign.campaign import Campaign

    with Campaign.open(campaign) as opened:
        found = opened.status()
    lines = (
        f"{found['candidates']:,} candidates, {found['measured']:,} of them measured ({found['measurements']:,}"
        f" measurements, {found['failed_wells']} failed wells, {found['superseded']} superseded rows)",
        f"{found['rounds']} rounds, {found['asks']} asks, {found['tells']} tells; {found['pending']} points pending",
        f"{found['models']} models kept, {found['model_bytes'] / 1e6:.1f} MB ('aicau compact' drops the old ones)",
        f"strategy {found['strategy']}, seed {found['seed']}; target {found['target']!r}, batch {found['batch']!r}",
        f"task {found['task']}"
        + (f"; classes {', '.join(found['classes']) or 'none yet'}" if "classes" in found else ""),
    )
    say(as_json, found, "\n".join(lines))


@app.command()
def predict(
    campaign: Where,
    out: Annotated[Path | None, typer.Option(help="Write to this CSV or Parquet file")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict every candidate: debiased mean and 95% intervals, or probabilities; epistemic, bias, aleatoric.

    Example: aicau predict screen.db --out predictions.csv
    """
    check_out(campaign, out, force)
    from aicau.campaign.campaign import Campaign

    with Campaign.open(campaign) as opened:
        if out is not None:
            written(out, lambda: opened.predict(out, force))
            say(as_json, {"path": str(out), "candidates": opened.n}, f"{out}: {opened.n:,} candidates")
            return
        if as_json:
            for at, table in enumerate(opened.predictions()):
                words = json.dumps(plain(table.to_pandas()), allow_nan=False)[1:-1]
                print(("[" if at == 0 else ", ") + words, end="")
            print("]")
        else:
            for at, table in enumerate(opened.predictions()):
                show(table, header=at == 0)


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

    with Campaign.open(campaign) as opened:
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
    say(as_json, done, f"{done['dropped']} old models dropped, {done['bytes'] / 1e6:.1f} MB")
