"""Where work is computed makes no difference to what comes out."""

import os
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from aicau import Campaign, Engine, problems, simulate
from aicau.core.engine import LOCAL, RAY
from aicau.core.errors import InputError
from aicau.ensembles import MLP
from aicau.ensembles.kernels import MLPSettings
from aicau.paper.plan import Plan, run
from aicau.strategy import Strategy

QUICK = MLP(settings=MLPSettings(max_epochs=5))


def root(part):
    if part < 0:
        raise InputError(f"{part} has no root")
    return float(np.sqrt(part))


def dies_once(mark, part):
    """Kills its own process in the middle of a part, the first time."""
    if part == 1 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part**2


def slow(folder, part):
    """Says where it runs, and takes long enough for a machine to be lost meanwhile."""
    import ray

    (Path(folder) / f"{part}-{ray.get_runtime_context().get_node_id()}").touch()
    time.sleep(1.0)
    return part**2


def cheap(word, preset):
    """A rule that costs nothing in the place of one of the paper's."""
    return Strategy.parse("lc:top" if "top" in word else "random")


@pytest.fixture(scope="module")
def cluster():
    """Two machines of one core each, both on this one."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'aicau[ray]'")
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")  # where workers find this module, and aicau where it is not installed
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    ray.init(made.address, logging_level="ERROR", log_to_driver=False)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()
    os.environ.pop("PYTHONPATH")
    if before is not None:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(params=["jobs", "ray"])
def engine(request):
    """Everything that is not this process."""
    if request.param == "jobs":
        return Engine(jobs=2)
    request.getfixturevalue("cluster")
    return Engine(RAY)


def test_a_name_an_address_and_jobs_that_mean_nothing_are_refused():
    with pytest.raises(InputError, match="did you mean 'ray'"):
        Engine("rai")
    with pytest.raises(InputError, match="add --engine ray"):
        Engine(LOCAL, address="auto")
    with pytest.raises(InputError, match="jobs"):
        Engine(jobs=0)


def test_without_ray_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'aicau\[ray\]'"):
        list(Engine(RAY).over(root, [1]))


def test_an_address_where_nobody_answers_is_said_at_once():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'aicau[ray]'")
    with socket.socket() as taken:  # bound, so nobody else's, and not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InputError, match=f"no Ray cluster answers at {address}"):
            list(Engine(RAY, address=address).over(root, [1]))


def test_slices_cover_everything_once():
    assert Engine().slices(7) == [(0, 7)]
    assert Engine(jobs=2).slices(7) == [(0, 2), (2, 4), (4, 6), (6, 7)]
    assert Engine(jobs=8).slices(3) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.slow
def test_results_come_in_order_and_errors_as_they_were_raised(engine):
    parts = list(range(20))
    assert list(engine.over(root, iter(parts))) == [root(part) for part in parts]
    with pytest.raises(InputError, match=r"^-3 has no root$"):
        list(engine.over(root, [4, -3, 9]))


@pytest.mark.slow
def test_runs_are_the_same_bits_on_every_engine(engine):
    settings = (problems.make("type2", grid=8), ["random", "pemse:direct:eigen", "default"], 6, 3, 2, 5)
    same = {"device": "cpu", "ensemble": QUICK}
    seen = []
    here = simulate(*settings, **same)
    there = simulate(*settings, **same, progress=lambda *a: seen.append(a), engine=engine)
    assert there.mse.tobytes() == here.mse.tobytes()
    assert (there.queried == here.queried).all()
    assert seen[-1] == (3, 3)


@pytest.mark.slow
def test_the_papers_figures_are_the_same_on_every_engine(engine, tmp_path):
    plan = Plan(("batching",), 3, types=("type2",), initials=(10,), presets=("full-batch",))
    quick = {"device": "cpu", "ensemble": QUICK, "make": cheap}
    here = run(plan, state=tmp_path, **quick)
    there = run(plan, engine=engine, **quick)
    pd.testing.assert_frame_equal(there.frame, here.frame, check_exact=True)
    with pytest.raises(InputError, match="can be resumed"):
        run(plan, resume=True, engine=engine, **quick)


@pytest.mark.slow
def test_predictions_and_batches_are_the_same_on_every_engine(engine, tmp_path, monkeypatch):
    monkeypatch.setattr("aicau.tables.candidates.CHUNK", 60)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((400, 3)), columns=list("abc")).assign(id=[f"c{i}" for i in range(400)])
    with Campaign.create(tmp_path / "s.db", frame, target="y", batch="plate") as campaign:
        ids = campaign.ask(12)["id"]
        campaign.tell(pd.DataFrame({"id": ids, "y": rng.random(12), "plate": "P1"}))
        here, there = campaign.predict(), campaign.predict(engine=engine)
        pd.testing.assert_frame_equal(there, here, check_exact=True)
        small = {"batching.shortlist.SAMPLED": 100, "batching.shortlist.LISTED": 80, "core.runs.PORTION": 50}
        for name, value in (small | {"batching.shortlist.SHARD": 2}).items():  # the pass over a large pool, in small
            monkeypatch.setattr(f"aicau.{name}", value)
        here, there = (campaign.ask(5, preview=True, engine=one) for one in (Engine(), engine))
        pd.testing.assert_frame_equal(there, here, check_exact=True)


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_nothing_changes(cluster, tmp_path):
    mark = tmp_path / "killed"
    assert list(Engine(RAY).over(partial(dies_once, str(mark)), range(4))) == [0, 1, 4, 9]
    assert mark.exists()


@pytest.mark.slow
def test_a_lost_machine_is_done_without_and_nothing_changes(cluster, tmp_path):
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    work = Engine(RAY).over(partial(slow, str(tmp_path)), range(12))
    first = next(work)
    until = time.monotonic() + 60
    while not any(file.name.endswith(node.node_id) for file in tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.1)
    assert any(file.name.endswith(node.node_id) for file in tmp_path.iterdir())  # it had begun some of it
    cluster.remove_node(node, allow_graceful=False)
    assert [first, *work] == [part**2 for part in range(12)]
