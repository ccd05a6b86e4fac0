"""A table of results on its way into a campaign."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicau import tables
from aicau.campaign import plates
from aicau.campaign.plates import Control
from aicau.campaign.setup import check_positive
from aicau.core.errors import InputError
from aicau.store import Measurement
from aicau.tables import candidates, results
from aicau.tables.sheet import Sheet

if TYPE_CHECKING:
    from aicau.campaign.campaign import Campaign


def parsed(campaign: "Campaign", sheet: Sheet) -> tuple[list[Measurement], list[Control], list[str]]:
    """The rows of a table, those of controls, and notes on how they were read."""
    settings = campaign.settings
    with campaign.store.reading() as session:
        ids = candidates.all_ids(session.ids())
        sheet, controls = plates.split(sheet, settings, session)
    own = {column["name"] for column in settings["columns"]}
    id, target, batch = settings["id"], settings["target"], settings["batch"]
    rows: list[Measurement] = []
    notes: Sequence[str] = ()
    if sheet.rows or not controls:
        if len(targets := campaign.targets) > 1:
            rows, notes = results.parse_each(sheet, id, list(targets), batch, ids, campaign.task, own)
        else:
            rows, notes = results.parse(sheet, id, target, batch, ids, campaign.task, own)
    check_positive(settings, sheet.name, rows, controls)
    return rows, controls, list(notes)


def tell(
    campaign: "Campaign", table: Any, correct: bool, new: Sequence[str], sheet: str | None, skip: int
) -> dict[str, Any]:
    """All rows of the table, or none of them."""
    read = tables.read(table, None, sheet, skip)
    rows, controls, notes = parsed(campaign, read)
    source = Path(table).name if isinstance(table, str | Path) else None
    with campaign.store.writing() as session:
        try:
            told = plates.tell(
                session, rows, controls, results.digest(rows, correct), correct, campaign.author, source, new
            )
        except InputError as error:  # about a row
            raise InputError(f"{read.name}, {error}") from error
    return told | {"warnings": (*read.notes, *notes, *told["warnings"])}
