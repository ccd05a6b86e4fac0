"""Lines of `bench campaign`: one run of a design with its predictor, each through the code of its own package."""

import tempfile
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from aicau import Campaign
from aicau.acquisition.goals import Goal
from aicau.core import decomposition, streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.streams import Purpose
from aicau.ensembles import MLP
from aicau.prediction.regression import ValuePredictor
from aicau.problems import Problem
from aicau.round import Round, round_keys
from bench import methods, peers
from bench.peers import qnipv
from bench.peers.base import require
from bench.peers.gp import Box, GPLine

LEVEL = 0.9  # of the intervals of a new measurement
NORMAL = 1.6449  # two-sided quantile at that level
STRADDLE = 1.96  # standard deviations


@dataclass(frozen=True)
class Said:
    """What a line predicts of every candidate; None where it does not say."""

    mean: Tensor  # (n,)
    spread: Tensor | None = None  # (n,) standard deviation of what is unknown of the truth
    low: Tensor | None = None  # (n,) of a new measurement
    high: Tensor | None = None

    @classmethod
    def of(cls, prediction: Any) -> "Said":
        """What a campaign hands out."""
        said = replace(prediction, level=LEVEL)
        return cls(said.mean, said.unknown.sqrt(), said.new_low, said.new_high)

    @classmethod
    def normal(cls, mean: Tensor, spread: Tensor, new: Tensor) -> "Said":
        """A normal posterior; `new` is the standard deviation of a new measurement."""
        return cls(mean, spread, mean - NORMAL * new, mean + NORMAL * new)


class Laboratory:
    """aicau, through its campaign."""

    def __init__(self, problem: Problem, keys: Tensor, goal: str) -> None:
        self.home = tempfile.TemporaryDirectory()
        x = problem.pool.x.numpy()
        self.ids = [f"c{at}" for at in range(len(x))]
        pool = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])]).assign(id=self.ids)
        seed = int(keys[0]) % 2**31
        where = Path(self.home.name) / "campaign.db"
        self.campaign = Campaign.create(where, pool, "y", batch="plate", seed=seed, goal=goal)
        self.spent: set[int] = set()

    def told(self, rows: Observations, new: int, round: int) -> Said:
        index, y, plate = (part[0, -new:].tolist() for part in (rows.index, rows.y, rows.batch))
        table = {"id": [self.ids[at] for at in index], "y": y, "plate": [f"p{at}" for at in plate]}
        self.campaign.tell(pd.DataFrame(table))
        return Said.of(self.campaign.models.current().predict())

    def ask(self, m: int, room: Tensor) -> list[int]:
        used = set((room == 0).nonzero()[:, 0].tolist()) - self.spent
        if used:
            self.campaign.exclude([self.ids[at] for at in sorted(used)], "nothing is left of it")
            self.spent |= used
        found: list[int] = []
        while len(found) < m:
            spent: list[int] = []
            for at in (self.ids.index(name) for name in self.campaign.ask(m - len(found))["id"]):
                (found if found.count(at) < int(room[at]) else spent).append(at)
            if spent:
                self.campaign.abandon([self.ids[at] for at in dict.fromkeys(spent)])
        return found


class Process:
    """A process of another package that chooses and predicts."""

    def __init__(self, line: GPLine, problem: Problem, keys: Tensor) -> None:
        self.line, self.keys = line, keys
        self.x = Box.of(problem.pool)(problem.pool.x)

    def told(self, rows: Observations, new: int, round: int) -> Said:
        self.round = round
        self.model = self.line.fit(self.x[rows.index[0]], rows.y[0].double())
        return Said.normal(self.line.mean(self.model, self.x), *deviations(self.model, self.x))

    def ask(self, m: int, room: Tensor) -> list[int]:
        return self.line.select(self.model, self.x, room > 0, m, round_keys(self.keys, self.round)[0])


