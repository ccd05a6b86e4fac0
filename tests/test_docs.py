"""Documentation can fail: the README's commands and examples run, and what it links to exists."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import commands

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language):
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [code for word, code in fences if word == language]


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.strip().splitlines()[0])
def test_python_examples_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})


COMMANDS = [line for block in blocks("") for line in block.splitlines() if line.startswith(".venv")]


def run(line):
    """One command of the documentation, in the folder of the test."""
    program, *arguments = shlex.split(line, comments=True)
    if arguments[0] == "reproduce":  # minutes: its words are checked here, its work in its own tests
        arguments.append("--help")
    if program == ".venv/bin/aicau":
        code, _, error = commands.run(*arguments)
    else:
        assert (program, *arguments[:2]) == (".venv/bin/python", "-m", "bench")
        command = [sys.executable, *arguments, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
        code, error = done.returncode, done.stderr
    assert code == 0, error


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in COMMANDS if "screen.db" not in line])
def test_commands_run(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(line)


@pytest.mark.slow
def test_the_campaigns_commands_run_one_after_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"c{i},{i % 5},{i % 7},{'oil' if i % 2 else 'water'}" for i in range(40)]
    (tmp_path / "candidates.csv").write_text("\n".join(["compound,dose,ph,solvent", *rows]) + "\n")
    lines = [line for line in COMMANDS if "screen.db" in line]
    verbs = ["init", "ask", "tell", "status", "predict", "report", "export", "doctor"]
    assert [line.split()[1] for line in lines] == verbs
    for line in lines:
        run(line)
        if "plate-1.csv" in line:  # measure it
            plate = pd.read_csv(tmp_path / "plate-1.csv")
            results = pd.DataFrame({"compound": plate["compound"], "viability": plate.dose / 4, "plate": "P1"})
            pd.concat([results, results]).to_csv(tmp_path / "plate-1-results.csv", index=False)
    assert len(pd.read_csv(tmp_path / "predictions.csv")) == 40
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert (tmp_path / "backup" / "measurements.csv").exists()


@pytest.mark.slow
def test_the_commands_about_labels_run_one_after_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "campaign.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("aicau ") and "hits.db" in line]
    assert [line.split()[1] for line in lines] == ["init", "ask", "tell", "status", "ask", "predict", "report"]
    rows = [f"c{i},{i % 5},{i % 7}" for i in range(35)]
    (tmp_path / "candidates.csv").write_text("\n".join(["compound,dose,ph", *rows]) + "\n")
    for line in lines:
        run(f".venv/bin/{line}")
        if "plate-1.csv" in line:
            plate = pd.read_csv(tmp_path / "plate-1.csv")
            outcome = (plate.dose > 2).map({True: "hit", False: "miss"})
            results = pd.DataFrame({"compound": plate["compound"], "outcome": outcome, "plate": "P1"})
            pd.concat([results, results.assign(outcome="hit")]).to_csv(tmp_path / "plate-1-results.csv", index=False)
    said = pd.read_csv(tmp_path / "predictions.csv")
    assert said.columns[:4].tolist() == ["compound", "predicted", "p_hit", "p_miss"]


@pytest.mark.slow
def test_the_commands_about_plates_run_one_after_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "plates.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("aicau ")]
    assert [line.split()[1] for line in lines] == ["init", "ask", "tell", "report"]
    rows = [f"c{i},{i % 5},{i % 7}" for i in range(60)]
    (tmp_path / "candidates.csv").write_text("\n".join(["compound,dose,ph", *rows]) + "\n")
    for line in lines:
        run(f".venv/bin/{line}")
        if "plate-1.csv" in line:
            plate = pd.read_csv(tmp_path / "plate-1.csv")
            assert (plate.compound == "DMSO").sum() == 8
            results = pd.DataFrame({"well": plate.well, "viability": plate.dose.fillna(2) / 4, "plate": "P1"})
            results.to_csv(tmp_path / "plate-1-results.csv", index=False)
    assert (tmp_path / "report.html").read_text().count("<circle") == 56


def test_every_verb_is_in_the_campaigns_page():
    page = (ROOT / "docs" / "campaign.md").read_text()
    for verb in (
        "init",
        "ask",
        "pending",
        "tell",
        "abandon",
        "status",
        "predict",
        "report",
        "export",
        "doctor",
        "compact",
        "exclude",
        "include",
        "add",
        "rename",
        "change",
        "untell",
        "import",
        "batches",
        "history",
        "measurements",
    ):
        assert f"`aicau {verb}" in page, verb


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
    from aicau.acquisition import ACQUISITIONS, FORMS
    from aicau.batching import BATCHINGS
    from aicau.bias import BIASES

    for word in [*ACQUISITIONS, *FORMS, *BATCHINGS, *BIASES, "difference"]:
        assert f"`{word}`" in README, f"{word} is not explained"
