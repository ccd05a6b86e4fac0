"""Pages and their JSON, in this process; the background process is a thread here."""

import io
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from starlette.testclient import TestClient

from aicau import Campaign
from aicau.web.candidates import Candidates
from aicau.web.plain import plain, plates
from aicau.web.render import MOMENT, Kept
from aicau.web.security import MOST_BYTES
from aicau.web.serve import make_app
from commands import fingerprint
from serving import HOSTILE, pool, results

PAGES = ("overview", "next", "results", "map", "candidates", "noise", "history")


class Browser(TestClient):
    """With the hidden word of its forms."""

    def post(self, url, data=None, **options):
        guard, cookie = self.app.state.guard, self.cookies.get("aicau", "")
        return super().post(url, data={"csrf": guard.csrf(cookie)} | (data or {}), **options)

    def ready(self, key="screen"):
        until = time.monotonic() + 60
        while self.get(f"/c/{key}/state.json").json()["busy"]:
            assert time.monotonic() < until
            time.sleep(0.02)
        return self

    def drop(self, table, key="screen"):
        """Upload a table of results; gives the page that says what would happen."""
        text = table if isinstance(table, str) else table.to_csv(index=False)
        answer = self.post(f"/c/{key}/results", files={"file": ("results.csv", text)}, headers=JSON)
        assert answer.status_code == 200, answer.text
        return answer.json()["page"]

    def make(self, page, form):
        """Send the form of a new campaign; gives where one is led to."""
        to, until = self.post(page, form, headers=JSON).json()["page"], time.monotonic() + 30
        while (answer := self.get(to)).status_code != 303 and time.monotonic() < until:
            time.sleep(0.02)
        return answer.headers["location"]


JSON = {"accept": "application/json"}
GOAL = {"goal": "above", "threshold": "1.25", "weight": "dose"}


def browse(folder, **options):
    client = Browser(make_app([str(folder)], **options), base_url="http://127.0.0.1", follow_redirects=False)
    client.get("/")
    return client


@pytest.fixture
def client(folder, here):
    with browse(folder) as found:
        yield found


def test_every_page_and_its_json_say_the_same_and_write_nothing(client, folder):
    with Campaign.open(folder / "screen.db") as campaign:
        before = fingerprint(campaign.store)
        status = campaign.status()
    assert client.get("/campaigns.json").json()["campaigns"][0]["measured"] == status["measured"] == 12
    for page in (*PAGES, *PAGES):
        answer = client.get(f"/c/screen/{page}")
        assert answer.status_code == 200, answer.text
        assert "<script>alert" not in answer.text  # of ids, plates, targets and authors
        assert client.get(f"/c/screen/{page}.json").json()["status"]["pending"] == 5
        client.ready()
    overview = client.get("/c/screen/overview")
    assert overview.text.count("<svg") == 4
    assert "style=" not in overview.text
    assert len(client.get("/c/screen/overview.json").json()["progress"]) == 2
    assert client.get("/c/screen/noise.json").json()["noise"]["freedom"] == 12
    assert [row["what"] for row in client.get("/c/screen/history.json").json()["rows"]][-1] == "create"
    assert HOSTILE.replace("<", "&lt;").replace(">", "&gt;") in client.get("/c/screen/candidates?q=script").text
    with Campaign.open(folder / "screen.db") as campaign:
        assert fingerprint(campaign.store) == before


def test_one_renders_while_others_read_and_nobody_sees_less_than_they_did():
    kept, entered, go = Kept(), threading.Event(), threading.Event()
    version = ["old"]

    def read(cookie="", wait=False):
        def render():
            if wait:
                entered.set()
                assert go.wait(30)
            return version[0]

        return kept.page("/place", "screen", cookie, lambda: version[0], render)

    assert read() == "old"
    version[0] = "new"
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(read, wait=True)
        assert entered.wait(30)
        assert read("reader") == "old"  # true a moment ago, and at once
        kept.knows("writer")
        waiting = threads.submit(read, "writer")  # never from before their own change
        time.sleep(0.1)
        assert not waiting.done()
        go.set()
        assert (first.result(30), waiting.result(30)) == ("new", "new")
    assert read() == "new"
    version[0] = "newer"
    kept.pages["/place"].good -= 2 * MOMENT  # nobody asked for a while: nobody gets it any more
    kept.turns["screen"].acquire()
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(read, "reader")
        time.sleep(0.1)
        assert not late.done()
        kept.turns["screen"].release()
        assert late.result(30) == "newer"


