"""The scripts of `benchmarks/` find all that they import, and those that the documentation names are there."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
LOAD = """
import runpy, sys
from pathlib import Path
start = list(sys.path)
for script in sorted(Path(sys.argv[1]).glob("*.py")):
    if script.stem != "pyrelational_round":  # of another environment
        sys.path[:] = [str(script.parent), *start]  # as where it is called
        for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
            del sys.modules[name]
        runpy.run_path(str(script))
"""


@pytest.mark.slow
def test_every_script_loads(tmp_path):
    command = [sys.executable, "-c", LOAD, str(ROOT / "benchmarks")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_slips_are_found_and_counted(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    alarms = runpy.run_path(str(ROOT / "benchmarks" / "outliers.py"))["alarms"]
    y = np.random.default_rng(0).normal(10, 1, 500)
    assert alarms(y, None) == (0, 960)
    assert alarms(y, 1000.0) == (10, 10)


def test_scripts_that_the_documentation_names_are_there():
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md"]
    named = {name for page in pages for name in re.findall(r"benchmarks/\w+\.\w+", page.read_text(encoding="utf-8"))}
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]
