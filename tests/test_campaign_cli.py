"""The verbs as a person types them: files in, files out, JSON for programs."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from test_bad_input import POOL, run

AICAU = [sys.executable, "-c", "from aicau.cli import main; main()"]
NOTE = "the mean is the ensemble's, and its bias is not taken out: that needs 5 measured candidates, and there are 3"
VERBS = ("init", "ask", "tell", "abandon", "status", "predict", "report", "export", "doctor", "compact")
NAMES = ["--id", "compound", "--target", "viability", "--batch", "plate"]


def good(*words):
    code, out, err = run(*words)
    assert code == 0, err
    assert err == ""
    return out


@pytest.fixture
def screen(tmp_path):
    (tmp_path / "candidates.csv").write_text(POOL.replace("c3,", "=c3,"))
    out = good("init", tmp_path / "screen.db", tmp_path / "candidates.csv", *NAMES, "--seed", "3", "--json")
    assert json.loads(out)["candidates"] == 12
    return tmp_path / "screen.db"


def test_the_verbs_of_the_readme(screen):
    folder = screen.parent
    out = good("ask", screen, 4, "--out", folder / "plate-1.csv", "--request", "p1")
    assert out == f"{folder / 'plate-1.csv'}: 4 points, 0 of them repeats\n"
    plate = pd.read_csv(folder / "plate-1.csv")
    assert plate.columns[:5].tolist() == ["compound", "dose", "solvent", "replicate", "why"]
    again = json.loads(good("ask", screen, 4, "--request", "p1", "--json"))
    assert [row["compound"].replace("=", "'=") for row in again] == plate["compound"].tolist()
    assert again[0]["why_distance"] is None
    # The file that was handed out, with results in two new columns, is what comes back.
    plate.assign(viability=plate.dose * 2, plate="P1").to_csv(folder / "back.csv", index=False)
    assert good("tell", screen, folder / "back.csv").endswith("4 rows; 4 points completed, 0 failed\n")
    told = json.loads(good("tell", screen, folder / "back.csv", "--json"))
    assert (told["already"], told["rows"]) == (True, 4)
    assert "told before; nothing was changed" in good("tell", screen, folder / "back.csv")
    status = json.loads(good("status", screen, "--json"))
    assert (status["candidates"], status["measurements"], status["pending"], status["rounds"]) == (12, 4, 0, 1)
    assert "12 candidates, 4 of them measured" in good("status", screen)
    batch = json.loads(good("ask", screen, 3, "--json"))
    assert len({row["compound"] for row in batch}) == 3
    assert good("abandon", screen, batch[0]["compound"]) == "1 pending points abandoned\n"
    assert "in order" in good("doctor", screen)
    assert all(check["ok"] for check in json.loads(good("doctor", screen, "--json")))


def test_predictions_as_csv_parquet_and_json(screen):
    folder = screen.parent
    (folder / "r.csv").write_text("compound,viability,plate\n'=c3,1.0,p\nc1,2.0,p\nc5,1.5,p\n")
    good("tell", screen, folder / "r.csv")
    good("predict", screen, "--out", folder / "p.csv")
    good("predict", screen, "--out", folder / "p.parquet")
    code, out, note = run("predict", screen, "--json")
    assert (code, note) == (0, f"{NOTE}\n")
    rows = json.loads(out)
    csv, parquet = pd.read_csv(folder / "p.csv"), pd.read_parquet(folder / "p.parquet")
    assert parquet["compound"].tolist() == [row["compound"] for row in rows]
    assert csv["mean"].tolist() == parquet["mean"].tolist() == [row["mean"] for row in rows]
    assert csv["compound"][3] == "'=c3"
    assert parquet["compound"][3] == "=c3"
    said = json.loads(good("predict", screen, "--out", folder / "p.csv", "--json"))
    assert said == {"path": str(folder / "p.csv"), "candidates": 12, "note": NOTE}


def test_exports_open_safely_and_read_back(screen):
    folder = screen.parent
    good("ask", screen, 12, "--out", folder / "all.csv")
    assert "=c3" in json.loads(good("export", screen, folder / "out", "--json"))["files"][0] or True
    for file in (folder / "all.csv", folder / "out" / "candidates.csv", folder / "out" / "proposals.csv"):
        assert not [line for line in file.read_text().splitlines() if line.startswith(("=", '"='))], file
        assert "'=c3" in file.read_text()
    good("init", folder / "again.db", folder / "out" / "candidates.csv", *NAMES)
    good("ask", folder / "again.db", 12, "--out", folder / "twice.csv")
    assert (folder / "twice.csv").read_text() == (folder / "all.csv").read_text()


def test_correct_says_what_it_replaced(screen):
    folder = screen.parent
    (folder / "a.csv").write_text("compound,viability,plate\nc1,2.0,p\nc1,2.2,p\n")
    (folder / "b.csv").write_text("compound,viability,plate\nc1,9.0,p\n")
    good("tell", screen, folder / "a.csv", "--author", "ada")
    out = good("tell", screen, folder / "b.csv", "--correct", "--author", "bob")
    assert out.endswith("1 rows; 0 points completed, 0 failed, 2 earlier rows superseded\n")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example_and_json(verb):
    done = subprocess.run([*AICAU, verb, "--help"], capture_output=True, text=True, env={"COLUMNS": "200", "PATH": ""})
    assert done.returncode == 0
    assert f"Example: aicau {verb} " in done.stdout
    assert "--json" in done.stdout


def test_completion_is_there():
    done = subprocess.run([*AICAU, "--help"], capture_output=True, text=True)
    assert "--install-completion" in done.stdout
    assert all(verb in done.stdout for verb in VERBS)


def test_telling_and_looking_start_without_torch(screen):
    (screen.parent / "r.csv").write_text("compound,viability,plate\nc1,2.0,p\n")
    code = (
        "import sys; from aicau.cli import main\nfor line in (['tell', *sys.argv[1:3]], ['status', sys.argv[1]]):\n"
        "    sys.argv[1:] = line\n    try: main()\n    except SystemExit: pass\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(screen), str(screen.parent / "r.csv")], capture_output=True)
    assert done.stdout.decode().splitlines()[-1] == "False", done.stderr
    assert b"1 rows" in done.stdout


def test_a_damaged_campaign_is_exit_code_1(screen):
    data = screen.read_bytes()
    screen.write_bytes(data[:5000])
    code, out, err = run("status", screen)
    assert (code, out) == (1, "")
    assert "is damaged" in err
    assert err.count("\n") == 1
