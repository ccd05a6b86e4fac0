"""Wells: where points and controls go."""

import numpy as np
import pytest

from aicau.campaign import layout
from aicau.core.errors import InputError


def places(wells):
    return np.array([layout.place(well) for well in wells], dtype=float)


def test_names_of_wells():
    assert [layout.place(text) for text in ("A1", " b07", "P24", "AF48")] == [(0, 0), (1, 6), (15, 23), (31, 47)]
    assert [layout.name(*layout.place(text)) for text in ("A1", "H012", "aa3")] == ["A01", "H12", "AA03"]
    for text in ("7B", "A0", "", "A123"):
        with pytest.raises(InputError, match="is not a well; write a letter and a number"):
            layout.place(text)


@pytest.mark.parametrize(("count", "far"), [(4, 2.24), (8, 1.5), (1, 5.9)])
def test_no_well_is_far_from_a_control(count, far):
    made = layout.make(96, {"DMSO": count}, edges=False)
    assert len(made["wells"]) == 60 - count
    apart = layout.distances(places(made["wells"]), places(made["controls"]["DMSO"])).min(1)
    assert apart.max() <= far
    assert not {"A", "H"} & {well[0] for well in made["wells"]}


def test_controls_stand_where_they_stood():
    made = layout.make(96, {"DMSO": 4}, edges=False)
    assert (made["controls"]["DMSO"], len(made["wells"])) == (["C04", "C09", "F04", "F09"], 56)


def test_controls_by_name_of_well_and_by_number():
    assert layout.make(96, {"blank": "B02"}) == layout.make(96, {"blank": ["B02"]})
    made = layout.make("384", {"blank": ["P24", "a1"], "DMSO": 16})
    assert made["controls"]["blank"] == ["A01", "P24"]
    wells = [*made["wells"], *made["controls"]["blank"], *made["controls"]["DMSO"]]
    assert len(wells) == len(set(wells)) == 384


@pytest.mark.parametrize(
    ("plate", "controls", "words"),
    [
        (100, {}, "96 or 384 wells; got 100"),
        (96, {"a": ["A1"], "b": ["A01"]}, "two controls name the same well"),
        (96, {"a": ["I01"]}, "well I01 of a control is not on this plate"),
        (96, {"a": 96}, "needs between 1 and 95 wells"),
        (96, {"a": float("nan")}, "needs between 1 and 95 wells; got nan"),
        (96, {"a": float("inf")}, "needs between 1 and 95 wells; got inf"),
    ],
)
def test_layouts_that_cannot_be(plate, controls, words):
    with pytest.raises(InputError, match=words):
        layout.make(plate, controls)


def test_a_file_of_allowed_wells(tmp_path):
    (tmp_path / "wells.csv").write_text("well\nA1\nA2\nC3\n")
    assert layout.make(tmp_path / "wells.csv")["wells"] == ["A01", "A02", "C03"]


@pytest.mark.parametrize("copies", [2, 3])
def test_replicates_balance_the_plate_and_never_touch(copies):
    made = layout.make(96, {"DMSO": 8}, edges=False)
    points = np.repeat(np.arange(52 // copies), copies).tolist()
    wells = layout.assign(made, points, [3, 1])
    assert len(set(wells)) == len(wells)
    assert set(wells) <= set(made["wells"])
    own = places(wells).reshape(-1, copies, 2)
    for group in own:
        apart = layout.distances(group, group) + 9 * np.eye(copies)
        assert apart.min() >= 1.5
    chance = np.random.default_rng(0).permutation(places(made["wells"]))[: len(points)].reshape(-1, copies, 2)
    assert own.mean(1).std(0).sum() < 0.5 * chance.mean(1).std(0).sum()


def test_the_seed_decides_and_a_full_plate_is_full():
    made = layout.make(96)
    one, same, other = (layout.assign(made, list(range(96)), [seed, 1]) for seed in (0, 0, 1))
    assert one == same != other
    assert layout.assign(made, [5, 5, 9], [0, 1]) == ["A03", "D06", "C03"]
    assert sorted(one) == made["wells"]
    with pytest.raises(InputError, match="97 points do not fit on a plate with 96 free wells"):
        layout.assign(made, list(range(97)), [0])
