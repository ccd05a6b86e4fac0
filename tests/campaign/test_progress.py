"""The error over all candidates: what it is made of, and that it is said in words that fit."""

import math

import numpy as np
import pandas as pd
import pytest

from aicau import Campaign
from aicau.campaign import progress

NOTHING = pd.DataFrame(columns=["basis", "loss", "unknown", "noise"], dtype=float)
FIGURES = {"unknown": 0.05, "common": 0.01, "noise": 0.04, "spread": 1.05, "freedom": 0, "shared": 0.03}


def held(loss, unknown, noise, basis=1):
    return pd.DataFrame({"basis": basis, "loss": loss, "unknown": unknown, "noise": noise})


def test_without_held_out_batches_the_models_word_counts():
    found = progress.over_pool(FIGURES, NOTHING, root=True)
    square = 0.05 + 0.5 * 0.04  # half of what looks like noise may be error: nothing was measured twice
    assert found["error"] == pytest.approx(square**0.5)
    assert found["noise"] == pytest.approx(0.02**0.5)
    assert found["mean_only"] == pytest.approx((1.0 + square) ** 0.5)
    assert found["r2"] == pytest.approx(1 - square / (1 + square))
    half = math.exp(1.645 * math.hypot(0.5, 0.6) / 2)
    assert found["high"] ** 2 == pytest.approx((square - 0.01) * half**2 + 3.84 * 0.01)
    assert found["low"] ** 2 == pytest.approx((square - 0.01) / half**2 + 0.004 * 0.01)
    known = progress.over_pool(FIGURES | {"freedom": 10_000}, NOTHING, root=True)
    assert known["error"] == pytest.approx(0.05**0.5, rel=1e-3)  # replicates tell noise from error


def test_errors_larger_than_stated_raise_it_and_recent_ones_count_more():
    worse = held([0.4] * 40, [0.1] * 40, [0.0] * 40)
    assert progress.factor(worse.loss, worse.unknown, worse.noise)[0] == pytest.approx(3.1, abs=0.6)
    assert progress.factor(worse.loss, worse.unknown, worse.noise)[1] < progress.PRIOR
    assert progress.factor([4.0] * 200, [1.0] * 200, [0.0] * 200) == pytest.approx((3.66, 0.13), abs=0.005)
    assert progress.factor([], [], []) == (1.0, progress.PRIOR)
    both = pd.concat([worse, held([0.1] * 40, [0.1] * 40, [0.0] * 40, basis=2)])
    older = progress.over_pool(FIGURES, both, root=True)["factor"]
    newer = progress.over_pool(FIGURES, both.assign(basis=3 - both.basis), root=True)["factor"]
    assert 1 < older < newer < 4
    assert progress.over_pool(FIGURES, worse, True)["error"] > 1.4 * progress.over_pool(FIGURES, NOTHING, True)["error"]


def test_the_shift_of_a_plate_is_no_error():
    part = pd.DataFrame({"batch": ["a", "a", "a", "b"], "error": [2.1, 1.9, 2.0, 0.5], "noise": 0.01})
    found = progress.centred(part, shared=4.0)
    assert found.loss.tolist() == pytest.approx([0.015, 0.015, 0.0, 0.25])  # times 3/2: the mean was estimated
    assert found.noise.tolist() == pytest.approx([0.01, 0.01, 0.01, 4.01])
    assert found.moved.tolist() == pytest.approx([2.0, 2.0, 2.0, 0.0])
    alone = progress.over_pool(FIGURES, NOTHING, root=True, plates=1)
    assert alone["common"] == FIGURES["noise"]  # of one plate nobody knows the shift


def test_gain_falls_with_every_batch_and_plates_help():
    assert progress.gain([10, 20], [1.0, 0.5], 0.0, 0.0) == pytest.approx(0.14, abs=0.005)
    assert progress.gain([10, 20], [1.0, 1.0], 0, 0) > progress.gain([10, 20, 90, 100], [1.0] * 4, 0, 0) > 0
    assert progress.gain([100, 101], [1e-9, 1e-9], 0.1, 0.1) == pytest.approx(1 - 0.5**0.5, rel=0.01)


def row(**own):
    base = {
        "error": 0.3,
        "low": 0.2,
        "high": 0.4,
        "mean_only": 1.0,
        "noise": 0.1,
        "r2": 0.9,
        "gain": 0.2,
        "points": 20,
        "held_r2": 0.5,
    }
    return pd.DataFrame([base | {"common": 0.0} | own])


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({}, "Go on: the expected error of y over all candidates is 0.3 (0.2 to 0.4)"),
        ({"gain": 0.01}, "Stop: the expected error of y over all candidates is 0.3"),
        ({"r2": 0.02}, "The model has learned nothing yet"),
        ({"held_r2": 0.02}, "predicted no better than by the mean of their batch"),
        ({"noise": 3.0}, "You can stop:"),
        ({"points": 2}, "too little is measured"),
        ({"common": 0.08}, "more plates make it known"),
    ],
)
def test_advice(own, words):
    assert words in progress.advice(row(**own), "y")


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    rng = np.random.default_rng(1)
    pool = pd.DataFrame({"id": [f"c{i}" for i in range(60)], "x": rng.random(60), "z": rng.random(60)})
    truth = dict(zip(pool["id"], (2 * pool.x - pool.z).tolist(), strict=True))
    how = {"target": "y", "batch": "day", "strategy": "br:posterior:spread"}  # no repeats
    with Campaign.create(tmp_path_factory.mktemp("p") / "c.db", pool, **how) as made:
        for number, shift in enumerate((0.0, 0.6, -0.4)):
            batch = made.ask(8)
            y = [truth[id] + shift + 0.02 * rng.normal() for id in batch["id"]]
            made.tell(pd.DataFrame({"id": batch["id"], "y": y, "day": f"d{number}"}))
        yield made, truth


def test_a_campaign_says_how_good_it_is(campaign):
    made, truth = campaign
    table = made.progress()
    assert table["round"].tolist() == [2, 3, 4]
    assert table.measurements.tolist() == [8, 16, 24]
    assert (table.low < table.error).all()
    assert (table.error < table.high).all()
    assert table.held_out.isna().tolist() == [False, False, True]
    assert table.held_out[0] > 3 * table.held_out_centred[0]  # the second day is shifted by 0.6
    said = made.predict().set_index("id")["mean"]
    true = np.sqrt(np.mean((said - pd.Series(truth)) ** 2))
    assert table.low.iloc[-1] < true < table.high.iloc[-1]
    assert made.status()["progress"] == pytest.approx(
        {name: table[name].iloc[-1] for name in progress.COLUMNS} | {"advice": made.advice()}
    )


def test_what_was_stated_at_the_ask_is_compared(campaign):
    made, _ = campaign
    held = made.outlook().held
    assert held["round"].tolist() == [2] * 8 + [3] * 8
    assert set(held.batch) == {"d1", "d2"}
    with made.store.reading() as session:
        rows = {r.candidate: r.value for r in session.measurements()}
    assert held.measured.tolist() == [rows[c] for c in held.candidate]
    assert np.allclose(held.error, held.measured - held.predicted)


def test_figures_in_python(campaign):
    made, _ = campaign
    for draw in (made.plot_learning_curve, made.plot_parity, made.plot_map, made.plot_batches):
        assert draw().axes[0].has_data()
    with pytest.raises(Exception, match="nothing to draw yet; tell more results"):
        made.plot_noise()
