"""Pages in a real browser: Chromium of the system, driven by Playwright."""

import re
import shutil
import signal
import time

import pandas as pd
import pytest

from aicau import Campaign
from serving import HOSTILE, Server, pool, results

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install the package chromium")
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PAGES = ("overview", "next", "results", "map", "candidates", "noise", "history")


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def looked_at(made, tmp_path_factory):
    """The address of a server for tests that change nothing in its campaign."""
    folder = shutil.copytree(made, tmp_path_factory.mktemp("looked") / "lab")
    running = Server(folder)
    yield running.url
    running.stop()


@pytest.fixture
def visitor(chromium):
    """A function that opens a browser of its own; at the end nothing may have been blocked or failed in it."""
    contexts, said = [], []

    def come(**options):
        context = chromium.new_context(accept_downloads=True, **options)
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        contexts.append(context)
        return page

    yield come
    for context in contexts:
        context.close()
    assert [words for words in said if "ERR_CONNECTION" not in words and "status of 4" not in words] == []


def settled(page):
    """Until nothing is under way any more."""
    until = time.monotonic() + 120
    while True:
        page.wait_for_selector("[data-poll]", state="detached", timeout=120_000)  # the page shows itself anew
        if not page.request.get(f"{page.url.partition('/c/')[0]}/c/screen/state.json").json()["busy"]:
            return
        assert time.monotonic() < until
        page.reload()


def drop(page, name, text):
    """Drop a file on the form, as a hand would."""
    page.eval_on_selector(
        "[data-drop]",
        """(form, [name, text]) => {
            const data = new DataTransfer();
            data.items.add(new File([text], name));
            form.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }""",
        [name, text],
    )
    page.wait_for_url(re.compile(r"/(new|results)/[0-9a-f]+"))


def test_from_a_table_to_a_curve_that_moves(server, visitor, tmp_path):
    folder = tmp_path / "lab"
    folder.mkdir()
    running = server(folder)
    page = visitor()
    page.goto(running.url)
    frame = pool()
    drop(page, "screen 1.csv", frame.to_csv(index=False))
    assert page.locator("#id").input_value() == "compound"
    page.fill("#campaign", "screen")
    page.fill("#target", "viability")
    page.fill("#batch", "plate")
    page.click("button:text-is('Make the campaign')")
    page.wait_for_url("**/c/screen/next")
    points = []
    for number in (1, 2):
        page.goto(f"{running.url}/c/screen/next")
        page.fill("#n", "6")
        page.click("button:text-is('Ask')")
        page.wait_for_url("**/next?job=*")
        settled(page)
        assert page.locator(".plate td.pending").count() == 6
        with page.expect_download() as waiting:
            page.click("text=pending as CSV")
        table = results(pd.read_csv(waiting.value.path())["compound"], f"P{number}", frame)
        page.click("text=Drop results")
        if number == 1:  # a slip first
            drop(
                page,
                "r.csv",
                table.astype({"viability": object})
                .replace({"viability": {table.viability[1]: "low"}})
                .to_csv(index=False),
            )
            assert "looks wrong" in page.locator("main").inner_text()
            assert page.locator("button:has-text('Store')").count() == 0
            page.click("text=drop it again")
        drop(page, "r.csv", table.to_csv(index=False))
        page.click("text=Store 12 new measurements")
        page.wait_for_selector("text=Stored: 12 new measurements")
        page.click("text=See the effect")
        settled(page)
        points.append(len(page.request.get(f"{running.url}/c/screen/overview.json").json()["progress"]))
        assert page.locator("article svg").count() >= 2
    assert points == [1, 2]
    with Campaign.open(folder / "screen.db") as campaign:
        assert campaign.status()["measurements"] == 24
        assert all(check.ok for check in campaign.doctor())


