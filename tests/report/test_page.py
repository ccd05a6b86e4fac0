"""The report: what it says is what was measured, and it needs nothing but itself."""

import re
import shutil
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from aicau import Campaign
from aicau.campaign.layout import place
from aicau.core.errors import InputError
from aicau.report import figures, platemap
from aicau.report.data import WORDS
from aicau.report.gather import gather


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 80
    pool = pd.DataFrame({"id": [f"<b>{i}</b>" for i in range(n)], "x": rng.random(n), "z": rng.random(n)})
    how = {"target": "y & <i>", "batch": "day", "strategy": "br:posterior:spread"}  # no repeats
    made = Campaign.create(tmp_path_factory.mktemp("page") / "c.db", pool, **how)
    for number, shift in enumerate((0.0, 1.0, -1.0)):
        batch = made.ask(10)
        rows = pd.concat([batch, batch], ignore_index=True)
        y = np.sin(3 * rows.x) + shift + 0.05 * rng.normal(size=20)
        made.tell(pd.DataFrame({"id": rows["id"], "y & <i>": y, "day": f"d{number}"}))
    made.ask(6)
    yield made
    made.close()


def test_the_contents_in_numbers(campaign):
    contents = gather(campaign)
    assert contents.rounds["round"].tolist() == [2, 3, 4]
    assert contents.rounds.measurements.tolist() == [20, 40, 60]
    table = contents.progress.rounds
    assert table.measurements.tolist() == [20, 40, 60]
    assert table.held_out.isna().tolist() == [False, False, True]
    # The held-out error of round 2 by hand: its kept model on the means of what was measured next.
    with campaign.store.reading() as session:
        rows = pd.DataFrame(session.measurements())
    new = rows[rows.tell == 2].groupby("candidate").value.mean()
    said = campaign.models.kept(1).predict(new.index.tolist()).mean.numpy()
    assert table.held_out[0] == pytest.approx(np.sqrt(np.mean((new.to_numpy() - said) ** 2)))
    assert [b.name for b in contents.noise.batches] == ["d0", "d1", "d2"]
    assert contents.noise.batches[1].shift > contents.noise.batches[2].shift
    low, high = contents.noise.reach
    assert 0 <= low < contents.noise.between < high
    assert contents.noise.freedom == 30
    assert contents.noise.sd == pytest.approx(0.05, rel=0.4)
    assert len(contents.noise.replicates) == 30
    again = rows.groupby("candidate").value.count().index
    model = campaign.models.at(campaign.moment())  # both values of a candidate came from one day: its shift cancels
    own = model.predict(again.tolist()).aleatoric.numpy() - model.figures.shared
    assert contents.noise.predicted == pytest.approx(np.sqrt(own))
    assert [p for p, _, _ in contents.calibration][-1] == 0.95
    assert all(0 <= observed <= 1 for _, observed, _ in contents.calibration)
    assert contents.map.candidates.shape == (80, 2)
    assert contents.map.measured.shape == (30, 2)
    assert contents.map.pending.shape == (6, 2)
    assert contents.batch[1] == ["pending"] * 6


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_stands_alone_and_escapes_names(campaign, tmp_path):
    path = campaign.report(tmp_path / "report.html")
    page = path.read_text()
    reader = Reader()
    reader.feed(page)
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("svg") == 7
    assert not {"script", "link", "iframe", "img"} & set(tags)
    for tag, attributes in reader.tags:
        for name in ("src", "href", "xlink:href"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:")), (tag, value)
    assert "url(http" not in page
    assert not [tag for tag in tags if tag in ("b", "i")]
    words = " ".join(reader.text)
    assert "y & <i>" in words
    for row in campaign.ask(6, request="again").itertuples():
        assert row.id.startswith("<b>")
    assert page.count('<tr class="reason">') == 6
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) > 100
    assert re.search(r"beyond chance: [\d.]+ \(95% interval\s+[\d.]+ to [\d.]+\)", words)
    assert re.search(r"Of 40 new measurements, \d+% fell into the 95% interval", words)
    assert gather(campaign).batch[0] is not None


def test_a_plate_of_which_no_row_is_looked_at_lends_its_name_to_no_other(tmp_path, monkeypatch):
    """The effects of plates are found from some of very many rows."""
    monkeypatch.setattr("aicau.gp.plates.EFFECT_ROWS", 4)
    pool = pd.DataFrame({"id": [f"c{i}" for i in range(21)], "x": np.linspace(0, 1, 21)})
    with Campaign.create(tmp_path / "c.db", pool, target="y", batch="day", ensemble="paper") as campaign:
        days = ["d0"] * 10 + ["d1"] + ["d2"] * 10
        campaign.tell(pd.DataFrame({"id": pool["id"], "y": np.arange(21) % 5 * 0.1, "day": days}))
        found = gather(campaign).noise.batches
    assert [(one.name, one.count) for one in found] == [("d0", 10), ("d2", 10)]


