"""The verbs that change a campaign while it runs, and those that list its content."""

from pathlib import Path
from shlex import quote
from typing import Annotated

from typer import Argument, Option

from aicau.cli import options as opt
from aicau.cli.app import app, opened
from aicau.cli.output import check_out, hand_out, many, say, written

Ids = Annotated[list[str], Argument(help="Ids of candidates")]


@app.command()
def abandon(campaign: opt.Where, ids: Ids, author: opt.Author = None, as_json: opt.Json = False) -> None:
    """Give up pending points that will not be measured: they are not proposed again.

    Example: aicau abandon screen.db compound-17 compound-42
    """
    with opened(campaign, author) as found:
        count = found.abandon(ids)
    say(as_json, {"abandoned": count}, f"{many(count, 'pending point')} abandoned; 'aicau include' takes them back")


@app.command()
def exclude(
    campaign: opt.Where,
    ids: Ids,
    reason: Annotated[str, Option(help="Why: out of stock, insoluble ...")],
    author: opt.Author = None,
    as_json: opt.Json = False,
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
    campaign: opt.Where,
    ids: Ids,
    reason: Annotated[str, Option(help="Why")] = "",
    author: opt.Author = None,
    as_json: opt.Json = False,
) -> None:
    """Let excluded or abandoned candidates be proposed again.

    Example: aicau include screen.db compound-17
    """
    with opened(campaign, author) as found:
        count = found.include(ids, reason)
    say(as_json, {"included": count}, f"{many(count, 'candidate')} may be proposed again")


@app.command()
def confirm(campaign: opt.Where, ids: Ids, author: opt.Author = None, as_json: opt.Json = False) -> None:
    """Confirm values that status points out as unusual: they are right.

    Example: aicau confirm screen.db compound-17
    """
    with opened(campaign, author) as found:
        count = found.confirm(ids)
    say(as_json, {"confirmed": count}, f"{many(count, 'value')} confirmed")


@app.command()
def add(
    campaign: opt.Where,
    candidates: Annotated[Path, Argument(help="CSV, Excel or Parquet, with the columns of the first candidates")],
    sheet: opt.SheetName = None,
    skip: opt.Skip = 0,
    author: opt.Author = None,
    as_json: opt.Json = False,
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
    campaign: opt.Where,
    old: Annotated[str, Argument(help="The batch as it is called now")],
    new: Annotated[str, Argument(help="What it is to be called; an existing one takes the rows in")],
    author: opt.Author = None,
    as_json: opt.Json = False,
) -> None:
    """Rename a batch (a plate, a day), or join it with the one it should have been.

    Example: aicau rename screen.db p1 P1
    """
    with opened(campaign, author) as found:
        count = found.rename(old, new)
    say(as_json, {"renamed": count}, f"{many(count, 'measurement')} of {old!r} now of {new!r}")


@app.command()
def change(
    campaign: opt.Where,
    strategy: opt.Strategy = None,
    batch: opt.Batch = None,
    goal: opt.Goal = None,
    weight: opt.Weight = None,
    layout: opt.Layout = None,
    control: opt.Control = None,
    edges: opt.Edges = True,
    author: opt.Author = None,
    as_json: opt.Json = False,
) -> None:
    """Change strategy, goal, weight or plate (--layout none: no plate), or add a batch column where there was none.

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
    campaign: opt.Where,
    tell: Annotated[int, Argument(help="The number of a tell, a correction or a renaming: see aicau history")],
    author: opt.Author = None,
    as_json: opt.Json = False,
) -> None:
    """Take back a tell, a correction or a renaming. Its rows stay in the history; they no longer count.

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
    folder: Annotated[Path, Argument(help="A folder that aicau export wrote")],
    campaign: Annotated[str, Argument(metavar="CAMPAIGN", help="A new file or an empty database")],
    as_json: opt.Json = False,
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
def batches(campaign: opt.Where, out: opt.Out = None, force: opt.Force = False, as_json: opt.Json = False) -> None:
    """List the batches that were asked for, with the states of their points.

    Example: aicau batches screen.db
    """
    _table(campaign, "batches", out, force, as_json)


@app.command()
def history(campaign: opt.Where, out: opt.Out = None, force: opt.Force = False, as_json: opt.Json = False) -> None:
    """List all that happened: when, by whom, what, and the number of each ask and tell.

    Example: aicau history screen.db --out history.csv
    """
    _table(campaign, "history", out, force, as_json)


@app.command()
def measurements(
    campaign: opt.Where,
    every: Annotated[bool, Option("--all", help="Also rows that were replaced or taken back")] = False,
    out: opt.Out = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
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
