"""Pages and their JSON, in this process; the background process is a thread here."""

import io
import time
import zipfile

import numpy as np
import pandas as pd
import pytest
from starlette.testclient import TestClient

from aicau import Campaign
from aicau.web.candidates import Candidates
from aicau.web.desk import attributes
from aicau.web.plain import plain, plates
from aicau.web.security import MOST_BYTES
from aicau.web.serve import make_app
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


JSON = {"accept": "application/json"}


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
        before = campaign.store.fingerprint()
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
        assert campaign.store.fingerprint() == before


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
    job = client.post("/c/screen/ask", {"n": 3, "replicates": 2, "preview": "true"}, headers=JSON).json()["job"]
    client.ready()
    shown = client.get(f"/c/screen/next.json?job={job}").json()
    assert shown["preview"]
    assert len(shown["rows"]) == 6
    assert shown["pending"] == 5
    for _ in range(2):  # the same form twice: one batch
        client.post("/c/screen/ask", {"n": 3, "request_name": "form-1"})
    client.ready()
    shown = client.get("/c/screen/next.json").json()
    assert shown["pending"] == 8
    assert shown["rows"][0]["reason"]
    table = pd.read_csv(io.BytesIO(client.get("/c/screen/batch.csv").content))
    assert len(table) == 8
    assert len(pd.read_excel(io.BytesIO(client.get("/c/screen/batch.xlsx").content))) == 8
    answer = client.post("/c/screen/abandon", {"ids": [shown["rows"][0]["id"], shown["rows"][1]["id"]]}, headers=JSON)
    assert answer.json()["abandoned"] == 2
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
    again = client.get(f"{client.drop(table)}.json").json()
    assert again["outcomes"] == {"known already": 10}
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
    shown = client.get(f"{page}.json?id=compound&ignore=note").json()
    assert {c["name"]: c["kind"] for c in shown["columns"]}["note"] == "ignored"
    form = {"name": "second", "target": "hit", "id": "compound", "task": "classification", "ignore": ["note"]}
    for bad in ("../up", "a/b", "", "screen"):
        assert client.post(page, form | {"name": bad}).status_code in (400, 422)
    to = client.post(page, form, headers=JSON).json()["page"]
    until = time.monotonic() + 30
    while (answer := client.get(to)).status_code != 303 and time.monotonic() < until:
        time.sleep(0.02)
    assert answer.headers["location"] == "/c/second/next"
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
    made = plates([{"id": str(at)} for at in range(97)])
    assert (len(made), made[0]["size"]) == (1, 384)
    assert made[0]["rows"][4][1][0]["id"] == "96"
    made = plates([{"id": "a", "well": "B02"}, {"id": "b", "well": "H12"}])
    assert made[0]["size"] == 96
    assert made[0]["rows"][1][1][1]["id"] == "a"
    assert made[0]["given"]
    svg = '<style>*{}</style><text style="font: 9px serif; fill: #fff">a</text>'
    assert attributes(svg) == '<text fill="#fff" font-size="9px">a</text>'


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