def test_the_same_campaign_gives_the_same_page(campaign, tmp_path):
    one = campaign.report(tmp_path / "1.html").read_bytes()
    assert one == campaign.report(tmp_path / "2.html").read_bytes()


@pytest.mark.parametrize("task", ["classification", "count", "regression"])
@pytest.mark.parametrize("asked", [False, True])
def test_with_failed_wells_only(tmp_path, task, asked):
    pool = pd.DataFrame({"id": ["a", "b", "c"], "x": [1, 2, 3]})
    with Campaign.create(tmp_path / "c.db", pool, target="y", batch="day", task=task) as campaign:
        with pytest.raises(InputError, match="nothing to report yet"):
            campaign.report(tmp_path / "r.html")
        if asked:
            campaign.ask(2)
            assert "Not shown yet" in campaign.report(tmp_path / "r.html").read_text()
        campaign.tell(pd.DataFrame({"id": ["a", "b"], "day": "d", "status": "failed"}))
        page = campaign.report(tmp_path / "r.html").read_text()
        assert "<dt>failed wells</dt><dd>2</dd>" in page
        assert ("needs labels of at least two classes." in page) == (task == "classification")
        assert ("<strong>Noise</strong>: no candidate has been measured twice yet" in page) == (
            task != "classification"
        )
        assert len(campaign.ask(1)) == 1
        if task == "classification":  # one class is no model yet, and still something to report
            campaign.tell(pd.DataFrame({"id": ["c"], "day": "d", "y": "hit"}))
            page = campaign.report(tmp_path / "r.html").read_text()
            assert "All labels:\nhit 1." in page
            assert "needs labels of at least two classes." in page


def test_before_the_first_results(tmp_path):
    pool = pd.DataFrame({"id": ["a", "b", "c"], "x": [1, 2, 3]})
    with Campaign.create(tmp_path / "c.db", pool, target="y") as campaign:
        with pytest.raises(InputError, match="nothing to report yet"):
            campaign.report(tmp_path / "r.html")
        assert not (tmp_path / "r.html").exists()
        campaign.ask(2)
        page = campaign.report(tmp_path / "r.html").read_text()
        assert page.count("<article>") == 1  # the map
        assert page.count("<li>") == 6
        assert "this campaign has no batch column" in page
        campaign.tell(pd.DataFrame({"id": ["a"], "y": [1.0]}))
        page = campaign.report(tmp_path / "r.html").read_text()
        assert "no candidate has been measured twice yet" in page
        assert page.count("<article>") == 3  # the error, its parts, the map


SCRIPT = "<script>alert('$x$ & \"y\"')</script>"


@pytest.mark.parametrize("task", WORDS)
def test_every_name_is_escaped_for_every_task(tmp_path, task):
    """Script tags in ids, names of columns, categories, plates and labels are shown and never run."""
    rng = np.random.default_rng(0)
    id, target, batch, feature, ignored = (SCRIPT + end for end in ("id", "target", "batch", "feature", "ignored"))
    pool = pd.DataFrame({id: [f"{SCRIPT}{i}" for i in range(20)], feature: [SCRIPT, "b"] * 10, "x": rng.random(20)})
    pool[ignored] = "无"
    names = {"id": id, "target": target, "batch": batch, "ignore": [ignored]}
    with Campaign.create(tmp_path / "c.db", pool, task=task, author=SCRIPT, **names) as campaign:
        for number in range(2):
            rows = pd.concat([campaign.ask(5)] * 2)
            outcome = {
                "regression": rows.x,
                "classification": np.where(rows.x > 0.5, SCRIPT, "无"),
                "count": rng.poisson(9 * rows.x),
            }[task]
            campaign.tell(pd.DataFrame({id: rows[id], target: outcome, batch: f"{SCRIPT}{number}"}))
        campaign.ask(3)
        page = campaign.report(tmp_path / "r.html").read_text()
        drawn = figures.draw(gather(campaign))
    reader = Reader()
    reader.feed(page)
    assert "script" not in [tag for tag, _ in reader.tags]
    words = "".join(reader.text)
    for text in (id, target, feature, f"each {batch}"):
        assert text in words
    assert ignored not in words
    assert all(set(attributes) <= ALLOWED for tag, attributes in reader.tags if tag in ("div", "td", "th", "svg"))
    expected = {"learning", "decomposition", "calibration", "candidates"}
    values, labels = {"noise", "shifts", "parity"}, {"confusion", "agreement", "shares"}
    assert set(drawn) == expected | (labels if task == "classification" else values)
    assert ("无" in "".join(drawn.values())) == (task == "classification")


