"""One round: the same rows through `simulate`, a campaign and `query` give the same batch and the same prediction."""

import itertools
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch

from aicau import Campaign, ensembles, query
from aicau.core import streams
from aicau.core.observations import Observations
from aicau.core.pool import Pool
from aicau.core.task import Task
from aicau.prediction import outcome
from aicau.problems import Problem
from aicau.round import Round
from aicau.simulation.loop import Lane, Loop, Work
from aicau.strategy import Strategy

CANDIDATES, PLATE, ASKED, SEED = 60, 10, 5, 4
STATED = {
    "regression": ["mean", "ensemble", "new_low", "new_high"],
    "classification": ["p_hit", "p_miss"],
    "count": ["mean"],
}
PARTS = ["epistemic", "bias", "aleatoric"]


@dataclass(frozen=True)
class Known(Problem):
    """A pool and a task. What a simulation would measure is put in by hand."""

    pool: Pool
    task: Task
    name: str = "known"

    @property
    def truth(self):
        size = (self.pool.n, self.task.classes) if self.task.classes else (self.pool.n,)
        return torch.full(size, 1 / max(1, self.task.classes), dtype=torch.double)

    @property
    def capacity(self):
        return torch.full((self.pool.n,), 1000)

    def noise(self, keys):
        return torch.zeros(*keys.shape, self.pool.n, dtype=torch.double)

    def respond(self, index, drawn):
        return drawn


def candidates():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"id": [f"c{i}" for i in range(CANDIDATES)], "a": rng.random(CANDIDATES), "b": rng.random(CANDIDATES)}
    )


def measure(task, rows, rng, shift):
    level = 2 + np.sin(5 * rows.a) + np.cos(4 * rows.b) * rows.a
    if task == "regression":
        return level + shift + 0.05 * rng.normal(size=len(rows))
    if task == "count":
        return rng.poisson(np.exp(level))
    return np.where((level > 2.5) ^ (rng.random(len(rows)) < 0.1), "hit", "miss")


def wells(task, ids, round, plates, replicates, failures):
    """What a laboratory tells of a batch: perhaps on two plates, twice each, with wells that failed in between."""
    rng = np.random.default_rng(round)
    rows = candidates().set_index("id").loc[np.repeat(ids, 2 if replicates else 1)].reset_index()
    half = np.arange(len(rows)) % 2
    shift = 0.8 * (half + round) * plates
    told = pd.DataFrame({"id": rows["id"], "y": measure(task, rows, rng, shift), "status": "ok"})
    told["y"] = told["y"].astype(object)
    told["replicate"] = 10 * round + half + 1  # a well that fails again is another well
    if plates:
        told["plate"] = [f"P{round}.{side}" for side in half]
    if failures:
        told.loc[[0, 3], ["y", "status"]] = [None, "failed"]
    return told


class Rows:
    """The wells that did not fail, as the other two doors take them: pool index, value and plate of each."""

    def __init__(self, task, tables):
        good = pd.concat(tables)
        good = good[good.status == "ok"]
        place = {name: at for at, name in enumerate(candidates()["id"])}
        self.index = [place[name] for name in good["id"]]
        self.labels = tuple(sorted(set(good["y"]))) if task == "classification" else ()
        self.y = [float(self.labels.index(v)) if self.labels else float(v) for v in good["y"]]
        self.plate = pd.factorize(good["plate"])[0].tolist() if "plate" in good else [0] * len(good)

    def observations(self):
        index, plate = (torch.tensor(part)[None, None] for part in (self.index, self.plate))
        y = torch.tensor(self.y, dtype=torch.double)[None, None]
        return Observations(index, y, torch.zeros(len(self.y), dtype=torch.int64), plate)


def simulated(loop, rows, strategy):
    """One round of a simulation on these rows: its batch, and what is predicted after it."""
    loop.observations = rows.observations()
    loop.advance()
    state = loop.fitted[0]
    said = loop.how.predictor(state, strategy.bias, rows.labels).predict(state)
    return loop.observations.index[0, 0, -ASKED:].tolist(), said.columns()


