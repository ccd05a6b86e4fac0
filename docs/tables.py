"""The tables of words in README.md and docs/, made from the registries: `python docs/tables.py` writes them anew."""

import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aicau.acquisition import ACQUISITIONS, FORMS
from aicau.batching import BATCHINGS
from aicau.bias import BIASES
from aicau.ensembles import ENSEMBLES
from aicau.prediction import OUTCOMES
from aicau.problems import PROBLEMS

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/notation.md")


def first_line(entry: Any) -> str:
    """What an entry says of itself."""
    return (inspect.getdoc(entry) or "").splitlines()[0].rstrip(".")


def rows(registry: Mapping[str, Any], said: Callable[[Any], str] = first_line) -> str:
    """One row per entry."""
    return "\n".join(f"| `{name}` | {said(entry)} |" for name, entry in registry.items())


def table(registry: Mapping[str, Any], head: str, said: Callable[[Any], str] = first_line) -> str:
    return f"| {head} | |\n|---|---|\n{rows(registry, said)}"


TABLES = {
    "acquisitions": lambda: table(ACQUISITIONS, "acquisition: what is maximised", lambda entry: entry().meaning),
    "biases": lambda: table(BIASES, "bias: where the ensemble is wrong"),
    "batchings": lambda: table(BATCHINGS, "batching: how a batch is made of it"),
    "forms": lambda: ", ".join(f"`{form}`" for form in FORMS),
    "ensembles": lambda: table(ENSEMBLES, "ensemble F_k"),
    "problems": lambda: table(PROBLEMS, "problem"),
    "outcomes": lambda: table(OUTCOMES, "task", lambda entry: entry.meaning),
}


def filled(text: str) -> str:
    """A page with its tables as the registries have them now."""
    for name, make in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        if begin in text:
            head, rest = text.split(begin, 1)
            text = head + begin + make() + end + rest.split(end, 1)[1]
    return text


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(page, file=sys.stderr)
