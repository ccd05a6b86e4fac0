"""Problems by name; a new one is one file and one entry here."""

from typing import Any

from aicau.errors import unknown
from aicau.problems.base import Problem
from aicau.problems.plates import Plates, plates
from aicau.problems.table import TableProblem
from aicau.problems.toy import Toy, type1, type2, type3

PROBLEMS = {"type1": type1, "type2": type2, "type3": type3}

__all__ = ["PROBLEMS", "Plates", "Problem", "TableProblem", "Toy", "make", "plates", "type1", "type2", "type3"]


def make(name: str, **parameters: Any) -> Problem:
    """A problem by its name, e.g. `make("type2", noise_scale=5)`."""
    if name not in PROBLEMS:
        raise unknown("problem", name, list(PROBLEMS))
    return PROBLEMS[name](**parameters)
