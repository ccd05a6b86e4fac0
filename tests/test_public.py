"""The public face: every name has a docstring with shapes and an example that runs; tables come from the registries."""

import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import aicau

ROOT = Path(__file__).parents[1]
NAMES = [name for name in aicau.__all__ if not inspect.ismodule(getattr(aicau, name))]
ITEMS = [getattr(aicau, name) for name in NAMES]
BASES = {base for item in ITEMS for base in (item.__mro__ if inspect.isclass(item) else [item])}
MODULES = sorted({base.__module__ for base in BASES if base.__module__.startswith("aicau")})


def parameters(item):
    """What a person passes: arguments of a function, fields of a class."""
    given = inspect.signature(item).parameters.values()
    return [one.name for one in given if one.name not in ("self", "args", "kwargs", "memo")]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_explained(name):
    item = getattr(aicau, name)
    text = inspect.getdoc(item) or ""
    assert "Examples\n--------" in text, name
    if name in ("AicauError", "Problem", "Campaign"):  # an error, a class to subclass, one made by its class methods
        return
    for parameter in parameters(item):
        assert parameter in text.split("Examples\n--------")[0], f"{name} does not explain {parameter}"
    if parameters(item):
        assert "Parameters\n----------" in text, name
    if inspect.isfunction(item):
        assert "Returns\n-------" in text, name


@pytest.mark.parametrize("verb", [name for name, _ in inspect.getmembers(aicau.Campaign, callable) if name[0] != "_"])
def test_every_verb_of_a_campaign_is_explained(verb):
    assert len((inspect.getdoc(getattr(aicau.Campaign, verb)) or "").split()) > 3


@pytest.mark.parametrize("module", MODULES)
def test_examples_run(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(importlib.import_module(module))
    assert found.failed == 0


def test_tables_of_words_are_made_from_the_registries():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        tables = importlib.import_module("tables")
    finally:
        sys.path.pop(0)
    for page in tables.PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert tables.filled(text) == text, f"{page} is out of date: python docs/tables.py"


def test_the_version_is_said():
    for command in (["-m", "aicau", "--version"], ["-c", "from aicau.cli import main; main()", "--version"]):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60)
        assert done.stdout == f"aicau {aicau.__version__}\n"


def test_no_module_is_too_long_and_the_root_is_small():
    source = ROOT / "src" / "aicau"
    assert max(len(path.read_text().splitlines()) for path in source.rglob("*.py")) <= 300
    assert len([path for path in source.glob("*.py") if not path.name.startswith("__")]) <= 6


def test_tests_stand_where_their_source_stands():
    source, others = ROOT / "src" / "aicau", {"bench", "contracts", "data"}
    for folder in (path for path in (ROOT / "tests").rglob("*/") if path.name != "__pycache__"):
        place = folder.relative_to(ROOT / "tests")
        assert place.parts[0] in others or (source / place).is_dir(), f"tests/{place} mirrors no folder of the source"