def test_a_page_depends_on_what_it_shows(client):
    """A step of the background work makes no page new; a change makes all of them new."""
    for _ in range(2):
        for page in PAGES:
            client.get(f"/c/screen/{page}")
            client.ready()
    for page in PAGES:
        client.get(f"/c/screen/{page}")
    kept = client.app.state.kept.pages
    before = {place: id(held) for place, held in kept.items()}
    client.post("/c/screen/fit")
    assert 'role="status"' in client.get("/c/screen/history").text  # what is under way is shown all the same
    client.ready()
    assert 'role="status"' not in client.get("/c/screen/history").text
    for page in PAGES:
        client.get(f"/c/screen/{page}")
    same = {place.rpartition("/")[2] for place, number in before.items() if id(kept[place]) == number}
    assert same >= {"next", "results", "history"}
    client.post("/c/screen/exclude", {"ids": ["c0"], "reason": "not soluble"})
    assert "not soluble" in client.get("/c/screen/history").text


def test_an_unknown_campaign_a_wrong_number_and_a_path_are_refused(client):
    assert client.get("/c/other/overview").status_code == 404
    assert client.get("/c/..%2Fscreen/overview").status_code == 404
    assert client.get("/c/screen/candidates?page=0").status_code == 422
    assert client.get("/static/..%2Fserve.py").status_code == 404
    page = client.get("/c/other/overview", headers={"accept": "text/html"})
    assert page.status_code == 404
    assert "There is no such campaign here." in page.text


def test_asking_previews_reserves_and_gives_up(client, folder):
    assert client.post("/c/screen/ask", {"n": 3, "preview": "true"}).status_code == 303
    client.ready()
    job = client.post("/c/screen/ask", {"n": 3, "replicates": 2, "preview": "true"} | GOAL, headers=JSON).json()["job"]
    client.ready()
    shown = client.get(f"/c/screen/next.json?job={job}").json()
    assert shown["preview"]
    assert len(shown["rows"]) == 6
    assert all("goal above:1.25: the chance that it lies above 1.25 is" in row["reason"] for row in shown["rows"])
    assert all("by dose" in row["reason"] for row in shown["rows"])
    assert shown["pending"] == 5
    for _ in range(2):  # the same form twice: one batch
        client.post("/c/screen/ask", {"n": 3, "request_name": "form-1"})
    client.ready()
    shown = client.get("/c/screen/next.json").json()
    assert shown["pending"] == 8
    assert shown["rows"][0]["reason"]
    table = pd.read_csv(io.BytesIO(client.get("/c/screen/batch.csv").content))
    assert len(table) == 8
    assert table[[f"viability {HOSTILE}", "plate", "status"]].isna().all(axis=None)  # to be filled in
    assert len(pd.read_excel(io.BytesIO(client.get("/c/screen/batch.xlsx").content))) == 8
    answer = client.post("/c/screen/abandon", {"ids": [shown["rows"][0]["id"], shown["rows"][1]["id"]]}, headers=JSON)
    assert answer.json()["abandoned"] == 2
    client.post("/c/screen/ask", {"n": 1, "replicates": 2})
    client.ready()
    well = client.get("/c/screen/next.json").json()["rows"][0]["id"]
    assert "plate" in client.post("/c/screen/failed", {"ids": [well]}, headers=JSON).json()["detail"]
    for left in (7, 6):  # one well, then the other
        answer = client.post("/c/screen/failed", {"ids": [well], "batch": "P3"}, headers=JSON)
        assert answer.json().get("failed") == 1, answer.text
        shown = client.get("/c/screen/next.json").json()
        assert shown["pending"] == left
    assert [row["state"] for row in shown["rows"]] == ["failed", "failed"]
    assert "is not pending" in client.post("/c/screen/failed", {"ids": [well], "batch": "P3"}, headers=JSON).text
    assert shown["status"]["failed_wells"] == 2
    client.post("/name", {"name": "Ada"})
    client.post("/c/screen/exclude", {"ids": ["c0"], "reason": "not soluble"})
    row = client.get("/c/screen/history.json").json()["rows"][0]
    assert (row["author"], row["what"]) == ("Ada", "exclude")
    client.ready()
    assert "c0" in {row["id"] for row in client.get("/c/screen/candidates.json?show=excluded").json()["rows"]}
    assert client.post("/c/screen/include", {"ids": ["c0"]}, headers=JSON).json() == {
        "page": "/c/screen/candidates",
        "included": 1,
    }


