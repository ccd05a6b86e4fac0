"""What a campaign is set up with: checked once when it is created, read from its settings ever after."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aicau.core.errors import InputError, unknown
from aicau.tables import candidates, results
from aicau.tables.sheet import Sheet

if TYPE_CHECKING:
    from aicau.strategy import Strategy

LARGE = 20_000  # candidates beyond which the default strategy would take minutes
LARGE_STRATEGY = "pemse:direct:spread"


def settings_for(
    sheet: Sheet,  # the pool
    target: str,
    batch: str | None,
    strategy: str | None,
    seed: int,
    id: str,
    ignore: Sequence[str],
    task: str,
    ensemble: str,
) -> dict[str, Any]:
    """The settings of a new campaign; what cannot be meant is said before anything is made."""
    sheet.array(id)
    for role, name in (("target", target), ("batch", batch), ("id", id)):
        if name is not None and (not name or name in candidates.RESERVED or "\x00" in name):
            raise InputError(f"the {role} column cannot be called {name!r}; choose another name")
        if role != "id" and name is not None and (sheet.has(name) or name == id):
            raise InputError(f"{sheet.name} has a column {name!r}, which is to hold the {role}; rename one of them")
    if target == batch:
        raise InputError(f"target and batch are both called {target!r}; each needs a column of its own")
    return {
        "id": id,
        "target": target,
        "batch": batch,
        "strategy": strategy or (LARGE_STRATEGY if sheet.rows > LARGE else "default"),
        "seed": seed,
        "task": task,
        "ensemble": ensemble,
        "columns": candidates.describe(sheet, id, ignore),
        "candidates": sheet.rows,
    }


def check_model(strategy: str | None, seed: int, task: str, ensemble: str) -> str:
    """Words that mean something and go together, and a seed that is one; returns the task."""
    from aicau.campaign.choice import try_out
    from aicau.ensembles import ENSEMBLES

    task = results.check_task(task)
    if ensemble not in ENSEMBLES:
        raise unknown("ensemble", ensemble, list(ENSEMBLES))
    if ensemble != "paper" and task != "regression":
        raise InputError(f"ensemble {ensemble!r} is for values; leave it out for {task}")
    try_out(parse_strategy("default" if strategy is None else strategy, task), task)
    if isinstance(seed, bool) or not isinstance(seed, int) or abs(seed) >= 2**62:
        raise InputError(f"seed must be a whole number; got {seed!r}")
    return task


def parse_strategy(text: str, task: str) -> "Strategy":
    """A strategy that a laboratory can use: one that does not need the truth."""
    from aicau.campaign.choice import TASKS
    from aicau.strategy import Strategy

    strategy = Strategy.parse(text, task=TASKS[task])
    if "perfect" in str(text).lower().split(":"):
        raise InputError(f"strategy {text!r} knows the truth, which only a simulation has; try 'direct' for the bias")
    return strategy


def task_of(settings: dict[str, Any]) -> str:
    """`regression`, as all campaigns were once, `classification` or `count`."""
    return str(settings.get("task", "regression"))


def ensemble_of(settings: dict[str, Any]) -> str:
    """The model of values; all campaigns had the paper's networks once."""
    return str(settings.get("ensemble", "paper"))


def strategy_of(settings: dict[str, Any]) -> "Strategy":
    return parse_strategy(settings["strategy"], task_of(settings))
