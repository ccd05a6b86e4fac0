"""The settings of a campaign: checked when it is created, and read ever after."""

import getpass
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aicau.core.errors import InputError, shown, unknown
from aicau.store import Moment
from aicau.store.identity import folded
from aicau.tables import candidates, results
from aicau.tables.sheet import Sheet

if TYPE_CHECKING:
    from aicau.strategy import Strategy

LONGEST = 200  # characters of a name
MOST_WELLS = 1000  # of a point: each is a row
COMBINED, ALONE = "combined", "paper"  # what predicts: all models together, or the networks alone
# Words of strategies that were removed, and those that replace them in campaigns made before.
REMOVED = {"joint": "gain", "rehearsed": "gain", "conditional": "spread", "power": "spread", "slope": "difference"}


def columns_for(
    sheet: candidates.Table,  # the pool
    id: str,
    targets: Sequence[str],
    batch: str | None,
    ignore: Sequence[str],
    weight: str | None,
    cost: str | None,
) -> dict[str, Any]:
    """The settings of a new campaign about the columns of its tables."""
    if isinstance(ignore, str) or not isinstance(ignore, Collection):
        raise InputError(f"ignore is a list of names of columns; got {shown(ignore)}")
    roles = [("id", id), *(("target", one) for one in targets), *([] if batch is None else [("batch", batch)])]
    for role, name in roles:
        text = check_name(f"the {role} column", name).strip()
        if text.casefold() in candidates.RESERVED:
            raise InputError(f"the {role} column cannot be called {text!r}; choose another name")
        if role != "id" and (sheet.has(text) or text.casefold() == id.strip().casefold()):
            raise InputError(f"{sheet.name} has a column {text!r}, which is to hold the {role}; rename one of them")
    kind = next(sheet.parts()).array(id, "; name the one that tells candidates apart: --id COLUMN (Python: id=)").type
    whole = pa.types.is_integer(kind) and kind != pa.uint64()  # which `ids_of` cannot always give back
    counts = [check_counts(part, weight, cost) for part in sheet.parts()] if (weight, cost) != (None, None) else []
    if weight is not None:
        check_weights(np.concatenate(counts), weight)
    batch = None if batch is None else batch.strip()
    if batch is not None and batch.casefold() in [one.strip().casefold() for one in targets]:
        raise InputError(f"target and batch are both called {batch!r}; each needs a column of its own")
    columns = candidates.describe(sheet, id, [*ignore, *filter(None, [weight, cost])])
    found = {"id": id, "batch": batch, "columns": columns, "candidates": sheet.rows}
    return found | {"id_kind": "integer" if whole else "text"} | ({} if cost is None else {"cost": cost})


def check_targets(targets: Sequence[str], shares: Mapping[str, float] | None, goal: str) -> dict[str, Any]:
    """The settings of a new campaign about its targets; several have weights."""
    names = [name.strip() for name in targets]
    if not names:
        raise InputError("a campaign needs a target: what the column of results will be called")
    if double := [name for at, name in enumerate(names) if folded(name) in map(folded, names[:at])]:
        raise InputError(f"the target {double[0]!r} is named twice; name each once")
    if len(names) > 1 and "target" in map(folded, names):
        raise InputError("one of several targets cannot be called 'target'; choose another name")
    if not isinstance(shares or {}, Mapping):
        raise InputError(f"weights of targets are given by their names, such as {{'yield': 2}}; got {shown(shares)}")
    given = {str(name).strip(): share for name, share in (shares or {}).items()}
    for name, share in given.items():
        if name not in names or len(names) == 1:
            raise InputError(f"a weight is for one of several targets; {name!r} is none of them")
        if not isinstance(share, int | float | np.number) or not np.isfinite(share) or share <= 0:
            raise InputError(f"the weight of a target is a number above 0; {name!r} has {shown(share)}")
    if len(names) == 1:
        return {"target": names[0]}
    if ":" in goal:
        raise InputError(
            f"goal {goal!r} has a threshold of one target, and there are {len(names)}; use map, max or min"
        )
    return {"target": names[0], "targets": [[name, float(given.get(name, 1.0))] for name in names]}


def check_name(what: str, name: Any) -> str:
    """The same name, if people can read it and a database can keep it."""
    if not isinstance(name, str) or not folded(name):
        raise InputError(f"{what} needs a name; got {shown(name)}")
    if len(name) > LONGEST:
        raise InputError(f"{what} has a name of {len(name):,} characters; use at most {LONGEST}")
    if "\x00" in name or name.encode(errors="replace").decode() != name:
        raise InputError(f"{what} cannot be called {shown(name)}: this is not text in UTF-8; choose another name")
    return name


def check_size(n: Any, what: str = "a batch holds at least one point, a whole number", most: float = np.inf) -> int:
    """A number of points, or another whole number from 1."""
    if isinstance(n, bool) or not isinstance(n, int | float | np.integer | np.floating) or not 1 <= n <= most or n % 1:
        raise InputError(f"{what}; got {shown(n)}")
    return int(n)


