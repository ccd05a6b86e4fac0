"""The campaigns that a server shows, and what was computed of each. Requests name keys, never paths."""

import re
import secrets
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

from fastapi import HTTPException

from aicau.campaign.campaign import Campaign
from aicau.core.errors import AicauError, InputError
from aicau.web.candidates import Candidates
from aicau.web.worker import FAILED, Job, Worker

MOST_UPLOADS = 30  # that wait for a confirmation


@dataclass
class Upload:
    """An uploaded file."""

    path: Path
    name: str  # given by the user
    campaign: str  # its key; empty for a table of candidates
    said: str = ""  # what was stored, in words
    form: dict[str, Any] = field(default_factory=dict)  # of a new campaign, as it was filled in last
    problem: str = ""  # of the form


@dataclass
class View:
    """A result that was computed of one campaign, and the job that renews it."""

    result: dict[str, Any] | None = None
    job: Job | None = None
    failed: tuple[Any, str] = (None, "")  # the version that failed, and why
    taken: int = 0  # results so far
    version: Any = None  # of the campaign when the result was last wanted


class Entry:
    """One campaign, and what was computed of it in the background: its report, and the table of its candidates."""

    def __init__(self, key: str, address: str, worker: Worker, scratch: Path) -> None:
        self.key, self.address, self.worker, self.scratch = key, address, worker, scratch
        self.lock = threading.RLock()
        self.views = {"look": View(), "table": View()}
        self.table: Candidates | None = None
        self.known: dict[str, tuple[Any, Any]] = {}  # what was read, with the version of the campaign
        self._open: Campaign | None = None

    @property
    def campaign(self) -> Campaign:
        with self.lock:
            self._open = self._open or Campaign.open(self.address)
            return self._open

    def version(self) -> tuple[int, int]:
        """Grows with every change, and with every model that was fitted here."""
        return self.campaign.version(), self.worker.changes[self.key]

    def read(self, verb: str) -> Any:
        """The result of a verb that only reads, such as `status`; kept until something changes."""
        version = self.version()
        if self.known.get(verb, (None,))[0] != version:
            self.known[verb] = (version, getattr(self.campaign, verb)())
        return self.known[verb][1]

    def look(self) -> View:
        """The contents and figures of the report; missing or old ones are computed in the background."""
        return self._renewed("look", self.version())

    def candidates(self) -> tuple[Candidates | None, View]:
        """All candidates with predictions; None until they are computed."""
        look, view = self.look().result, self.views["table"]
        with self.lock:
            if look is not None:
                path = str(self.scratch / f"{secrets.token_hex(8)}.arrow")
                self._renewed("table", (look["model"], look["n"]), path=path)
            old = self.table
            if view.result is not None and (old is None or old.path != view.result["path"]):
                self.table = Candidates(view.result)
                if old is not None:
                    Path(old.path).unlink(missing_ok=True)
            return self.table, view

    def stamp(self, needs: Sequence[str], job: str) -> Any:
        """What a page depends on, given the views and the job it shows; starts the jobs that are missing."""
        self.candidates()
        asked, version = self.worker.jobs.get(job), self.views["look"].version
        return version if needs else version[0], [self.views[kind].taken for kind in needs], asked and asked.state

    def work(self) -> dict[str, Any]:
        """The work under way, as of the last `stamp` or `look`: nothing is read or started."""
        look, change = self.views["look"], self.worker.of(self.key)
        jobs = [job for job in (change, look.job, self.views["table"].job) if job is not None]
        return {
            "busy": bool(jobs),  # one that ended just now counts once more
            "step": next((job.step or "finishing" for job in jobs), ""),
            "stale": bool((look.result or {}).get("stale")) and change is None,
            "error": look.failed[1] if look.job is None and look.failed[0] is not None else "",
        }

    def _renewed(self, kind: str, version: Any, **arguments: Any) -> View:
        """A view: takes the result of a finished job, and starts a job if that is not of this version. A failed job is
        not repeated before something changes."""
        with self.lock:
            view = self.views[kind]
            if view.job is not None and view.job.over:
                done, view.job = view.job, None
                view.taken += 1
                if done.state == FAILED:
                    view.failed = (version, done.error)
                elif done.result.get("stale") and view.result is not None:  # the old result stays, marked as stale
                    view.result = view.result | {"for": done.result["for"], "stale": True}
                else:
                    view.result = done.result
            view.version = version
            if view.job is None and version not in (view.failed[0], (view.result or {}).get("for")):
                view.job = self.worker.submit(kind, self.key, True, address=self.address, version=version, **arguments)
        return view


