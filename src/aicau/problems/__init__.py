"""Problems by name; a new one is one file and one entry here."""

from collections.abc import Callable
from typing import Any

from aicau.core.errors import unknown
from aicau.problems.base import Problem
from aicau.problems.classes import ClassToy, class1, class2, class3
from aicau.problems.plates import Plates, plates
from aicau.problems.table import TableProblem
from aicau.problems.toy import Toy, type1, type2, type3

PROBLEMS = {"type1": type1, "type2": type2, "type3": type3}
CLASS_PROBLEMS = {"class1": class1, "class2": class2, "class3": class3}

__all__ = [
    "CLASS_PROBLEMS",
    "PROBLEMS",
    "ClassToy",
    "Plates",
    "Problem",
    "TableProblem",
    "Toy",
    "class1",
    "class2",
    "class3",
    "make",
    "plates",
    "type1",
    "type2",
    "type3",
]


def make(name: str, **parameters: Any) -> Problem:
    """A problem by its name, e.g. `make("type2", noise_scale=5)`."""
    known: dict[str, Callable[..., Problem]] = {**PROBLEMS, **CLASS_PROBLEMS}
    if name not in known:
        raise unknown("problem", name, list(known))
    return known[name](**parameters)