def told(client, folder, plate="P3"):
    ids = [row["id"] for row in client.get("/c/screen/next.json").json()["rows"]]
    return results(ids, plate, pool()).rename(columns={"viability": f"viability {HOSTILE}"})


def test_results_are_shown_row_by_row_and_stored_once_and_whole(client, folder):
    table = told(client, folder)
    target = f"viability {HOSTILE}"
    wrong = table.astype({target: object})
    wrong.loc[2, target] = "n.d."
    wrong.loc[4, "compound"] = "nobody"
    page = client.drop(wrong)
    shown = client.get(f"{page}.json").json()
    assert [row["outcome"] for row in shown["rows"]][:5] == ["new", "new", "looks wrong", "new", "looks wrong"]
    assert "expected a number, got 'n.d.'" in shown["rows"][2]["note"]
    assert client.post(page).status_code == 400  # all or nothing
    assert client.get("/c/screen/overview.json").json()["status"]["measurements"] == 24
    page = client.drop(table)
    assert client.get(f"{page}.json").json()["outcomes"] == {"new": 10}
    assert client.get("/c/screen/overview.json").json()["status"]["measurements"] == 24  # nothing before the word
    for _ in range(2):
        assert client.post(page).status_code == 303
    assert "10 new measurements" in client.get(page).text
    assert client.get("/c/screen/overview.json").json()["status"]["measurements"] == 34
    client.ready()
    assert len(client.get("/c/screen/overview.json").json()["progress"]) == 3  # the curve has moved
    blank = table[:1].assign(**{target: None, "plate": None})
    again = client.get(f"{client.drop(pd.concat([table, blank]).assign(status=''))}.json").json()
    assert again["outcomes"] == {"known already": 10, "not filled in": 1}
    changed = table.iloc[[0, 5]].assign(**{target: [7.5, 7.6]})
    page = client.drop(changed)
    assert "meant as a correction?" in client.get(f"{page}.json").json()["rows"][0]["note"]
    assert client.get(f"{page}.json?correct=true").json()["outcomes"] == {"new": 2}
    client.post(page, {"correct": "true"})
    tell = client.get("/c/screen/history.json").json()["rows"][0]["number"]
    assert client.post("/c/screen/untell", {"tell": tell}, headers=JSON).json()["gone"] == 2
    shown = client.post("/c/screen/rename", {"old": "P3", "new": "P3b"}, headers=JSON).json()
    assert shown["renamed"] == 10


def test_results_that_came_by_another_way_wait_for_somebody_to_update_the_model(client, folder):
    for page in PAGES:
        client.get(f"/c/screen/{page}")
        client.ready()
    table = told(client, folder)
    with Campaign.open(folder / "screen.db") as campaign:
        campaign.tell(table)
    client.get("/c/screen/overview")
    client.ready()
    page = client.get("/c/screen/overview")
    assert "results that the model does not know yet" in page.text
    assert page.text.count("<svg") == 4  # what was known is still shown
    with Campaign.open(folder / "screen.db") as campaign:
        assert campaign.status()["models"] == 2  # looking has fitted nothing
    client.post("/c/screen/fit")
    client.ready()
    assert "does not know yet" not in client.get("/c/screen/overview").text


