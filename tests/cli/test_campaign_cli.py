"""The verbs as a person types them: files in, files out, JSON for programs."""

import errno
import json
import os
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aicau import Campaign, tables
from arrow_types import every_type
from commands import POOL, run

AICAU = [sys.executable, "-c", "from aicau.cli import main; main()"]
VERBS = ("init", "ask", "pending", "tell", "abandon", "status", "predict", "report", "export", "doctor", "compact")
VERBS += ("exclude", "include", "add", "rename", "change", "untell", "import", "batches", "history", "measurements")
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
    assert out.splitlines() == [
        f"{folder / 'plate-1.csv'}: 4 points, 0 of them repeats",
        f"next: fill in viability, plate, status, then aicau tell {screen} {folder / 'plate-1.csv'}",
    ]
    plate = pd.read_csv(folder / "plate-1.csv")
    names = ["compound", "dose", "solvent", "replicate", "viability", "plate", "status", "reason"]
    assert plate.columns[:8].tolist() == names
    again = json.loads(good("ask", screen, 4, "--request", "p1", "--json"))
    assert [row["compound"].replace("=", "'=") for row in again] == plate["compound"].tolist()
    assert again[0]["reason_distance"] is None
    # The file that was handed out, with results in two new columns, is what comes back.
    plate.assign(viability=plate.dose * 2, plate="P1").to_csv(folder / "back.csv", index=False)
    assert good("tell", screen, folder / "back.csv").endswith(
        "4 new measurements; 4 points completed; 0 still pending\n"
        f"next: aicau ask {screen} N, or aicau predict {screen}\n"
    )
    told = json.loads(good("tell", screen, folder / "back.csv", "--json"))
    assert (told["already"], told["rows"]) == (True, 4)
    assert "nothing new: all 4 rows are known already" in good("tell", screen, folder / "back.csv")
    status = json.loads(good("status", screen, "--json"))
    assert (status["candidates"], status["measurements"], status["pending"], status["rounds"]) == (12, 4, 0, 1)
    assert "12 candidates, 4 of them measured" in good("status", screen)
    batch = json.loads(good("ask", screen, 3, "--json"))
    assert len({row["compound"] for row in batch}) == 3
    assert good("abandon", screen, batch[0]["compound"]) == (
        "1 pending point abandoned; 'aicau include' takes them back\n"
    )
    assert "in order" in good("doctor", screen)
    assert all(check["ok"] for check in json.loads(good("doctor", screen, "--json")))


def test_predictions_as_csv_parquet_and_json(screen):
    folder = screen.parent
    (folder / "r.csv").write_text("compound,viability,plate\n'=c3,1.0,p\nc1,2.0,p\nc5,1.5,p\n")
    good("tell", screen, folder / "r.csv")
    good("predict", screen, "--out", folder / "p.csv")
    good("predict", screen, "--out", folder / "p.parquet")
    rows = json.loads(good("predict", screen, "--json"))
    csv, parquet = pd.read_csv(folder / "p.csv"), pd.read_parquet(folder / "p.parquet")
    assert parquet["compound"].tolist() == [row["compound"] for row in rows]
    assert csv["mean"].tolist() == parquet["mean"].tolist() == [row["mean"] for row in rows]
    assert csv["compound"][3] == "'=c3"
    assert parquet["compound"][3] == "=c3"
    said = json.loads(good("predict", screen, "--out", folder / "p.csv", "--json", "--force"))
    assert said == {"path": str(folder / "p.csv"), "candidates": 12}