def by_query(x, rows, strategy, task):
    """The same by `query`: measured rows and their replicates, then every candidate to choose from."""
    features = np.concatenate([x[rows.index], x])
    y = np.concatenate([rows.y, np.full(len(x), np.nan)])
    plates = np.concatenate([rows.plate, np.full(len(x), -1)])
    found = query(strategy, features, y, x, ASKED, batch=plates, task=task, random_state=SEED, return_utilities=True)
    return found[0].tolist(), found[1][0]


# All at once in `make check`, and every combination in `make test`.
COMBINATIONS = [
    pytest.param(*given, marks=[] if all(given) else pytest.mark.slow, id=" ".join(names))
    for given, names in zip(
        itertools.product([False, True], repeat=3),
        itertools.product(["no plates", "plates"], ["once", "replicates"], ["all wells", "failed wells"]),
        strict=True,
    )
]


@pytest.mark.parametrize(("plates", "replicates", "failures"), COMBINATIONS)
@pytest.mark.parametrize("task", ["regression", "classification", "count"])
def test_three_doors_lead_into_one_round(tmp_path, task, plates, replicates, failures):
    same_batch_and_prediction(tmp_path, task, "default", 2, plates, replicates, failures)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "rounds"), [("pemse:direct:eigen:difference", 4), ("lc", 2), ("pemse:direct:spread", 2)]
)
def test_other_strategies_too(tmp_path, strategy, rounds):
    """Differences look back from the third model on."""
    same_batch_and_prediction(tmp_path, "regression", strategy, rounds, True, True, True)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["history", "failed plates"])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_rounds_before_the_first_model_do_not_count(tmp_path, task, start):
    same_batch_and_prediction(tmp_path, task, "default", 2, True, True, False, start)


def first_points(campaign, start):
    """What F_0 will be fitted to: asked for, told without asking, or asked for after two failed plates."""
    if start == "history":
        return candidates()["id"][:PLATE].tolist()
    for plate in range(2 if start == "failed plates" else 0):
        campaign.tell(pd.DataFrame({"id": campaign.ask(PLATE)["id"], "status": "failed", "plate": f"F{plate}"}))
    return campaign.ask(PLATE)["id"].tolist()


def same_batch_and_prediction(folder, task, word, rounds, plates, replicates, failures, start="asked"):
    batch = "plate" if plates else None
    with Campaign.create(
        folder / "c.db", candidates(), target="y", batch=batch, strategy=word, seed=SEED, task=task
    ) as campaign:
        x = campaign.models.features()
        what = outcome(task).task(("hit", "miss"))
        strategy = Strategy.parse(word, task=what)
        lanes, how = [Lane(Known(Pool(x), what), strategy)], Round(ensembles.make(task=what), what)
        loop = Loop(Work(lanes, 1, ASKED, rounds + 1, streams.runs(SEED, 1), torch.device("cpu"), how))
        asked, tables = first_points(campaign, start), []
        for round in range(rounds):
            tables.append(wells(task, asked, round, plates, replicates, failures))
            campaign.tell(tables[-1])
            said = campaign.predict()
            frame = campaign.ask(ASKED)
            asked = frame["id"].tolist()
            rows = Rows(task, tables)
            batch, other = simulated(loop, rows, strategy)
            assert [f"c{at}" for at in batch] == asked
            for name in (*STATED[task], *PARTS):
                np.testing.assert_allclose(said[name], other[name], rtol=1e-9, atol=1e-12, err_msg=name)
            if round == 0:  # `query` sees one round
                again, utilities = by_query(x.double().numpy(), rows, strategy, what)
                assert again == batch
                score = frame["reason_score"] / float(campaign.models.last[1].state.scale[0]) ** (
                    2 if what.squared else 1
                )
                if strategy.acquisition.in_error and score.notna().all():
                    np.testing.assert_allclose(score, utilities[batch], rtol=1e-4, atol=1e-9)  # in single precision