def test_a_campaign_is_made_of_a_dropped_table(client, folder):
    table = pool(30).assign(note="free text")
    answer = client.post("/new", files={"file": ("../../new table.csv", table.to_csv(index=False))}, headers=JSON)
    page = answer.json()["page"]
    shown = client.get(f"{page}.json").json()
    assert shown["id"] == "compound"
    assert {c["name"]: c["kind"] for c in shown["columns"]}["solvent"] == "category"
    client.post(page, {"id": "compound", "ignore": ["note"], "again": "true"})
    shown = client.get(f"{page}.json").json()
    assert {c["name"]: c["kind"] for c in shown["columns"]}["note"] == "ignored"
    form = {"name": "second", "target": "hit", "id": "compound", "task": "classification", "ignore": ["note"]}
    for bad in ("../up", "a/b", "", "screen"):
        assert client.post(page, form | {"name": bad}).status_code in (400, 422)
    assert client.make(page, form) == "/c/second/next"
    assert sorted(file.name for file in folder.glob("*.db")) == ["screen.db", "second.db"]
    with Campaign.open(folder / "second.db") as campaign:
        batch = campaign.ask(8)
        labels = ["yes", "no"] * 4
        campaign.tell(pd.DataFrame({"compound": batch["compound"], "hit": labels}))
        campaign.outlook()
    for name in PAGES:
        client.get(f"/c/second/{name}")
        client.ready("second")
        assert client.get(f"/c/second/{name}").status_code == 200
    assert "p_yes" in client.get("/c/second/map.json").json()["colours"]
    assert "labels" in client.get("/c/second/noise").text


def test_the_form_of_a_new_campaign_keeps_what_was_filled_in(client, folder):
    table = pool(30).assign(price=1.0).to_csv(index=False)
    page = client.post("/new", files={"file": ("my table.csv", table)}, headers=JSON).json()["page"]
    assert 'name="name" value="my-table"' in client.get(page).text
    form = {
        "name": "a b",
        "target": "hit <b>",
        "id": "compound",
        "batch": "day",
        "task": "count",
        "ignore": ["solvent"],
    }
    form |= {"goal": "below", "threshold": "2.5", "weight": "dose", "cost": "price", "scale": "log", "layout": "384"}
    form |= {"controls": "DMSO=4", "avoid_edges": "true"}
    people = {"accept": "text/html"}

    def shown(change, problem):
        answer = client.post(page, form | change, headers=people)
        until = time.monotonic() + 30
        while "/making/" in answer.headers["location"] and time.monotonic() < until:
            time.sleep(0.02)
            again = client.get(answer.headers["location"], headers=people)
            answer = again if again.status_code == 303 else answer
        assert answer.headers["location"] == page
        text = client.get(page).text
        assert problem in text
        return text

    assert 'role="alert"' not in shown({"again": "true"}, "New campaign")
    for text in (shown({}, "choose another name"), shown({"name": "second", "batch": "dose"}, 'role="alert"')):
        for words in ('value="hit &lt;b&gt;"', 'value="2.5"', 'value="DMSO=4"', 'value="solvent" checked'):
            assert words in text
        for chosen in ("count", "below", "log", "384"):
            assert f'<option value="{chosen}" selected>' in text
        for chosen in ("dose", "price", "compound"):
            assert f"<option selected>{chosen}</option>" in text
        assert 'name="avoid_edges" value="true" checked' in text
    assert [file.name for file in folder.glob("*.db")] == ["screen.db"]
    form |= {"name": "third", "target": "hit", "batch": "day", "scale": "linear", "goal": "map"}
    assert client.make(page, form) == "/c/third/next"