@torch.no_grad()
def deviations(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:  # (n,) twice
    """Standard deviations of the truth and of a new measurement, for BoTorch and hetGPy."""
    if hasattr(model, "posterior"):
        own = [model.posterior(x, observation_noise=noisy).variance[:, 0] for noisy in (False, True)]
    else:
        said = model.predict(x.numpy())
        truth, noise = (torch.as_tensor(np.asarray(said[name], dtype=float).reshape(-1)) for name in ("sd2", "nugs"))
        own = [truth, truth + noise]
    return own[0].clamp_min(0).sqrt(), own[1].clamp_min(0).sqrt()


class Networks:
    """A method on the paper's networks, which predict."""

    def __init__(self, word: str, problem: Problem, keys: Tensor) -> None:
        self.method, self.x, self.keys, self.how = methods.method(word), problem.pool.x, keys, Round(MLP())

    def told(self, rows: Observations, new: int, round: int) -> Said:
        self.state = self.how.fit(self.x, rows, round_keys(self.keys, round))
        return Said(self.state.in_units(decomposition.mean(self.state.predictions).double())[0])

    def ask(self, m: int, room: Tensor) -> list[int]:
        estimate = self.how.estimate(self.method.bias, self.state)
        chosen: list[int] = (
            self.how.choose(self.method, self.state, estimate, m, room[None]).selection.index[0].tolist()
        )
        return chosen


def handed_out(x: Tensor, rows: Observations, keys: Tensor, round: int) -> Said:  # (n, d)
    """What a campaign predicts, without its files."""
    state = Round(MLP()).fit(x, rows, round_keys(keys, round))
    return Said.of(ValuePredictor.fit(state).predict(state))


class Random:
    """Random points, and a model of scikit-learn or that of a campaign."""

    def __init__(self, model: str, problem: Problem, keys: Tensor) -> None:
        self.model, self.x, self.keys = model, problem.pool.x.numpy(), keys
        self.order = streams.permutation(streams.fold(keys, Purpose.CHOICE), len(self.x))[0]

    def told(self, rows: Observations, new: int, round: int) -> Said:
        if self.model == "aicau":
            return handed_out(torch.from_numpy(self.x), rows, self.keys, round)
        from sklearn.ensemble import RandomForestRegressor
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        x, y = self.x[rows.index[0].numpy()], rows.y[0].numpy()
        if self.model == "forest":
            return Said(torch.from_numpy(RandomForestRegressor(random_state=0).fit(x, y).predict(self.x)))
        kernel = ConstantKernel() * RBF(np.ones(x.shape[1])) + WhiteKernel(0.1)
        process = GaussianProcessRegressor(kernel, normalize_y=True).fit(x, y)
        mean, new_spread = (torch.from_numpy(part) for part in process.predict(self.x, return_std=True))
        noise = process.kernel_.k2.noise_level * float(y.std()) ** 2
        return Said.normal(mean, (new_spread**2 - noise).clamp_min(0).sqrt(), new_spread)

    def ask(self, m: int, room: Tensor) -> list[int]:
        free: list[int] = [at for at in self.order.tolist() if room[at] > 0]
        self.order = torch.tensor(free[m:] + free[:m])
        return free[:m]


def make(name: str, problem: Problem, keys: Tensor, goal: str) -> Laboratory | Process | Networks | Random:
    """A line by its name. `told` gives what it predicts after all rows, the last `new` of which are new; `ask` the next
    m points, of those that still have room."""
    if name in ("aicau", "aicau:map"):
        return Laboratory(problem, keys, goal if name == "aicau" else "map")
    if name.startswith("random+"):
        return Random(name.removeprefix("random+"), problem, keys)
    if name == "qlognei":
        return Process(replace(qnipv.LINE, name=name, select=qlognei), problem, keys)
    if name == "straddle":
        if (at := Goal.parse(goal).threshold) is None:
            raise InputError("straddle looks for a threshold: add --goal above:1, for example")
        return Process(replace(qnipv.LINE, name=name, select=partial(straddle, at)), problem, keys)
    if name in peers.GP_LINES:
        return Process(peers.GP_LINES[name], problem, keys)
    return Networks(name, problem, keys)


def qlognei(model: Any, pool: Tensor, allowed: Tensor, m: int, key: Tensor) -> list[int]:
    """BoTorch's qLogNoisyExpectedImprovement over the candidates, one after another."""
    logei = require("botorch.acquisition.logei", "qlognei")
    chosen: list[int] = []
    free = allowed.clone()
    rows = model.train_inputs[0]
    for _ in range(m):
        pending = pool[chosen] if chosen else None
        with warnings.catch_warnings(), torch.random.fork_rng(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.manual_seed(int(key) & 0x7FFFFFFF)
            criterion = logei.qLogNoisyExpectedImprovement(model, rows, X_pending=pending, prune_baseline=True)
            value = torch.cat([criterion(part[:, None]) for part in pool.split(256)])
        chosen.append(int(torch.where(free, value, -torch.inf).argmax()))
        free[chosen[-1]] = False
    return chosen


@torch.no_grad()
def straddle(at: float, model: Any, pool: Tensor, allowed: Tensor, m: int, key: Tensor) -> list[int]:
    """1.96 σ − |μ − T| (Bryan et al. 2005), one after another: σ after the points chosen, μ as it is."""
    said = model.posterior(pool)
    distance, spread = (said.mean[:, 0] - at).abs(), said.variance[:, 0].clamp_min(0).sqrt()
    variance = qnipv.Variance.of(model, pool[:1], pool)
    unit = spread / variance.own.clamp_min(1e-12).sqrt()  # of the target
    chosen: list[int] = []
    free = allowed.clone()
    for _ in range(m):
        value = STRADDLE * unit * variance.own.clamp_min(0).sqrt() - distance
        chosen.append(int(torch.where(free, value, -torch.inf).argmax()))
        free[chosen[-1]] = False
        variance = variance.after(model, pool, chosen[-1])
    return chosen