def room(moment: Moment, total: int) -> int:
    """How many candidates can be proposed."""
    return total - len(set(moment.pending) | set(moment.barred))


def check_room(moment: Moment, n: int, total: int) -> None:
    """Refuse more points than can be proposed."""
    if n > (left := room(moment, total)):
        raise InputError(
            f"{shown(n)} points were asked for and only {left} of {total} can be proposed ({len(moment.pending)} are"
            f" pending, {len(moment.barred)} abandoned or excluded); ask for fewer, tell results, or include some again"
        )


def check_author(name: str | None) -> str:
    """The name for the history: this one, $AICAU_AUTHOR, or the user who is logged in."""
    name = name or os.environ.get("AICAU_AUTHOR", "").strip()
    if not name:
        try:
            name = getpass.getuser()
        except (OSError, KeyError):
            name = "unknown"
    return check_name("the author", name)


def check_weights(values: NDArray[np.float64], column: str) -> NDArray[np.float64]:
    """The same weights of candidates, if they are 0 or more and not all 0."""
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        raise InputError(
            f"the weights in column {column!r} must be 0 or more, and candidate number {int(wrong.argmax()) + 1} has"
            f" {values[wrong][0]:g}; change it, or name another column"
        )
    if not values.any():
        raise InputError(f"column {column!r} is 0 everywhere, so no candidate has a weight; name another column")
    return values


def check_counts(part: Sheet, weight: str | None, cost: str | None) -> NDArray[np.float64]:
    """The weights of some candidates; their weights and costs are checked."""
    counts = np.ones(part.rows) if weight is None else part.numbers(weight)
    if weight is not None:
        part.refuse(weight, counts < 0, "a weight is 0 or more")
    if cost is not None:
        part.refuse(cost, part.numbers(cost) <= 0, "a cost is a number above 0")
    return counts


def check_goal(goal: Any, task: str) -> str:
    """The goal in its shortest form, if it fits the task."""
    from aicau.acquisition.goals import Goal

    found = Goal.parse(goal)
    if task == "classification" and found.name != "map":
        raise InputError(f"goal {str(found)!r} is about values, and the results here are labels; use the goal map")
    return str(found)


def check_model(strategy: str | None, seed: int, task: str, ensemble: str) -> None:
    """Refuse unknown words, and a strategy that does not work for the task."""
    from aicau.campaign.choice import try_out
    from aicau.core import checks

    check_name("the task", task)
    check_name("the ensemble", ensemble)
    if task not in results.READERS:
        raise unknown("task", task, list(results.READERS))
    if ensemble not in (COMBINED, ALONE):
        raise unknown("ensemble", ensemble, [COMBINED, ALONE])
    try_out("default" if strategy is None else str(strategy), task)
    checks.seed(seed)


def parse_strategy(text: str, task: str) -> "Strategy":
    """A strategy that a laboratory can use: one that does not need the truth."""
    from aicau.prediction import outcome
    from aicau.strategy import Strategy

    words = [REMOVED.get(word, word) for word in str(text).strip().lower().split(":")]
    strategy = Strategy.parse(":".join(word for word in words if word), task=outcome(task).task(("0", "1")))
    if "perfect" in words:
        raise InputError(f"strategy {text!r} knows the truth, which only a simulation has; try 'direct' for the bias")
    return strategy


def task_of(settings: dict[str, Any]) -> str:
    """`regression` (all campaigns of the first versions), `classification` or `count`."""
    return str(settings.get("task", "regression"))


def ensemble_of(settings: dict[str, Any]) -> str:
    """What predicts: the networks alone in campaigns of the first versions, `combined` for ensembles that are gone."""
    return ALONE if settings.get("ensemble", ALONE) == ALONE else COMBINED


def targets_of(settings: dict[str, Any]) -> dict[str, float]:
    """The name of each target, and its weight when a batch is chosen."""
    return dict(settings["targets"]) if "targets" in settings else {str(settings["target"]): 1.0}


def is_log(settings: dict[str, Any]) -> bool:
    """Whether the model is fitted to the logarithm of the target."""
    return settings.get("scale") == "log"


def called(settings: dict[str, Any]) -> str:
    """The name of what errors are in: the target, or its logarithm."""
    return f"ln {settings['target']}" if is_log(settings) else str(settings["target"])


def check_scale(scale: str, task: str) -> str:
    if scale not in ("linear", "log"):
        raise unknown("scale", str(scale), ["linear", "log"])
    if scale == "log" and task != "regression":
        raise InputError(f"only values have a scale; {task} has none, so leave --scale out")
    return scale


def strategy_of(settings: dict[str, Any]) -> "Strategy":
    return parse_strategy(settings["strategy"], task_of(settings))