def test_exports_open_safely_and_read_back(screen):
    folder = screen.parent
    good("ask", screen, 12, "--out", folder / "all.csv")
    files = json.loads(good("export", screen, folder / "out", "--json"))["files"]
    assert files[0] == str(folder / "out" / "candidates.csv")
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
    assert "b.csv: 1 new measurement; 2 replaced; 0 still pending\nnote: 1 corrected candidate has fewer values" in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example_and_json(verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = good(verb, "--help")
    assert f"Example: aicau {verb} " in said
    assert "--json" in said


def test_completion_is_there():
    done = subprocess.run([*AICAU, "--help"], capture_output=True, text=True)
    assert "--install-completion" in done.stdout
    assert all(verb in done.stdout for verb in VERBS)


def test_a_damaged_campaign_is_exit_code_1(screen):
    data = screen.read_bytes()
    screen.write_bytes(data[:5000])
    code, out, err = run("status", screen)
    assert (code, out) == (1, "")
    assert "is damaged" in err
    assert err.count("\n") == 1


def shell(*words, **options):
    """A process of its own, as a shell starts it."""
    return subprocess.run([*AICAU, *words], stderr=subprocess.PIPE, timeout=120, **options)


def sentence(done, code):
    """The one line that a person reads."""
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith(b"aicau: ")
    assert done.stderr.count(b"\n") == 1, done.stderr
    assert b"Traceback" not in done.stderr
    return done.stderr.decode()


def test_every_arrow_type_that_is_ignored_comes_back(tmp_path):
    kept = {name: array for name, array in every_type().items() if not name.endswith("union")}
    frame = pd.DataFrame({"id": ["a", "b"], "dose": [1.0, 2.0]})
    for name, array in kept.items():
        frame[name] = pd.array(array, dtype=pd.ArrowDtype(array.type))
    path = tmp_path / "c.db"
    with Campaign.create(path, frame, "y", id="id", ignore=list(kept)) as campaign:
        assert campaign.pending().empty
        assert len(campaign.ask(2)) == 2
        campaign.tell(pd.DataFrame({"id": ["a", "b"], "y": [1.0, 2.0]}))
    for suffix in (".csv", ".parquet"):
        good("ask", path, 2, "--request", "r", "--out", tmp_path / f"ask{suffix}")
        found = tables.read(tmp_path / f"ask{suffix}")
        assert sorted(found.texts("id").to_pylist()) == ["a", "b"]
        assert found.table.column_names[2 : 2 + len(kept)] == list(kept)
    assert set(found.texts("struct", empty=True).to_pylist()) == {"{'a': 1, 'b': None}", ""}
    assert set(found.table["int64 with a gap"].to_pylist()) == {2**53 + 1, None}
    rows = json.loads(good("pending", path, "--json"))
    assert {row["list<item: int64>"] for row in rows} == {"[1]", "[2]"}
    assert json.loads(good("ask", path, 2, "--request", "r", "--json")) == rows
    printed = shell("pending", str(path), stdout=subprocess.PIPE)
    assert printed.stdout == (tmp_path / "ask.csv").read_bytes()
    good("export", path, tmp_path / "out")
    assert tables.read(tmp_path / "out" / "candidates.csv").rows == 2
    with Campaign.open(path) as campaign:
        assert len(campaign.predict()) == 2


@pytest.mark.parametrize("name", every_type())
def test_every_arrow_type_in_a_parquet_pool(tmp_path, name):
    if not attack(tmp_path, name):
        pytest.skip("Parquet has no such type")


def attack(folder, name):
    """A pool with a column of one Arrow type, ignored and as a feature; False where Parquet has none such."""
    table = pa.table({"id": ["a", "b"], "dose": [1.0, 2.0], "x": every_type()[name]})
    try:
        pq.write_table(table, folder / "pool.parquet")
    except pa.ArrowException:
        return False
    good("init", folder / "c.db", folder / "pool.parquet", "--target", "y", "--ignore", "x")
    good("ask", folder / "c.db", 2, "--out", folder / "ask.csv")
    assert tables.read(folder / "ask.csv").rows == 2
    code, _, err = run("init", folder / "d.db", folder / "pool.parquet", "--target", "y")
    assert (code, err) == (0, "") or (code == 2 and err.count("\n") == 1)
    return True


def test_nothing_of_a_laboratory_is_replaced(screen):
    folder = screen.parent
    mine = "compound,viability,plate\nc1,0.5,p\n"
    for name in ("plate.csv", "predictions.csv", "report.html", "measurements.csv"):
        (folder / name).write_text(mine)
    good("tell", screen, folder / "plate.csv")
    for words in (
        ["ask", screen, 2, "--out", folder / "plate.csv"],
        ["pending", screen, "--out", folder / "plate.csv"],
        ["predict", screen, "--out", folder / "predictions.csv"],
        ["report", screen, "--out", folder / "report.html"],
        ["export", screen, folder],
    ):
        code, out, err = run(*words)
        assert (code, out) == (2, ""), err
        assert "replace it with --force" in err
    for name in ("plate.csv", "predictions.csv", "report.html", "measurements.csv"):
        assert (folder / name).read_text() == mine
    assert json.loads(good("status", screen, "--json"))["pending"] == 0
    good("report", screen, "--out", folder / "report.html", "--force")
    good("report", screen, "--out", folder / "report.html")  # an earlier report
    good("ask", screen, 2, "--out", folder / "plate.csv", "--force")
    good("pending", screen, "--out", folder / "again.csv")
    assert (folder / "again.csv").read_text() == (folder / "plate.csv").read_text()


def test_an_export_replaces_an_earlier_one_but_no_file_that_was_changed(screen):
    out = screen.parent / "backup"
    good("export", screen, out)
    good("ask", screen, 2, "--json")
    good("export", screen, out)
    assert len((out / "proposals.csv").read_text().splitlines()) == 3
    with (out / "proposals.csv").open("a") as file:
        file.write("a note\n")
    code, _, err = run("export", screen, out)
    assert code == 2
    assert "proposals.csv is no file of an earlier export, or was changed since" in err
    good("export", screen, out, "--force")
    good("export", screen, out)
    (out / "manifest.json").write_text('{"files": []}')
    assert run("export", screen, out)[0] == 2


def test_points_stay_pending_when_their_file_cannot_be_written(screen, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tables, "write", full)
        code, out, err = run("ask", screen, 3, "--out", screen.parent / "plate.csv")
    assert (code, out) == (1, "")
    assert "(No space left on device), but the 3 points were asked for and are pending; print them again" in err
    assert not (screen.parent / "plate.csv").exists()
    good("pending", screen, "--out", screen.parent / "plate.csv")
    assert tables.read(screen.parent / "plate.csv").rows == 3


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
def test_a_full_output_device_is_one_sentence(screen):
    with open("/dev/full", "wb") as full:
        for more in ([], ["--json"]):
            words = sentence(shell("ask", str(screen), "1", *more, stdout=full), 1)
            assert "No space left on device" in words
            assert "are pending" in words
        assert "No space left on device" in sentence(shell("status", str(screen), stdout=full), 1)
    for verb in (["pending", screen], ["doctor", screen, "--json"]):
        with open("/dev/full", "w") as full:
            code, _, err = run(*verb, out=full)
            full.write("more")  # as Python does at the very end: it goes nowhere
        assert (code, err) == (1, "aicau: the system refused: No space left on device\n")


def test_a_reader_that_stops_early_is_no_error(screen):
    read, write = os.pipe()
    os.close(read)
    for verb in ("status", "pending"):
        done = shell(verb, str(screen), stdout=write)
        assert (done.returncode, done.stderr) == (1, b"")
    os.close(write)


@pytest.mark.parametrize("words", [["status", "{}"], ["measurements", "{}"], ["status", "no.db"]])
def test_closed_outputs_are_no_traceback(screen, words):
    """A service without a terminal starts programs so; on a closed standard output there was a traceback."""
    command = [*AICAU, *(word.format(screen) for word in words)]
    for close in (">&-", "2>&-"):
        done = subprocess.run(["sh", "-c", f'"$@" {close}', "sh", *command], capture_output=True, text=True)
        assert done.returncode == (2 if "no.db" in words else 0), done.stderr
        assert "Traceback" not in done.stderr
        assert "no campaign" not in done.stdout


def test_the_next_command_can_be_pasted(tmp_path):
    (tmp_path / "pool.csv").write_text("id,x,kind\na,1,k\nb,2,k\n")
    out = good("init", tmp_path / "my screen.db", tmp_path / "pool.csv", "--target", "y")
    assert out.endswith(f"next: aicau ask '{tmp_path}/my screen.db' 2 --out plate-1.csv\n")
    assert "category 'kind' with 1 level (k)" in out
    out = good("ask", tmp_path / "my screen.db", 1, "--out", tmp_path / "plate 1.csv")
    assert out.endswith(f"then aicau tell '{tmp_path}/my screen.db' '{tmp_path}/plate 1.csv'\n")
    assert "target 'y', no batch column" in good("status", tmp_path / "my screen.db")


def test_a_pipe_is_told(screen):
    content = b"compound,viability,plate\nc1,1,p\nc2,2,p\n"
    done = shell("tell", str(screen), "/dev/stdin", input=content, stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"2 new measurements" in done.stdout


def test_ctrl_c_is_one_word(screen, monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Campaign, "status", interrupted)
    code, out, err = run("status", screen)
    assert (code != 0, out) == (True, "")
    assert len(err.split()) <= 2


def test_arguments_that_are_not_text_or_blank_or_too_long(screen):
    pool = str(screen.parent / "candidates.csv")
    new = str(screen.parent / "new.db")
    for words in (
        ["--target", b"\xff"],
        ["--target", "y", "--batch", b"p\xff"],
        ["--target", "y", "--author", b"\xe9"],
    ):
        assert "is not text in UTF-8" in sentence(shell("init", new, pool, *words), 2)
    assert "is not text" in sentence(shell("status", b"\xff.db"), 2)
    for words in (["--target", " "], ["--target", "y", "--batch", "\u00a0"], ["--target= "]):
        code, _, err = run("init", new, pool, *words)
        assert (code, "is blank" in err) == (2, True)
    for words in (
        ["init", new, "n" * 5000, "--target", "y"],
        ["ask", screen, 1, "--out", "n" * 300 + ".csv"],
        ["tell", screen, "n" * 300],
        ["export", screen, "n" * 300],
        ["report", screen, "--out", "n" * 300 + ".html"],
        ["status", "n" * 5000],
    ):
        code, _, err = run(*words)
        assert (code, err.count("\n")) == (2, 1), err
        assert "too long" in err
    assert not os.path.exists(new)


def test_verbs_of_python_and_of_the_command_line_are_the_same_words():
    import typer

    from aicau.cli import app

    verbs = set(typer.main.get_command(app).commands) - {"simulate", "reproduce"}
    python = {name.rstrip("_") for name in dir(Campaign)}
    assert verbs - {"init", "serve"} <= python
    assert "create" in python  # which is called init on the command line


def test_an_option_that_is_given_twice_is_refused(tmp_path):
    (tmp_path / "pool.csv").write_text(POOL)
    names = ["--id", "compound", "--target", "viability"]
    for more, sentence in (
        (["--target", "dose"], "has a column 'dose', which is to hold the target; rename one of them"),
        (["--target", "Viability"], "the target 'Viability' is named twice; name each once"),
        (["--target", "b", "--target-weight", "b"], "the weight 'b' cannot be read; write a target and a number"),
        (["--batch", "a", "--batch=b"], "--batch is given 2 times; give it once"),
    ):
        code, out, err = run("init", tmp_path / "c.db", tmp_path / "pool.csv", *names, *more)
        assert (code, out) == (2, "")
        assert sentence in err
    assert not (tmp_path / "c.db").exists()


def test_the_verbs_that_change_a_campaign(screen):
    folder = screen.parent
    pd.DataFrame({"compound": ["c1", "c2"], "viability": [1.0, 2.0], "plate": "p1"}).to_csv(folder / "a.csv")
    good("tell", screen, folder / "a.csv")
    assert good("rename", screen, "p1", "P1") == "2 measurements of 'p1' now of 'P1'\n"
    assert good("exclude", screen, "c4", "c5", "--reason", "gone") == (
        "2 candidates excluded; 'aicau include' takes them back\n"
    )
    assert good("include", screen, "c4") == "1 candidate may be proposed again\n"
    (folder / "more.csv").write_text("compound;dose;solvent\nn1;0,5;oil\n")
    assert good("add", screen, folder / "more.csv").startswith("1 candidate added; 13 in all. Next: ")
    assert good("change", screen, "--strategy", "random") == "strategy is now 'random'\n"
    assert "is pointed out as unusual; nothing was changed" in run("confirm", screen, "c1")[2]
    assert good("untell", screen, 2) == (
        "2 measurements taken back, 2 of before count again. Next: tell the right file\n"
    )
    good("ask", screen, 2, "--replicates", 2, "--out", folder / "p.xlsx")
    assert tables.read(folder / "p.xlsx").texts("viability", empty=True).to_pylist() == [""] * 4
    good("ask", screen, 1, "--preview", "--out", folder / "look.csv")
    (asked,) = json.loads(good("batches", screen, "--json"))
    assert (asked["points"], asked["pending"]) == (4, 4)
    told = json.loads(good("measurements", screen, "--all", "--json"))
    assert [row["superseded_by"] for row in told] == [2, 2, 5, 5, None, None]
    what = [row["what"] for row in json.loads(good("history", screen, "--json"))]
    assert what == ["create", "tell", "rename", "exclude", "include", "add", "change", "untell", "ask"]
    good("export", screen, folder / "out")
    assert "13 candidates, 2 measurements, as they were" in good("import", folder / "out", folder / "new.db")
    assert good("history", folder / "new.db", "--json") == good("history", screen, "--json")


def test_verbs_that_compute_nothing_do_not_import_torch(screen):
    (screen.parent / "r.csv").write_text("compound,viability,plate\nc1,0.5,p\n")
    verbs = [
        ["tell", screen.parent / "r.csv"],
        ["status"],
        ["pending"],
        ["history"],
        ["exclude", "c1", "--reason", "x"],
    ]
    lines = [[verb, str(screen), *map(str, rest)] for verb, *rest in (*verbs, ["untell", 1])]
    code = (
        f"import sys; from aicau.cli import main\nfor line in {lines!r}:\n    sys.argv[1:] = line\n"
        "    try: main()\n    except SystemExit as stop: assert not stop.code, line\n"
        "    print(line[0], sorted({'torch', 'numba', 'scipy', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 new measurement; 1 not asked for; 0 still pending" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.endswith("]")] == [f"{line[0]} []" for line in lines]
