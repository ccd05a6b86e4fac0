"""Campaigns on plates: wells in the batch, results by well, controls that see the shift of their plate."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from aicau import Campaign
from aicau.campaign.model import read
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.gp.plates import Controls, without_plates

LEVEL = {"DMSO": 5.0, "blank": 0.0}


@pytest.fixture
def made(tmp_path):
    rng = np.random.default_rng(0)
    pool = pd.DataFrame({"id": [f"c{i}" for i in range(80)], "x": rng.random(80), "k": rng.integers(0, 5, 80)})
    wells = {"layout": 96, "controls": {"DMSO": 4, "blank": ["A01", "H12"]}, "edges": False}
    with Campaign.create(tmp_path / "c.db", pool, target="y", batch="plate", **wells) as campaign:
        yield campaign


def results(batch, plate, shift, by="id"):
    y = [LEVEL.get(id, 1.0 + at / 10) + shift for at, id in enumerate(batch["id"])]
    return pd.DataFrame({by: batch[by], "y": y, "plate": plate})


def test_a_batch_has_wells_and_its_controls(made):
    batch = made.ask(10)
    assert len(batch) == 16
    assert batch.well.is_unique
    assert batch["id"][10:].tolist() == ["DMSO"] * 4 + ["blank"] * 2
    assert set(batch.well[:10]) <= set(made.settings["layout"]["wells"])
    assert made.pending().well.tolist() == batch.well[:10].tolist()
    with pytest.raises(InputError, match="do not fit on a plate with 56 free wells"):
        made.ask(57)


def test_results_by_well_are_results_by_id(made):
    first = made.ask(8)
    told = made.tell(results(first, "P1", 0.0, by="well"))
    assert (told["completed"], told["new"], told["controls"], told["pending"]) == (8, 8, 6, 0)
    assert made.tell(results(first, "P1", 0.0, by="well"))["already"]  # the plate is known by its wells
    with made.store.reading() as session:
        assert sorted(r.value for r in session.measurements()) == pytest.approx([1 + at / 10 for at in range(8)])
    second, _ = made.ask(4), made.ask(4)
    with pytest.raises(InputError, match="2 batches with wells are pending"):
        made.tell(results(second, "P2", 0.0, by="well"))
    wrong = results(first, "P1", 0.0, by="well").assign(well="H01")
    with pytest.raises(InputError, match="row 2, column 'well': nothing was put into well 'H01'"):
        made.tell(wrong)
    assert all(check.ok for check in made.doctor())


def test_controls_alone_and_corrected(made):
    batch = made.ask(6)
    made.tell(results(batch[:6], "P1", 0.0))
    table = results(batch, "P1", 0.0).assign(well=batch.well)[6:]
    assert made.tell(table)["controls"] == 6
    table["y"] += 1
    made.tell(table)
    plates = made.plates()
    assert plates[plates.id == "DMSO"].measured.tolist() == [6.0] * 4
    assert len(plates) == 12
    assert all(check.ok for check in made.doctor())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (["DMSO", 1e300, "P1", "C04"], r"row 3, column 'y': 1e\+300 is too large; expected at most 1e\+60"),
        (["DMSO", np.nan, "P1", "C04"], "row 3, column 'y': .* got an empty cell; if the well failed, write failed"),
        (["dmso", 5.0, "P1", None], "row 3, column 'id': 'dmso' is not the id of a candidate; did you mean 'DMSO'"),
        (["DMSO", 5.0, "P1", "foo"], "row 3, column 'well': 'foo' is not a well; write a letter and a number"),
    ],
)
def test_a_control_that_cannot_be_meant(made, row, words):
    """A value of 1e300 was taken, and every later ask and predict failed."""
    table = pd.DataFrame([["c1", 1.0, "P1", None], row], columns=["id", "y", "plate", "well"])
    with pytest.raises(InputError, match=words):
        made.tell(table)
    assert made.measurements().empty


def test_the_plate_of_a_control_is_not_almost_another(made):
    made.tell(pd.DataFrame({"id": ["c1", "DMSO"], "y": 1.0, "plate": "P1"}))
    other = pd.DataFrame({"id": ["DMSO"], "y": 2.0, "plate": "p1"})
    with pytest.raises(InputError, match="the table, row 2: the batch 'p1' looks like 'P1'; write 'P1', or add --new"):
        made.tell(other)
    assert made.tell(other, new=["p1"])["controls"] == 1


def test_controls_see_the_shift_of_their_plate():
    # Two plates of other candidates each: without controls the level of a plate and of its candidates are one.
    x = torch.linspace(-1, 1, 20).double()[:, None]
    plate = (torch.arange(20) >= 10).long()
    y = 0.05 * torch.sin(40 * x[:, 0]) + 2.0 * plate
    rows = Observations(torch.arange(20)[None], y[None], torch.zeros(20, dtype=torch.long), plate[None])
    controls = Controls(torch.zeros(8).long(), torch.tensor([5.0, 7.0]).double().repeat(4), torch.arange(8) % 2)
    corrected, shared = without_plates(x, rows, controls)
    step = corrected[0, 10:].mean() - corrected[0, :10].mean()
    assert abs(float(step)) < 0.2
    assert float(shared[0]) > 0.3
    assert abs(float(step)) < abs(float(without_plates(x, rows)[0][0].diff().max()))


def test_controls_need_two_plates():
    class Row:
        candidate, value, label, sem, repeats, batch = 0, 1.0, None, None, 1, "P1"

    class Control:
        name, plate, value = "DMSO", "P1", 2.0

    assert read([Row], [Control]).controls is None


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"layout": 96}, "say which column holds them, such as --batch plate"),
        ({"controls": {"a": 1}, "batch": "plate"}, "controls and edges belong to a plate"),
    ],
)
def test_campaigns_that_cannot_be(tmp_path, own, words):
    pool = pd.DataFrame({"id": ["a", "b"], "x": [0.0, 1.0]})
    with pytest.raises(InputError, match=words):
        Campaign.create(tmp_path / "c.db", pool, target="y", **own)


def test_ids_that_are_numbers_stand_beside_the_names_of_controls(tmp_path):
    """As text: a file has columns of one type."""
    pool = pd.DataFrame({"id": range(12), "x": np.arange(12.0)})
    wells = {"layout": 96, "controls": {"DMSO": 2}, "strategy": "random"}
    with Campaign.create(tmp_path / "n.db", pool, target="y", batch="plate", **wells) as campaign:
        batch = campaign.ask(12)
        pa.Table.from_pandas(batch)
        assert set(batch["id"]) == {*map(str, range(12)), "DMSO"}
        assert campaign.tell(batch[["id", "well"]].assign(y=1.0, plate="P1"))["completed"] == 12


def test_an_id_beside_the_well_of_another_is_a_column_that_was_sorted_alone(made):
    batch = made.ask(4)
    table = results(batch, "P1", 0.0).assign(well=batch.well)
    mixed = table.assign(well=[*batch.well[1:4], batch.well[0], *batch.well[4:]])
    with pytest.raises(
        InputError, match=rf"row 2, column 'well': .* is in well {batch.well[1]}, and there .* mixed up"
    ):
        made.tell(mixed)
    assert made.status()["measurements"] == 0
    assert made.tell(table.assign(well=table.well.str.lower()))["completed"] == 4
    free = sorted(set(made.settings["layout"]["wells"]) - set(batch.well))[0]
    moved = pd.DataFrame({"id": [batch.id[0]], "y": 7.0, "plate": "P2", "well": [free]})
    assert made.tell(moved)["new"] == 1  # another well of a laboratory's own