def test_two_browsers_at_once_and_a_server_that_dies(server, visitor, folder):
    running = server(folder)
    one, two = visitor(), visitor()
    for page, name in ((one, "Ada"), (two, "Grace")):
        page.goto(f"{running.url}/c/screen/next")
        page.fill("#name", name)
        page.click("text=Save")
    for page in (one, two):
        page.fill("#n", "2")
        page.click("button:text-is('Ask')", no_wait_after=True)
    for page in (one, two):
        page.wait_for_url("**/next?job=*")
        settled(page)
    with Campaign.open(folder / "screen.db") as campaign:
        assert campaign.status()["pending"] == 9
        assert set(campaign.history()["author"]) >= {"Ada", "Grace"}
    one.goto(f"{running.url}/c/screen/results")
    target = f"viability {HOSTILE}"
    ids = [row["id"] for row in one.request.get(f"{running.url}/c/screen/next.json").json()["rows"]]
    table = results(ids, "P9", pool()).rename(columns={"viability": target})
    drop(one, "r.csv", table.to_csv(index=False))
    two.goto(f"{running.url}/c/screen/next")
    two.click("button:text-is('Ask')", no_wait_after=True)
    time.sleep(0.3)
    running.stop(signal.SIGKILL)
    again = server(folder, port=running.port)
    with Campaign.open(folder / "screen.db") as campaign:  # what was dropped and not confirmed is not there
        assert campaign.status()["measurements"] == 24
        assert all(check.ok for check in campaign.doctor())
    one.goto(f"{again.url}/c/screen/results")
    drop(one, "r.csv", table.to_csv(index=False))
    one.click("text=Store 4 new measurements")
    one.wait_for_selector("text=Stored: 4 new measurements")


def looks(page):
    """The same page on a screen and on a telephone, in light and dark."""
    for wide in (1280, 420):
        page.set_viewport_size({"width": wide, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            yield wide, scheme


def test_every_page_in_both_themes_and_sizes(looked_at, visitor, tmp_path_factory):
    """Screenshots of every page (in `shots`), no sideways scrolling, and no complaint of axe-core."""
    from axe_playwright_python.sync_playwright import Axe

    shots = tmp_path_factory.mktemp("shots")
    first = visitor()
    for page in ("candidates", "map"):
        first.goto(f"{looked_at}/c/screen/{page}")
        settled(first)
    places = {"campaigns": looked_at} | {name: f"{looked_at}/c/screen/{name}" for name in PAGES}
    first.goto(looked_at)
    drop(first, "pool.csv", pool().to_csv(index=False))
    places["create"] = first.url
    table = results(["c1", "c2"], "P9", pool()).rename(columns={"viability": f"viability {HOSTILE}"})
    first.goto(places["results"])
    drop(first, "r.csv", table.assign(compound=["c1", "c2", "nobody", "c2"]).to_csv(index=False))
    places["check"] = first.url
    first.goto(places["results"])
    drop(first, "r.csv", table.to_csv(index=False))
    places["right"] = first.url
    axe, page = Axe(), visitor(bypass_csp=True)
    for name, place in places.items():
        page.goto(place)
        page.evaluate(axe.axe_script)
        for wide, scheme in looks(page):
            page.screenshot(path=shots / f"{name}-{wide}-{scheme}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (name, wide)
            found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
            assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == [], (name, wide, scheme)
    assert len(list(shots.glob("*.png"))) == 4 * 11


def test_the_map_by_hand_and_pages_by_keyboard(looked_at, visitor):
    page = visitor(viewport={"width": 1000, "height": 900})
    page.goto(f"{looked_at}/c/screen/map")
    settled(page)
    page.goto(f"{looked_at}/c/screen/map?x=dose&y=ph&colour=mean")
    assert page.locator(".map circle[class^=s]").count() == 40
    box = page.locator(".map").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 20)
    page.mouse.up()
    page.wait_for_url("**x0=*")
    shown = page.locator(".map circle[class^=s]").count()
    assert 0 < shown < 40
    assert page.locator("tbody tr").count() == min(shown, 20)
    page.locator("tbody tr").first.hover()
    assert page.locator(".map circle.marked").count() >= 1
    page.goto(f"{looked_at}/c/screen/overview")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/next")
