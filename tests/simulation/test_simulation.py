import json
from functools import cache

import numpy as np
import pytest
import torch

from aicau import MLP, Quadratic, Strategy, problems, simulate
from aicau.core.errors import InputError
from aicau.ensembles.kernels import EmbeddingSettings, MLPSettings

QUICK = MLP(settings=MLPSettings(max_epochs=40))
STRATEGIES = [
    "random",
    "farthest",
    "lc:difference",
    "bald",
    "br:perfect:spread",
    "pemse:direct:eigen",
    Strategy.parse("pemse:quadratic:eigen:difference", bias=Quadratic(EmbeddingSettings(max_epochs=30))),
]


def small(problem, runs, strategies=STRATEGIES, seed=0):
    made = problems.make(problem, grid=10)
    return simulate(
        made, strategies, initial=6, batch_size=3, rounds=3, runs=runs, seed=seed, device="cpu", ensemble=QUICK
    )


@cache
def all_of(problem, runs):
    """Every strategy; computed once for the tests that only look at it."""
    return small(problem, runs)


@pytest.mark.parametrize("problem", ["type1", "type2", "type3"])
def test_a_run_is_the_same_bits_however_many_runs_are_computed_together(problem):
    few, many = all_of(problem, 2), all_of(problem, 3)
    assert np.array_equal(few.mse, many.mse[:, :2])
    assert np.array_equal(few.queried, many.queried[:, :2])


def test_a_strategy_is_the_same_bits_whoever_takes_part():
    alone = small("type3", 2, STRATEGIES[5:6])
    assert np.array_equal(alone.mse[0], all_of("type3", 2).mse[5])


def test_one_strategy_needs_no_list():
    assert small("type2", 1, "random").strategies == ("random",)


def test_same_seed_same_result_and_other_seed_another():
    a, b, c = all_of("type2", 2), small("type2", 2), small("type2", 2, seed=1)
    assert np.array_equal(a.mse, b.mse)
    assert not np.array_equal(a.mse, c.mse)


def test_strategies_share_initial_points_and_first_model():
    result = all_of("type2", 3)
    assert (result.queried[:, :, :6] == result.queried[:1, :, :6]).all()
    assert (result.mse[:, :, 0] == result.mse[:1, :, 0]).all()


def test_type_1_never_repeats_a_point():
    result = all_of("type1", 3)
    for row in result.queried.reshape(-1, result.queried.shape[-1]):
        assert len(set(row.tolist())) == 15


def test_result_as_frame_and_json():
    result = small("type2", 3, ["random", "lc"])
    frame = result.to_frame()
    assert len(frame) == 2 * 3 * 4
    row = frame.query("strategy == 'lc' and run == 2 and round == 3").iloc[0]
    assert row["mse"] == result.mse[1, 2, 3]
    assert row["points"] == 15
    assert row["queried"] == " ".join(map(str, result.queried[1, 2, 12:15]))
    data = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert set(data) == {"strategies", "paired", "seconds"}
    assert data["strategies"]["lc"]["mse"] == result.mse[1].tolist()
    assert set(data["strategies"]["lc"]["final_mse"]) == {"mean", "low", "high"}
    assert data["paired"]["lc"]["vs"] == "random"
    ratio = np.exp(np.mean(np.log(result.mse[1, :, -1] / result.mse[0, :, -1])))
    assert data["paired"]["lc"]["ratio"] == pytest.approx(ratio)


def test_one_run_has_no_interval():
    result = small("type2", 1, ["random", "lc"])
    assert result.to_json()["paired"]["lc"]["low"] is None


def test_plot_is_written(tmp_path):
    result = small("type2", 2, ["random", "lc"])
    result.plot(str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_progress_is_told():
    told = []
    simulate(
        "type1",
        ["random"],
        initial=3,
        batch_size=1,
        rounds=2,
        runs=1,
        ensemble=QUICK,
        progress=lambda *a: told.append(a),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"problem": "type9"}, "unknown problem"),
        ({"strategies": ["nothing"]}, "unknown acquisition"),
        ({"strategies": []}, "at least one strategy"),
        ({"strategies": ["lc", "lc"]}, "each once"),
        ({"initial": 0}, "initial must be a whole number"),
        ({"rounds": -1}, "rounds must be"),
        ({"runs": 0}, "runs must be"),
        ({"initial": 2501}, "room for"),
        ({"problem": "type1", "batch_size": 1000, "rounds": 3}, "room for"),
        ({"device": "tpu9"}, "unknown device"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        simulate(**{"problem": "type2", "strategies": ["random"], "runs": 1, **arguments})


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_cuda_without_a_device_is_refused():
    with pytest.raises(InputError, match="no CUDA device"):
        simulate("type2", ["random"], device="cuda")


def test_the_reference_path_gives_the_same_learning_curves():
    """CUDA is held to the reference path, whose curves agree with the fused CPU kernels' within the spread."""
    from aicau.ensembles import kernels

    names = ["random", "lc", "br:perfect:eigen"]
    problem = problems.make("type2", grid=15)
    settings = {"initial": 20, "batch_size": 5, "rounds": 3, "runs": 6, "device": "cpu"}
    settings["ensemble"] = MLP(settings=MLPSettings(max_epochs=150))
    fused = simulate(problem, names, **settings)
    with kernels.use("reference"):
        plain = simulate(problem, names, **settings)
    assert not np.array_equal(fused.mse, plain.mse)
    np.testing.assert_allclose(fused.mse[:, :, 0], plain.mse[:, :, 0], rtol=0.2)  # the same data: only rounding differs
    ratio = np.log(fused.mse).mean((1, 2)) - np.log(plain.mse).mean((1, 2))
    spread = np.log(fused.mse).mean(2).std(1, ddof=1) / np.sqrt(6)
    assert (np.abs(ratio) < 3 * spread).all()