def test_goal_weight_budget_and_a_plate_with_controls(client, folder):
    table = pool(30).assign(price=np.arange(30) + 1.0, use=1.0)
    page = client.post("/new", files={"file": ("t.csv", table.to_csv(index=False))}, headers=JSON).json()["page"]
    form = {"name": "plated", "target": "hit", "id": "compound", "batch": "plate", "goal": "above", "threshold": "0.5"}
    form |= {"layout": "96", "controls": "DMSO=4, blank=B02+G11", "avoid_edges": "true", "scale": "log"}
    form |= {"cost": "price", "weight": "use"}
    assert client.post(page, form | {"layout": "/etc/passwd"}).status_code == 422  # no path from outside
    assert "DMSO=8" in client.post(page, form | {"controls": "DMSO"}, headers=JSON).json()["detail"]
    assert client.make(page, form) == "/c/plated/next"
    with Campaign.open(folder / "plated.db") as campaign:
        settings = campaign.settings
    kept = {name: settings[name] for name in ("goal", "weight", "scale", "cost")}
    assert kept == {"goal": "above:0.5", "weight": "use", "scale": "log", "cost": "price"}
    assert settings["layout"]["controls"]["blank"] == ["B02", "G11"]
    assert len(settings["layout"]["controls"]["DMSO"]) == 4
    assert len(settings["layout"]["wells"]) == 6 * 10 - 6
    ask = {"n": 3, "replicates": 2, "goal": "max", "weight": "use", "budget": "40", "preview": "true"}
    job = client.post("/c/plated/ask", ask, headers=JSON).json()["job"]
    client.ready("plated")
    shown = client.get(f"/c/plated/next.json?job={job}").json()
    points = [row for row in shown["rows"] if row["state"] == "preview"]
    assert shown["points"] == len(points)
    assert 0 < sum(float(row["price"]) for row in points) <= 40
    assert [row["state"] for row in shown["rows"][len(points) :]] == ["control"] * 6
    assert shown["chosen"] == {"n": 3, "replicates": 2, "goal": "max", "weight": "use", "budget": 40.0}
    assert '<option value="max" selected>' in client.get(f"/c/plated/next?job={job}").text  # and stays chosen
    client.post("/c/plated/ask", {"n": 3})
    client.ready("plated")
    plate = pd.read_csv(io.BytesIO(client.get("/c/plated/batch.csv").content))
    assert len(plate) == 9
    page = client.drop(plate[["compound", "well"]].assign(hit=1.5, plate="P1"), "plated")
    assert client.get(f"{page}.json").json()["outcomes"] == {"control": 6, "new": 3}
    assert "Store 3 new measurements and 6 controls" in client.get(page).text
    client.post(page)
    spent = table.set_index("compound").price[plate["compound"][:3]].sum()
    assert client.get("/c/plated/overview.json").json()["spent"] == spent
    alone = plate[["compound", "well"]].iloc[3:].assign(hit=1.7, plate="P1")
    page = client.drop(alone, "plated")
    assert "Store 6 controls" in client.get(page).text
    client.post(page)
    assert "nothing to store" in client.get(client.drop(alone, "plated")).text


def test_what_is_handed_out(client):
    assert client.get("/c/screen/predictions.csv").status_code == 404
    client.get("/c/screen/candidates")
    client.ready()
    client.get("/c/screen/candidates")
    client.ready()
    table = pd.read_csv(io.BytesIO(client.get("/c/screen/predictions.csv").content))
    assert len(table) == 40
    assert {"mean", "low", "high"} <= set(table)
    with zipfile.ZipFile(io.BytesIO(client.get("/c/screen/everything.zip").content)) as archive:
        assert "screen/measurements.csv" in archive.namelist()


def test_the_map_and_the_table_show_what_is_in_the_window(client):
    for _ in range(2):
        client.get("/c/screen/map")
        client.ready()
    shown = client.get("/c/screen/map.json?x=dose&y=ph&colour=mean&x0=0.5").json()
    want = pool()
    assert shown["map"]["count"] == int((want.dose >= 0.5).sum())
    assert {p["id"] for p in shown["map"]["points"]} == set(want.compound[want.dose >= 0.5])
    listed = client.get("/c/screen/candidates.json?x=dose&y=ph&x0=0.5&q=oil").json()
    assert {row["id"] for row in listed["rows"]} == set(want.compound[(want.dose >= 0.5) & (want.solvent == "oil")])
    assert "x0=0.5" in client.get("/c/screen/map?x=dose&y=ph&x0=0.5").text  # leads there
    assert client.get("/c/screen/map.json?x=nothing").status_code == 404
    rows = client.get("/c/screen/candidates.json?sort=dose&down=true&q=oil").json()
    assert rows["total"] == 20
    best = want[want.solvent == "oil"].sort_values("dose").compound.iloc[-1]
    assert rows["rows"][0]["id"] == best


def test_a_million_candidates_become_bins(tmp_path):
    import pyarrow as pa

    n = 1_000_000
    rng = np.random.default_rng(0)
    x, y = rng.random(n), rng.random(n)
    own = {"p:id": pa.array(np.arange(n).astype(str)), "p:a": x, "m:mean": x + y, "x:0": x, "x:1": y}
    with pa.ipc.new_file(str(tmp_path / "t.arrow"), (table := pa.table(own)).schema) as writer:
        writer.write_table(table)
    found = Candidates({"path": str(tmp_path / "t.arrow"), "axes": ("one", "two")})
    mask = found.found("", None, {"one": (0.0, 0.5)})
    drawn = found.map("one", "two", "mean", mask)
    assert drawn["count"] == int((x <= 0.5).sum()) == sum(b["count"] for b in drawn["bins"])
    assert len(drawn["bins"]) == 64 * 40
    assert not drawn["points"]
    rows, total = found.rows(mask, "mean", True, 2)
    assert total == drawn["count"]
    best = np.flatnonzero(x <= 0.5)
    assert [row["number"] for row in rows] == best[np.argsort(-(x + y)[best])][50:100].tolist()