@pytest.mark.parametrize("unit", [1e-20, 1.0, 0.0])
def test_figures_of_tiny_numbers_show_them(unit):
    """Energies in joules, and their squares, are as tall as any other."""
    drawn = [Figure().subplots() for _ in range(3)]
    figures._bars(drawn[0], [([unit**2, 2 * unit**2], "C0", "noise")])
    columns = ["error", "low", "high", "mean_only", "noise"]
    rounds = pd.DataFrame({"measurements": [8, 16]} | dict.fromkeys(columns, unit))
    words, noise = (
        SimpleNamespace(error="error"),
        SimpleNamespace(replicates=[(unit, unit, 2)], sd=unit, dispersion=None, predicted=(unit,)),
    )
    contents = SimpleNamespace(
        progress=SimpleNamespace(rounds=rounds), words=words, settings={"target": "energy"}, noise=noise
    )
    figures.learning(drawn[1], contents)
    figures.noise(drawn[2], contents)
    tops = [axes.get_ylim()[1] for axes in drawn]
    assert tops == (pytest.approx([2.1 * unit**2, 1.08 * unit, 1.15 * unit], abs=0) if unit else [1.0] * 3)


ALLOWED = {
    "class", "role", "aria-label", "tabindex", "colspan", "scope", "width", "height", "viewbox", "xmlns", "xmlns:xlink",
    "version",
}  # fmt: skip


def test_figures_follow_the_theme(campaign, tmp_path):
    """No background of their own, words as text, and the marked parts are those that the style sheet colours."""
    drawn = figures.draw(gather(campaign))
    for text in drawn.values():
        assert text.startswith("<svg")
        assert "<text" in text
        assert "#ffffff" not in text
        assert "<style" not in text
        assert "style=" not in text  # attributes, which the page's own style sheet may change
        assert 'font-size="9px"' in text
        assert "<metadata" not in text
    assert drawn["candidates"].count("-ink-") == 2  # the circles and their key in the legend
    page = campaign.report(tmp_path / "r.html").read_text()
    assert "prefers-color-scheme: dark" in page
    assert 'svg [id*="-ink-"]' in page


def test_an_installed_package_has_the_templates(tmp_path):
    root = Path(__file__).parents[2]
    shutil.copytree(root / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, tmp_path)
    build = "from setuptools.build_meta import build_wheel; build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert {f"aicau/report/templates/{name}" for name in ("report.html.j2", "report.css")} <= set(
        zipfile.ZipFile(wheel).namelist()
    )


def test_points_of_a_grid_do_not_hide_each_other_and_have_names(tmp_path):
    pool = pd.DataFrame({"id": [f"c{i}" for i in range(45)], "x": [0, 1, 2] * 15, "z": [0] * 20 + [1] * 25})
    with Campaign.create(tmp_path / "c.db", pool, target="y") as campaign:
        campaign.ask(3)
        found = gather(campaign)
        places = np.unique(found.map.candidates.round(6), axis=0)
        assert found.map.moved
        assert len(places) == 45
        assert found.map.axes == ("x (standardised)", "z (standardised)")
        centre = pool.groupby(["x", "z"]).ngroup().to_numpy()
        for cell in range(6):  # nobody leaves the neighbourhood of its own place
            own = found.map.candidates[centre == cell]
            assert np.ptp(own[:, 0]) < 1.23
        page = campaign.report(tmp_path / "r.html").read_text()
        assert [f"<title>c{i}: next</title>" in page for i in campaign.moment().pending] == [True] * 3
        assert "Measure the 3 pending points, then tell the results: aicau tell c.db results.csv" in page
        assert campaign.plot_map().axes[0].get_xlabel() == "x (standardised)"


def test_labels_that_are_numbers_are_drawn_on_a_plate(tmp_path):
    pool = pd.DataFrame({"id": [f"c{i}" for i in range(12)], "x": np.arange(12.0)})
    settings = {"target": "y", "batch": "plate", "task": "classification", "layout": 96, "controls": {"DMSO": 2}}
    with Campaign.create(tmp_path / "c.db", pool, strategy="random", **settings) as campaign:
        plate = campaign.ask(4)
        rows = plate[["id", "well"]].assign(y=["0", "1", "0", "1", "1", "1"], plate="P1")
        campaign.tell(rows.iloc[[0, 1, 2, 4, 5]])
        (drawn,) = platemap.draw(campaign)
    assert (drawn.name, drawn.letters, drawn.columns) == ("P1", tuple("ABCDEFGH"), 12)
    titles = {well.title.partition(":")[0]: well for well in drawn.wells}
    assert len(titles) == 6
    zero, one, _, pending, *controls = (titles[well] for well in plate.well)
    assert f"{plate['id'][0]}, measured 0 (completed). " in zero.title
    assert (zero.look, zero.colour, one.colour) == ("done", platemap.shade(0), platemap.shade(1))
    assert (pending.look, pending.colour) == ("pending", "none")
    assert {(well.look, well.colour) for well in controls} == {("control", "none")}
    assert (zero.row, zero.column) == place(plate.well[0])
