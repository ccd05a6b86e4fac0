"""A campaign with results, pages in this process, and servers."""

import shutil

import pytest

from aicau import Campaign
from serving import HOSTILE, Server, pool, results


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with one campaign after two rounds, its models kept."""
    folder = tmp_path_factory.mktemp("campaigns")
    frame = pool()
    with Campaign.create(
        folder / "screen.db", frame, target=f"viability {HOSTILE}", batch="plate", id="compound", author=HOSTILE
    ) as campaign:
        for number in (1, 2):
            batch = campaign.ask(6)
            told = results(batch["compound"], f"P{number} {HOSTILE}", frame)
            campaign.tell(told.rename(columns={"viability": f"viability {HOSTILE}"}))
        campaign.ask(5)
        campaign.outlook()
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it."""
    shutil.copytree(made, tmp_path / "lab")
    return tmp_path / "lab"


@pytest.fixture
def here(monkeypatch):
    """Jobs run in a thread of this process; gives the verbs that do, all of them where it is empty."""
    from aicau.web.desk import Desk
    from aicau.web.worker import Worker

    desk, verbs = Desk(lambda words: None), []

    def do(self, job):
        if verbs and job.verb not in verbs:
            return False, "not in this test"
        try:
            return True, getattr(desk, job.verb)(**job.arguments)
        except Exception as error:
            return False, str(error)

    monkeypatch.setattr(Worker, "_do", do)
    return verbs


@pytest.fixture
def server():
    """A function that starts one."""
    running = []

    def start(*words, port=0):
        running.append(Server(*words, port=port))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.stop()
