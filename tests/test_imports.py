"""One way: a module imports only from what stands before it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "aicau"
ORDER = [
    ["core", "__init__"],
    ["gp"],
    ["ensembles"],
    ["bias"],
    ["acquisition"],
    ["batching"],
    ["strategy", "prediction"],
    ["round", "problems", "store"],
    ["arrays", "proposal"],
    ["simulation", "tables"],
    ["paper", "campaign"],
    ["report"],
    ["web"],
    ["cli"],
    ["__main__"],
]
assert len(ORDER) <= 16
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
# Steps back, taken when they are called: a campaign draws itself, a strategy has `query` as a method.
LATE = {("campaign", "report"), ("strategy", "arrays")}


def unit(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path):
    """Units of this package that a file imports, outside of `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "aicau":
            parts = node.module.split(".")
            names = [alias.name for alias in node.names if not alias.name.startswith("__")]
            yield from [parts[1]] if len(parts) > 1 else names
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("aicau."):
                    yield alias.name.split(".")[1]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    own = unit(path)
    assert own in LEVEL, f"{own} has no place in the order yet"
    for other in imported(path):
        if other == own or (own, other) in LATE:
            continue
        assert LEVEL[other] < LEVEL[own], f"{own} must not import {other}"


def test_the_rule_would_see_a_violation(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("from aicau.cli import main\nfrom aicau import simulate\nimport aicau.bias\n")
    assert list(imported(bad)) == ["cli", "simulate", "bias"]


def test_public_names_exist_and_match_their_homes():
    import aicau

    for name in aicau.__all__:
        assert getattr(aicau, name) is not None
    from aicau.simulation.simulate import simulate

    assert aicau.simulate is simulate
    modules = {path.stem for path in SOURCE.glob("*.py")} | {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    hidden = modules & set(aicau.__all__) - {"bias", "bregman", "problems", "streams"}
    assert not hidden, f"a module of the same name would hide {hidden}"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = aicau.nothing


@pytest.mark.slow
def test_the_numerical_core_needs_torch_numpy_and_scipy_only():
    code = """
import sys
for name in ("numba", "pandas", "matplotlib", "rich", "typer", "sklearn", "botorch"):
    sys.modules[name] = None
import torch
from aicau import problems, strategy
from aicau.core import streams
from aicau.ensembles import MLP
from aicau.ensembles.kernels import MLPSettings
x = torch.rand(2, 9, 2)
MLP(settings=MLPSettings(max_epochs=2)).fit(x, x[..., 0], streams.runs(0, 2)).predict(x[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted((SOURCE / "report").glob("*.py")), ids=lambda p: p.name)
def test_a_report_talks_to_public_methods_only(path):
    """No private name of another object, and no way around the campaign to its store."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") not in ("self", "cls"):
            assert not node.attr.startswith("_") or node.attr.endswith("__"), f"{path.name} uses {node.attr}"
            assert node.attr not in ("store", "session", "reading", "writing"), f"{path.name} uses {node.attr}"
