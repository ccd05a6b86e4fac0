"""Documentation can fail: the README's commands and examples run, and what it links to exists."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.strip().splitlines()[0])
def test_python_examples_run(code):
    exec(compile(code, "README.md", "exec"), {})


@pytest.mark.parametrize(
    "line", [line for block in blocks("") for line in block.splitlines() if line.startswith(".venv")]
)
def test_commands_run(line, tmp_path):
    program, *arguments = shlex.split(line, comments=True)
    assert program == ".venv/bin/aicau"
    if arguments[0] == "reproduce":  # minutes: its words are checked here, its work in test_experiments
        arguments.append("--help")
    code = "from aicau.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


def test_every_make_target_of_the_readme_exists():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))])
def test_links_point_at_files(page):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_every_strategy_word_is_in_the_readme():
    from aicau.acquisition import ACQUISITIONS
    from aicau.batching import BATCHINGS
    from aicau.bias import BIASES

    for word in [*ACQUISITIONS, *BATCHINGS, *BIASES]:
        assert f"`{word}`" in README, f"{word} is not explained"
