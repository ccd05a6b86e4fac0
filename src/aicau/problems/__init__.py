"""Problems by name; a new one is one file and one line here."""

from collections.abc import Callable
from typing import Any

from aicau.core.errors import InputError, unknown
from aicau.problems.base import Problem
from aicau.problems.classes import ClassToy, class1, class2, class3
from aicau.problems.plates import Plates, plates
from aicau.problems.table import TableProblem
from aicau.problems.toy import Toy, type1, type2, type3

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "type1": type1,
    "type2": type2,
    "type3": type3,
    "plates": plates,
    "class1": class1,
    "class2": class2,
    "class3": class3,
}


def make(name: str, **parameters: Any) -> Problem:
    """A problem by its name.

    Parameters
    ----------
    name : str
        `type1` to `type3` (the paper's), `plates`, `class1` to `class3`.
    **parameters
        Of that problem, e.g. `grid`, `noise_scale`.

    Returns
    -------
    Problem

    Raises
    ------
    InputError
        An unknown name, or a parameter that the problem does not have.

    Examples
    --------
    >>> from aicau import problems
    >>> problems.make("type2", grid=10).pool.n
    100
    """
    if name not in PROBLEMS:
        raise unknown("problem", name, list(PROBLEMS))
    try:
        return PROBLEMS[name](**parameters)
    except TypeError as error:
        raise InputError(f"problem {name!r} does not have such a parameter: {error}") from error
