"""What a campaign predicts for values: nearer to the truth than its networks, intervals that hold, chunk by chunk."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from aicau import Campaign
from aicau.campaign.model import Model
from aicau.cli.app import app
from aicau.prediction.regression import COLUMNS
from aicau.tables import candidates

ROOT = Path(__file__).parents[2]
NOISE, SHIFT = 0.15, 0.3


def pool(n=300):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"id": [f"c{i}" for i in range(n)], "a": rng.random(n), "b": rng.random(n)})


def truth(rows):
    return (np.sin(5 * rows.a) + np.cos(4 * rows.b) * rows.a).to_numpy()


def measure(rng, plate, name):
    """Two wells of each candidate; everything on a plate is shifted together."""
    rows = pd.concat([plate, plate], ignore_index=True)
    y = truth(rows) + SHIFT * rng.normal() + NOISE * rng.normal(size=len(rows))
    return pd.DataFrame({"id": rows["id"], "y": y, "plate": name})


def simulate(path, seed, strategy="default", rounds=4, most=12):
    rng = np.random.default_rng(seed)
    campaign = Campaign.create(path, pool(), target="y", batch="plate", strategy=strategy, seed=seed)
    for number in range(rounds):
        campaign.tell(measure(rng, campaign.ask(most), f"p{number}"))
    return campaign


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Predictions of three campaigns: by `default`, by `spread` (whose networks have more to correct), and by the
    strategy of large pools."""
    folder = tmp_path_factory.mktemp("several")
    said = []
    for seed, strategy in enumerate(["default", "br:posterior:spread", "pemse:direct:spread"]):
        with simulate(folder / f"{seed}.db", seed, strategy) as campaign:
            said.append(campaign.predict())
    return said


def test_they_are_closer_to_the_truth_than_the_ensemble(several):
    ratios = []
    for said in several:
        # What all plates share cannot be told from the truth: compared up to one constant.
        error, other = (np.var(said[name] - truth(pool())) for name in ("mean", "ensemble"))
        ratios.append(error / other)
        assert error < other
    assert np.exp(np.log(ratios).mean()) < 0.85, ratios


def test_intervals_hold_what_they_say(several):
    rng = np.random.default_rng(9)
    shares, known = [], []
    for said in several:
        right = truth(pool())
        new = right + SHIFT * rng.normal(size=(200, 1)) + NOISE * rng.normal(size=(200, len(said)))
        shares.append(np.mean((said.new_low.to_numpy() <= new) & (new <= said.new_high.to_numpy())))
        known.append(np.mean((said.low <= right) & (right <= said.high)))
    assert 0.8 < np.mean(shares) < 0.98, shares
    assert np.mean(known) > 0.8, known


def test_chunks_of_the_pool_give_the_same_numbers_and_no_chunk_sees_more(tmp_path, monkeypatch):
    with simulate(tmp_path / "whole.db", 0, rounds=2) as campaign:
        whole = campaign.predict()
    monkeypatch.setattr(candidates, "CHUNK", 70)
    sizes, predict = [], Model.predict

    def watched(model, index=None):
        sizes.append(len(model.state.x) if index is None else len(index))
        return predict(model, index)

    monkeypatch.setattr(Model, "predict", watched)
    with simulate(tmp_path / "parts.db", 0, rounds=2) as campaign:
        campaign.models.current()  # fits
        sizes.clear()
        parts = campaign.predict()
        assert sizes == [70, 70, 70, 70, 20]
        campaign.ask(5)
        assert sizes[5:] == [5]  # a batch is explained without a look at the whole pool
    assert parts["id"].tolist() == whole["id"].tolist()
    for name in COLUMNS:
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-6, atol=1e-9, err_msg=name)


# Powers of two round nothing, so what is fitted is the same; otherwise the ends of searches differ a little.
UNITS = [(2.0**-66, 0, 2.0**-100, 0), (1e20, 0, 1e30, 0.005), (1e-20, 1e-18, 1, 0.005)]


