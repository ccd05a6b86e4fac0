import json
import subprocess
import sys

import pytest

from commands import run

QUICK = ["--grid", "8", "--initial", "5", "--batch-size", "2", "--rounds", "2", "--runs", "2", "--device", "cpu"]


def test_help_starts_without_torch():
    code = (
        "import sys; sys.argv = ['aicau', '--help']\nfrom aicau.cli import main\n"
        "try: main()\nfinally: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "simulate" in done.stdout
    assert done.stdout.strip().endswith("False")


def test_json_is_one_object():
    code, out, err = run("simulate", "--problem", "type3", "--strategy", "random", "--strategy", "lc", *QUICK, "--json")
    assert code == 0, err
    data = json.loads(out)
    assert set(data["strategies"]) == {"random", "lc"}
    assert len(data["strategies"]["lc"]["mse"]) == 2
    assert len(data["strategies"]["lc"]["mse"][0]) == 3
    assert set(data["paired"]["lc"]) == {"vs", "ratio", "low", "high"}
    assert data["seconds"] > 0


def test_table_and_plot(tmp_path):
    path = tmp_path / "out.png"
    code, out, err = run("simulate", "--strategy", "random", "--strategy", "farthest", *QUICK, "--plot", str(path))
    assert code == 0, err
    assert "farthest" in out
    assert "ratio to random" in out
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--strategy", "nothing"], "unknown acquisition 'nothing'"),
        (["--strategy", "lc", "--problem", "type7"], "unknown problem 'type7'; did you mean 'type3'? known: class1"),
        (["--strategy", "lc", "--initial", "99999"], "room for"),
        (["--strategy", "lc", "--runs", "0"], "runs must be a whole number of at least 1"),
        (["--strategy", "lc", "--noise-scale", "nan"], "noise scale must be"),
        (["--strategy", "lc", "--plot", "no/such/folder/x.png"], "cannot write a plot"),
        (["--strategy", "lc", "--plot", "x.gif"], "cannot write a plot"),
        (["--strategy", "lc", "--device", "abacus"], "unknown device"),
        (["--strategy", "lc", "--rounds", "many"], "Invalid value"),
        ([], "Missing option"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(arguments, sentence):
    code, out, err = run("simulate", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith(("aicau: ", "Usage: "))  # no empty line of a progress that nobody sees
    assert "Traceback" not in err
