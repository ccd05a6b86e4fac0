"""Rules over a large pool that is looked at some candidates at a time: what they find looking at all of it at once."""

from dataclasses import replace

import pytest
import torch

from aicau import MLP, Observations, Round, Score, Strategy, View, streams
from aicau.batching import portions, spread
from aicau.core import runs
from aicau.core.pool import Rows
from aicau.ensembles.kernels import MLPSettings
from aicau.proposal import Look, propose

N, M = 700, 9


@pytest.fixture(scope="module")
def fitted():
    x = torch.rand(N, 3, generator=torch.Generator().manual_seed(1)).double() * 3
    index = torch.arange(0, N, 40)[None]
    rows = Observations(index, torch.sin(2 * x[index][..., 0]), torch.zeros(index.shape[-1], dtype=torch.long))
    how = Round(MLP(settings=MLPSettings(max_epochs=50)))
    return [how, *(how.fit(x, part, streams.runs(0, 1)) for part in (rows, rows_of(rows, 12)))]


def rows_of(rows, count):
    return Observations(rows.index[:, :count], rows.y[:, :count], rows.round[:count])


def portioned(monkeypatch, size):
    monkeypatch.setattr(portions, "DRAWN", size)
    monkeypatch.setattr("aicau.proposal.DRAWN", size)
    monkeypatch.setattr(spread, "LISTED", 40)
    monkeypatch.setattr(runs, "PORTION", 64)


RULES = (
    *("lc:top", "bald:top", "random", "farthest", "lc:eigen", "lc:spread", "pemse:direct:top", "pemse:direct:eigen"),
    *(
        "br:direct:spread",
        "br:quadratic:eigen",
        "pemse:quadratic:top",
        "br:tau:spread",
        "pemse:tau:eigen",
        "br:posterior:spread",
    ),
    *("pemse:direct:eigen:difference", "pemse:direct:spread:difference"),
)


@pytest.mark.parametrize("word", RULES)
def test_portions_find_what_the_whole_finds(fitted, monkeypatch, word):
    how, state, earlier = fitted
    strategy, known = Strategy.parse(word), state.observations.counts(N) > 0
    weight = torch.linspace(0.5, 1.5, N)[None].double()
    found = []
    for size in (N, 150, 64):
        if size < N:
            portioned(monkeypatch, size)
        before = Look(how, how.fit(earlier.x, earlier.observations, earlier.keys)) if strategy.difference else None
        own = how.fit(state.x, state.observations, state.keys)  # nothing was learned from it yet
        found.append(propose(strategy, [Look(how, own, 1.0, before, weight)], M, (~known).long(), known, 3).selection)
    for other in found[1:]:
        assert torch.equal(other.index, found[0].index)
        for name, part in found[0].parts.items():
            torch.testing.assert_close(other.parts[name], part, rtol=1e-3, atol=1e-6, check_dtype=False)


def pools():
    draw = torch.Generator().manual_seed(2)
    grid = torch.cartesian_prod(*[torch.arange(5.0)] * 3)
    return {
        "uniform": torch.rand(500, 2, generator=draw).double(),
        "grid": grid[torch.randperm(len(grid), generator=draw)],  # many are worth the same
        "few": torch.randint(2, (300, 3), generator=draw).float(),  # eight different points: most are known soon
    }


@pytest.mark.parametrize("kind", pools())
@pytest.mark.parametrize("measured", [0, 3, 30])
@pytest.mark.parametrize("even", [True, False])
def test_lists_find_what_all_find(monkeypatch, kind, measured, even):
    x, draw = pools()[kind], torch.Generator().manual_seed(3)
    n = len(x)
    alpha = torch.ones(1, n) if even else torch.rand(1, n, generator=draw) - 0.1
    known = torch.zeros(1, n, dtype=torch.bool)
    known[0, torch.randperm(n, generator=draw)[:measured]] = True
    times = known * torch.randint(1, 4, (1, n), generator=draw)
    view = View(x, ~known | (times == 1), known, streams.runs(0, 1), times=times)
    whole = spread.Spread().select(Score(alpha), view, 25)
    monkeypatch.setattr(runs, "PORTION", 32)
    for listed in (7, 60):
        monkeypatch.setattr(spread, "LISTED", listed)
        for pool in (x, Rows(x.float().split(90), [len(part) for part in x.split(90)], x.shape[1])):
            part = spread.Spread().select(Score(alpha), replace(view, x=pool), 25)
            if pool is x or kind != "uniform":  # in single precision other points may be a little farther
                assert torch.equal(part.index, whole.index)
                torch.testing.assert_close(part.parts["cause"], whole.parts["cause"])
                torch.testing.assert_close(part.parts["worth"], whole.parts["worth"], check_dtype=False)


@pytest.mark.parametrize("word", ["farthest", "random", "lc:spread"])
def test_every_target_counts_in_portions_too(fitted, monkeypatch, word):
    how, state, earlier = fitted
    known, weight = state.observations.counts(N) > 0, torch.linspace(0, 3, N)[None].double() ** 2
    found = []
    for size in (N, 150):
        if size < N:
            portioned(monkeypatch, size)
        looks = [Look(how, how.fit(x.x, x.observations, x.keys), 1.0) for x in (state, earlier)]
        looks[1] = replace(looks[1], share=2.5, weight=weight)
        found.append(propose(Strategy.parse(word), looks, M, (~known).long(), known, 3).selection.index)
    assert torch.equal(*found)


@pytest.mark.parametrize("word", ["lc:top", "lc:spread", "lc:eigen", "pemse:tau:eigen", "farthest"])
@pytest.mark.parametrize("size", [N, 150])
def test_what_costs_nothing_comes_first(fitted, monkeypatch, word, size):
    how, state, _ = fitted
    portioned(monkeypatch, size)
    known, own = state.observations.counts(N) > 0, how.fit(state.x, state.observations, state.keys)
    cost = torch.where(torch.arange(N) % 50 == 7, 0.0, 1.0)[None].double()
    args = (4, (~known).long(), known, 3)  # `lc` has as many modes
    found = propose(Strategy.parse(word), [Look(how, own)], *args, cost=cost, budget=5.0).selection
    assert not cost[0, found.index[0]].any()
    assert all(torch.isfinite(part).all() for part in found.parts.values())


def test_distances_to_many_known_points_are_computed_some_at_a_time(monkeypatch):
    sizes, cdist = [], torch.cdist
    monkeypatch.setattr(torch, "cdist", lambda a, b: sizes.append(len(a) * len(b)) or cdist(a, b))
    monkeypatch.setattr(spread, "LISTED", 40)
    known = (torch.arange(9000) % 9 < 4)[None]
    view = View(torch.arange(9000.0)[:, None], ~known, known, streams.runs(0, 1))
    assert spread.Spread().select(Score(torch.ones(1, 9000)), view, 2).index.tolist() == [[8999, 6]]
    assert max(sizes) <= 10**7


def test_what_was_learned_of_a_part_on_a_device_is_known_to_the_next(fitted):
    how, state, _ = fitted
    look, there, part = Look(how, replace(state, memo={})).anew(), torch.device("meta"), torch.arange(N)
    one = look.among(part, there)
    one.memo["learned"] = 1
    other = look.among(part, there)
    assert (other.x.device, other.memo["learned"]) == (there, 1)
    assert "learned" not in look.state.memo