def in_units(folder, factor, add, size, report=True):
    """Batches, values, squares and the ensemble's mean of a campaign in other units, in plain ones."""
    table = pool(60)
    table[["a", "b"]] *= size
    with Campaign.create(folder / "c.db", table, target="y", batch="plate") as campaign:
        rng, asked = np.random.default_rng(0), []
        for plate in range(2):
            rows = measure(rng, pool(60).set_index("id").loc[campaign.ask(8)["id"]].reset_index(), f"p{plate}")
            campaign.tell(rows.assign(y=rows.y * factor + add))
            asked += rows["id"].tolist()
        asked += campaign.ask(5)["id"].tolist()
        said = campaign.predict()
        if report:
            campaign.report(folder / "r.html")
    lines = (said[["mean", "low", "high", "new_low", "new_high"]] - add) / factor
    return asked, lines, said[["epistemic", "bias", "aleatoric"]] / factor**2, (said["ensemble"] - add) / factor


@pytest.fixture(scope="module")
def in_plain_units(tmp_path_factory):
    return in_units(tmp_path_factory.mktemp("plain"), 1, 0, 1, report=False)


@pytest.mark.parametrize(("scale", "offset", "unit", "off"), UNITS)
def test_units_of_target_and_features_do_not_matter(in_plain_units, tmp_path, scale, offset, unit, off):
    """Energies in joules: the same batches and networks; predictions differ by less than `off` standard deviations."""
    found = in_plain_units, in_units(tmp_path, scale, offset, unit)
    (asked, lines, squares, ensemble), (others, other_lines, other_squares, other_ensemble) = found
    assert asked == others
    np.testing.assert_allclose(ensemble, other_ensemble, rtol=1e-6, atol=1e-9)
    spread = np.std(truth(pool(60)))
    np.testing.assert_allclose(lines, other_lines, rtol=1e-6, atol=off * spread + 1e-9)
    np.testing.assert_allclose(squares["epistemic"], other_squares["epistemic"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(squares, other_squares, rtol=6 * off + 1e-6, atol=0.02 * off * spread**2 + 1e-9)


@pytest.mark.parametrize("value", [1e60, 1e-40, -1e30])
def test_values_at_the_bounds_break_nothing(tmp_path, value):
    with Campaign.create(tmp_path / "c.db", pool(30), target="y") as campaign:
        y = np.r_[truth(pool(30))[:10], value, 0.0]
        campaign.tell(pd.DataFrame({"id": pool(30)["id"][:12], "y": y, "sem": np.abs(value), "count": 1_000_000}))
        assert len(campaign.ask(3)) == 3
        assert np.isfinite(campaign.predict()[list(COLUMNS)]).all().all()
        campaign.report(tmp_path / "r.html")


def test_the_columns_are_those_of_the_page(several):
    page = (ROOT / "docs" / "campaign.md").read_text()
    section = page[page.index("## What is predicted") : page.index("## Labels and counts")]
    named = [
        name for row in re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]
    assert named == list(COLUMNS)
    assert several[0].columns.tolist() == ["id", *named]


def test_after_few_measurements_the_bias_is_taken_out_as_far_as_it_is_known(tmp_path):
    """One point is enough to predict; what nobody knows stands in the intervals."""
    path, out = str(tmp_path / "few.db"), str(tmp_path / "said.csv")
    with Campaign.create(path, pool(30), target="y") as campaign:
        for few in (slice(0, 1), slice(1, 4)):
            rows = pool(30).iloc[few]
            campaign.tell(pd.DataFrame({"id": rows["id"], "y": truth(rows)}))
            said = campaign.predict()
            assert np.isfinite(said[list(COLUMNS)]).all().all()
            assert ((said.new_low <= said.low) & (said.low <= said["mean"]) & (said["mean"] <= said.high)).all()
        assert not np.array_equal(said["mean"], said["ensemble"])
        assert campaign.ask(1).reason[0].count("is taken out)") == 1
        assert "</html>" in campaign.report(tmp_path / "few.html").read_text()
    shell = CliRunner()
    both = shell.invoke(app, ["predict", path, "--json"])
    assert set(json.loads(both.stdout)[0]) == {"id", *COLUMNS}
    said = json.loads(shell.invoke(app, ["predict", path, "--out", out, "--force", "--json"]).stdout)
    assert said == {"path": out, "candidates": 30}