def test_numbers_as_json_and_a_batch_as_plates():
    assert plain({"a": float("nan"), "b": (1, np.float64(2.0)), "c": pd.DataFrame({"x": [None, 1.0]})}) == {
        "a": None,
        "b": [1, 2.0],
        "c": [{"x": None}, {"x": 1.0}],
    }
    made = plates([{"id": str(at)} for at in range(97)], False)
    assert (len(made), made[0]["size"]) == (1, 384)
    assert made[0]["rows"][4][1][0]["id"] == "96"
    made = plates([{"id": "a", "well": "B02"}, {"id": "b", "well": "H12"}], True)
    assert made[0]["size"] == 96
    assert made[0]["rows"][1][1][1]["id"] == "a"
    assert made[0]["given"]
    made = plates([{"id": "a", "well": "A01"}, {"id": "b", "well": "AF48"}], True)
    assert (len(made), made[0]["size"]) == (1, 1536)
    assert made[0]["rows"][31] == ("AF", [*[None] * 47, {"id": "b", "well": "AF48"}])


def test_wells_that_candidates_came_in_are_no_places_on_the_plate(client, folder):
    with Campaign.create(folder / "stock.db", pool(20).assign(well="A01"), "hit", id="compound") as campaign:
        ids = campaign.ask(3)["compound"]
    text = client.get("/c/stock/next").text
    assert [f'<td class="pending" title="{id}: ' in text for id in ids] == [True] * 3
    client.ready("stock")


def test_columns_called_id_and_number_are_not_taken_for_those_of_the_page(client, folder):
    frame = pool(20).assign(id="other", state="solid", number=0)
    with Campaign.create(folder / "odd.db", frame, "hit", id="compound") as campaign:
        ids = set(campaign.ask(3)["compound"])
    shown = client.get("/c/odd/next.json").json()["rows"]
    assert ({row["id"] for row in shown}, {row["state"] for row in shown}) == (ids, {"pending"})
    for _ in range(2):
        client.get("/c/odd/candidates")
        client.ready("odd")
    shown = client.get("/c/odd/candidates.json").json()["rows"]
    assert [row["id"] for row in shown] == frame.compound.tolist()
    assert {row["id"] for row in shown if row["state"] == "pending"} == ids


def test_names_of_people_and_files_may_have_any_letters(client):
    for name in ("Zoë", "李 <b>", 'a "b"; c=1'):
        assert client.post("/name", {"name": name}).status_code == 303
        assert f'name="name" value="{escape(name)}"' in client.get("/c/screen/history").text
        client.post("/c/screen/exclude", {"ids": ["c1"], "reason": "not soluble"})
        client.post("/c/screen/include", {"ids": ["c1"]})
        assert client.get("/c/screen/history.json").json()["rows"][0]["author"] == name
    long = "𠀀" * 90 + ".csv"  # letters of four bytes
    assert client.post("/new", files={"file": (long, "id,a\n1,2\n2,3\n")}, headers=JSON).status_code == 200


def test_too_large_an_upload_is_refused(client):
    big = b"x" * (MOST_BYTES + 1)
    assert client.post("/new", files={"file": ("a.csv", big)}).status_code == 413

    def pieces():
        for _ in range(65):
            yield b"x" * 2**20

    chunked = TestClient.post(
        client, "/new", content=pieces(), headers={"content-type": "multipart/form-data; boundary=a"}
    )
    assert chunked.status_code in (400, 413)


def test_a_workbook_that_grows_beyond_measure_is_refused(client):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b"0" * 50_000_000)
    answer = client.post("/new", files={"file": ("bomb.xlsx", packed.getvalue())}, headers=JSON)
    assert "too much" in client.get(f"{answer.json()['page']}.json").json()["problem"]
