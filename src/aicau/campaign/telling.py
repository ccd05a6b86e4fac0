"""A table of results on its way into a campaign."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicau import tables
from aicau.core.errors import InputError
from aicau.store import Measurement, add_tell
from aicau.tables import candidates, results
from aicau.tables.sheet import Sheet

if TYPE_CHECKING:
    from aicau.campaign.campaign import Campaign


def parsed(campaign: "Campaign", sheet: Sheet) -> tuple[list[Measurement], list[str]]:
    """The rows of a table, and notes on how they were read."""
    with campaign.store.reading() as session:
        ids = candidates.all_ids(session.ids())
    settings = campaign.settings
    own = {column["name"] for column in settings["columns"]}
    names = (settings["id"], settings["target"], settings["batch"])
    rows, notes = results.parse(sheet, *names, ids, campaign.task, own)
    return rows, list(notes)


def tell(
    campaign: "Campaign", table: Any, correct: bool, new: Sequence[str], sheet: str | None, skip: int
) -> dict[str, Any]:
    """All rows of the table, or none of them."""
    read = tables.read(table, None, sheet, skip)
    rows, notes = parsed(campaign, read)
    source = Path(table).name if isinstance(table, str | Path) else None
    with campaign.store.writing() as session:
        try:
            told = add_tell(session, rows, results.digest(rows, correct), correct, campaign.author, source, new)
        except InputError as error:  # about a row
            raise InputError(f"{read.name}, {error}") from error
    return asdict(told) | {"warnings": (*read.notes, *notes, *told.warnings)}