class Library:
    """The campaigns of a server by key, and uploads."""

    def __init__(self, places: Sequence[str]) -> None:
        self.entries: dict[str, Entry] = {}
        self.folders = [Path(place).resolve() for place in places if "://" not in place and Path(place).is_dir()]
        self.worker = Worker()
        self.scratch = Path(tempfile.mkdtemp(prefix="aicau-"))
        self.uploads: OrderedDict[str, Upload] = OrderedDict()
        self.lock = threading.RLock()
        for place in places:
            if "://" in place or not Path(place).is_dir():
                entry = self._add(place if "://" in place else str(Path(place).resolve()))
                entry.version()  # opens it: a wrong name is refused now
        self.listed = bool(self.folders)  # whether all campaigns of a folder are shown
        if not self.folders:
            self.folders = [Path(one.address).parent for one in self.entries.values() if "://" not in one.address][:1]

    def close(self) -> None:
        self.worker.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    # Campaigns

    def all(self) -> list[Entry]:
        """All campaigns, also those whose files were put into a shown folder meanwhile."""
        with self.lock:
            for file in (file for folder in self.folders if self.listed for file in sorted(folder.glob("*.db"))):
                self._add(str(file))
            return [one for one in self.entries.values() if "://" in one.address or Path(one.address).is_file()]

    def _add(self, address: str) -> Entry:
        """The campaign at an address, with a key of its own."""
        if known := next((one for one in self.entries.values() if one.address == address), None):
            return known
        name = Path(address).stem if "://" not in address else address.rpartition("/")[2]
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", name)
        keys = chain([stem.strip("-") or "campaign"], (f"{stem}-{number}" for number in count(2)))
        key = next(key for key in keys if key not in self.entries)
        self.entries[key] = Entry(key, address, self.worker, self.scratch)
        return self.entries[key]

    def at(self, key: str) -> Entry:
        if key not in self.entries and key not in (one.key for one in self.all()):
            raise HTTPException(404, "There is no such campaign here.")
        return self.entries[key]

    def new(self, name: str) -> Entry:
        """The place of a new campaign, in the first folder."""
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}", name):
            raise InputError("a campaign's name has up to 60 letters, digits, - and _; choose another name")
        if not self.folders:
            raise InputError("this server shows no folder, so there is no place for a new campaign; start it with one")
        file = self.folders[0] / f"{name}.db"
        if file.exists():
            raise InputError(f"there is a campaign {name!r} already; choose another name")
        with self.lock:
            return self._add(str(file))

    # Uploads

    def keep(self, name: str | None, data: bytes, campaign: str = "") -> str:
        """Keep an upload until it is confirmed; the oldest ones are dropped. Returns its number."""
        if not data:
            raise InputError("no file came; choose a CSV, Excel or Parquet file")
        own = re.split(r"[/\\]", name or "")[-1]
        safe = re.sub(r"[^\w. -]+", "_", own)[-60:].strip(". ") or "table.csv"
        number = secrets.token_hex(12)
        folder = self.scratch / number
        folder.mkdir()
        (folder / safe).write_bytes(data)
        with self.lock:
            self.uploads[number] = Upload(folder / safe, safe, campaign)
            while len(self.uploads) > MOST_UPLOADS:
                _, old = self.uploads.popitem(last=False)
                shutil.rmtree(old.path.parent, ignore_errors=True)
        return number

    def upload(self, number: str, campaign: str = "") -> Upload:
        found = self.uploads.get(number)
        if found is None or found.campaign != campaign:
            raise HTTPException(404, "This file is not here any more; drop it again.")
        return found


def sentence(error: AicauError) -> str:
    """The message with a capital letter and a full stop."""
    words = str(error)
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "?", "!")) else ".")
