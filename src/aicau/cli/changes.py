"""The verbs that change a campaign while it runs, and those that list what it holds."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from aicau.cli.app import app, opened
from aicau.cli.options import Author, Control, Edges, Force, Json, Layout, Out, SheetName, Skip, Where
from aicau.cli.output import check_out, hand_out, many, say, written

Ids = Annotated[list[str], typer.Argument(help="Ids of candidates")]


@app.command()
def abandon(campaign: Where, ids: Ids, author: Author = None, as_json: Json = False) -> None:
    """Give up pending points that will not be measured: they are not proposed again.

    Example: aicau abandon screen.db compound-17 compound-42
    """
    with opened(campaign, author) as found:
        count = found.abandon(ids)
    say(as_json, {"abandoned": count}, f"{many(count, 'pending point')} abandoned; 'aicau include' takes them back")


@app.command()
def exclude(
    campaign: Where,
    ids: Ids,
    reason: Annotated[str, typer.Option(help="Why: out of stock, insoluble ...")],
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Leave candidates out of all further batches. What was measured of them stays.

    Example: aicau exclude screen.db compound-17 --reason insoluble
    """
    with opened(campaign, author) as found:
        done = found.exclude(ids, reason)
    words = f"{many(done['excluded'], 'candidate')} excluded"
    words += f", {many(done['pending'], 'pending point')} given up" if done["pending"] else ""
    say(as_json, done, f"{words}; 'aicau include' takes them back")


@app.command()
def include(
    campaign: Where,
    ids: Ids,
    reason: Annotated[str, typer.Option(help="Why")] = "",
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Let excluded or abandoned candidates be proposed again.

    Example: aicau include screen.db compound-17
    """
    with opened(campaign, author) as found:
        count = found.include(ids, reason)
    say(as_json, {"included": count}, f"{many(count, 'candidate')} may be proposed again")


@app.command()
def confirm(campaign: Where, ids: Ids, author: Author = None, as_json: Json = False) -> None:
    """Say that values are right which status points out as unusual.

    Example: aicau confirm screen.db compound-17
    """
    with opened(campaign, author) as found:
        count = found.confirm(ids)
    say(as_json, {"confirmed": count}, f"{many(count, 'value')} confirmed")


@app.command()
def add(
    campaign: Where,
    candidates: Annotated[Path, typer.Argument(help="CSV, Excel or Parquet, with the columns of the first candidates")],
    sheet: SheetName = None,
    skip: Skip = 0,
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Add candidates; rows that are there already are skipped.

    Example: aicau add screen.db more-candidates.csv
    """
    with opened(campaign, author) as found:
        done = found.add(candidates, sheet, skip)
    words = f"{many(done['added'], 'candidate')} added" + (f", {done['known']} known already" if done["known"] else "")
    say(as_json, done, f"{words}; {done['candidates']:,} in all. Next: aicau ask {quote(campaign)} N")


@app.command()
def rename(
    campaign: Where,
    old: Annotated[str, typer.Argument(help="The batch as it is called now")],
    new: Annotated[str, typer.Argument(help="What it is to be called; an existing one takes the rows in")],
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Rename a batch (a plate, a day), or join it with the one it should have been.

    Example: aicau rename screen.db p1 P1
    """
    with opened(campaign, author) as found:
        count = found.rename(old, new)
    say(as_json, {"renamed": count}, f"{many(count, 'measurement')} of {old!r} now of {new!r}")


@app.command()
def change(
    campaign: Where,
    strategy: Annotated[str | None, typer.Option(help="How batches are chosen from now on")] = None,
    batch: Annotated[str | None, typer.Option(help="The results' column of what is measured together")] = None,
    goal: Annotated[str | None, typer.Option(help="What counts: map, max, min, above:3.5 or below:3.5")] = None,
    weight: Annotated[str | None, typer.Option(help="The candidates' column of how much each counts")] = None,
    layout: Layout = None,
    control: Control = None,
    edges: Edges = True,
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Change strategy, goal or plate (none: no plate), or give a campaign that began without one a batch column.

    Example: aicau change screen.db --batch plate
    """
    from aicau.campaign.layout import read_controls

    with opened(campaign, author) as found:
        new = found.change(strategy, batch, goal, weight, layout, read_controls(control), edges)
    said = {k: f"{len(v['wells'])} wells" if isinstance(v, dict) else repr(v) for k, v in new.items()}
    words = ", ".join(f"{name} is now {value}" for name, value in said.items())
    again = "; tell the earlier files again: their rows get their batch" if "batch" in new else ""
    say(as_json, new, words + again)


@app.command()
def untell(
    campaign: Where,
    tell: Annotated[int, typer.Argument(help="The number of a tell, a correction or a renaming: see aicau history")],
    author: Author = None,
    as_json: Json = False,
) -> None:
    """Take back a tell, a correction or a renaming. Its rows stay in the history; they count no more.

    Example: aicau untell screen.db 3
    """
    with opened(campaign, author) as found:
        done = found.untell(tell)
    words = f"{many(done['gone'], 'measurement')} taken back"
    words += f", {done['back']} of before count again" if done["back"] else ""
    words += f", {many(done['pending'], 'point')} pending again" if done["pending"] else ""
    say(as_json, done, f"{words}. Next: tell the right file")


@app.command("import")
def import_(
    folder: Annotated[Path, typer.Argument(help="A folder that aicau export wrote")],
    campaign: Annotated[str, typer.Argument(metavar="CAMPAIGN", help="A new file or an empty database")],
    as_json: Json = False,
) -> None:
    """Restore a campaign from an export: history, corrections, models, batches.

    Example: aicau import backup restored.db
    """
    from aicau.campaign.campaign import Campaign

    with Campaign.import_(folder, campaign) as made:
        found = made.status()
    words = f"{many(found['candidates'], 'candidate')}, {many(found['measurements'], 'measurement')}"
    say(as_json, found, f"{made.store.where}: {words}, as they were. Next: aicau status {quote(campaign)}")


@app.command()
def batches(campaign: Where, out: Out = None, force: Force = False, as_json: Json = False) -> None:
    """List the batches that were asked for, with the states of their points.

    Example: aicau batches screen.db
    """
    _table(campaign, "batches", out, force, as_json)


@app.command()
def history(campaign: Where, out: Out = None, force: Force = False, as_json: Json = False) -> None:
    """List all that happened: when, by whom, what, and the number of each ask and tell.

    Example: aicau history screen.db --out history.csv
    """
    _table(campaign, "history", out, force, as_json)


@app.command()
def measurements(
    campaign: Where,
    every: Annotated[bool, typer.Option("--all", help="Also rows that were replaced or taken back")] = False,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """List what was told: id, result, batch, replicate, status, tell, time and author.

    Example: aicau measurements screen.db --out measurements.xlsx
    """
    _table(campaign, "measurements", out, force, as_json, not every)


def _table(campaign: str, verb: str, out: Path | None, force: bool, as_json: bool, *arguments: bool) -> None:
    check_out(campaign, out, force)
    with opened(campaign) as found:
        frame = getattr(found, verb)(*arguments)
    written(out, lambda: hand_out(frame, out, force, as_json, f"{out}: {many(len(frame), 'row')}"))
