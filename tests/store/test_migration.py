"""Campaigns written by the version before the one round: they open, predict, ask, tell, report and export as ever.

The files in tests/data/campaigns were made by that version (tables of version 3): 40 candidates, three rounds of six
wells told twice on plates P0 to P2, a correction, three points pending; for values also a failed well on every plate.
Strategies are the default of then (with a rehearsal), `slope` and `difference`.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aicau import Campaign
from aicau.campaign.model import FORMAT
from aicau.campaign.setup import strategy_of
from aicau.store.schema import version
from commands import fingerprint

FILES = sorted((Path(__file__).parents[1] / "data" / "campaigns").glob("*.db"))
PARTS = ["epistemic", "bias", "aleatoric"]
NOW = {
    "regression": "default",
    "classification": "default",
    "count": "default",
    "slope": "pemse:direct:spread:difference",
    "difference": "pemse:quadratic:eigen:difference",
}


def test_every_kind_is_there_and_small():
    assert {file.stem for file in FILES} == set(NOW)
    assert all(file.stat().st_size < 400_000 for file in FILES)


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def old(request, tmp_path):
    """A copy, opened."""
    shutil.copy(request.param, tmp_path / request.param.name)
    with Campaign.open(tmp_path / request.param.name, author="bob") as campaign:
        yield campaign


def level(rows):
    """What was measured, without noise; counts and labels follow from it."""
    return (2 * np.sin(4 * rows.dose) + 0.3 * rows.ph).to_numpy()


def test_an_old_campaign_goes_on(old, tmp_path):
    kind = Path(old.store.where).stem
    status = old.status()
    assert (status["candidates"], status["rounds"], status["tells"], status["pending"]) == (40, 4, 4, 3)
    assert (status["superseded"], status["batches"]) == (1, 3)
    assert status["failed_wells"] == (3 if status["task"] == "regression" else 0)
    assert status["classes"] == (["hit", "miss"] if kind == "classification" else [])
    assert strategy_of(old.settings).name == NOW[kind]
    with old.store.reading() as session:
        assert session.meta()["version"] == str(version())
    assert all(check.ok for check in old.doctor()), old.doctor()

    with old.store.reading() as session:
        before = [tuple(row) for row in session.measurements(current=False)]
    pool = pd.read_csv(next(f for f in old.export(tmp_path / "out") if f.name == "candidates.csv"))
    said = old.predict()
    assert np.isfinite(said[PARTS]).all().all()
    assert (said[PARTS] >= 0).all().all()
    if kind == "classification":
        assert (said.predicted == np.where(level(pool) > 3, "hit", "miss")).mean() > 0.75
    else:
        truth = np.exp(level(pool) / 2) if kind == "count" else level(pool)
        assert np.isfinite(said["mean"]).all()
        assert np.corrcoef(said["mean"], truth)[0, 1] > 0.8
        assert (said.new_low <= said["mean"]).all()
        assert (said["mean"] <= said.new_high).all()

    waiting = old.pending()
    assert waiting.reason.str.len().min() > 10  # as that version stated it
    batch = old.ask(4)
    assert not set(batch["compound"]) & set(waiting["compound"])
    assert batch.reason.str.contains(f"{NOW[kind]}: ", regex=False).all()
    told = pd.concat([waiting, batch]).drop_duplicates("compound")
    outcome = {"classification": np.where(level(told) > 3, "hit", "miss"), "count": np.exp(level(told) / 2).round()}
    result = outcome.get(kind, level(told))
    answer = old.tell(pd.DataFrame({"compound": told["compound"], "outcome": result, "plate": "P9", "replicate": 1}))
    assert answer["completed"] == len(told)
    assert len(old.ask(2)) == 2
    with old.store.reading() as session:
        assert [tuple(row) for row in session.measurements(current=False)][: len(before)] == before

    page = old.report(tmp_path / "report.html").read_text()
    assert "How good are the predictions?" in page
    assert page.count("<svg") == 7
    files = old.export(tmp_path / "out")
    kept = [json.loads(file.read_text()) for file in files if file.parent.name == "models" and file.suffix == ".json"]
    assert [model["format"] for model in kept] == [FORMAT] * len(kept)
    assert len(kept) >= 2
    assert old.compact()["dropped"] >= 1
    assert all(check.ok for check in old.doctor())


def test_what_was_told_to_the_old_version_is_known(old):
    assert len(old.last_batch()[0]) == 3
    with old.store.reading() as session:
        rows = [row for row in session.measurements() if row.tell == 1]
    names = pd.Series([f"c{i}" for i in range(40)])
    table = pd.DataFrame(
        {
            "compound": [names[row.candidate] for row in rows],
            "outcome": [row.value if row.label is None else row.label for row in rows],
            "plate": "P0",
            "replicate": [row.replicate for row in rows],
            "status": [row.status for row in rows],
        }
    )
    before = fingerprint(old.store)
    assert old.tell(table)["already"]
    assert fingerprint(old.store) == before
