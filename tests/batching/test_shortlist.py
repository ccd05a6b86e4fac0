"""A batch from a part of a large pool: what the part is, and that it does not depend on how the pool is read."""

import pytest
import torch

from aicau import MLP, Engine, Observations, Round, Strategy, streams
from aicau.batching import shortlist
from aicau.batching.base import best
from aicau.batching.work import Basis, Work
from aicau.core import runs
from aicau.core.engine import HERE
from aicau.ensembles.kernels import MLPSettings
from aicau.proposal import Look, propose

N, M = 3000, 8


@pytest.fixture(scope="module")
def fitted():
    x = torch.rand(N, 3, generator=torch.Generator().manual_seed(1)).double() * 3
    index = torch.arange(0, N, 120)[None]
    rows = Observations(index, torch.sin(2 * x[index][..., 0]), torch.zeros(index.shape[-1], dtype=torch.long))
    how = Round(MLP(settings=MLPSettings(max_epochs=50)))
    return how, how.fit(x, rows, streams.runs(0, 1))


def chosen(fitted, weight=None, targets=1, engine=HERE):
    how, state = fitted
    known = state.observations.counts(N) > 0
    look = Look(how, state, weight=weight)
    return propose(Strategy.parse("default"), [look] * targets, M, torch.where(known, 0, 1), known, engine=engine)


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(shortlist, "SAMPLED", 1000)
    monkeypatch.setattr(shortlist, "LISTED", 256)


def test_many_portions_choose_what_one_chooses(fitted, large, monkeypatch):
    found = []
    for portion in (10**6, 64, 999):
        monkeypatch.setattr(runs, "PORTION", portion)
        found.append(chosen(fitted).selection)
    for other in found[1:]:
        assert torch.equal(other.index, found[0].index)
        torch.testing.assert_close(other.parts["worth"], found[0].parts["worth"])
    assert len(set(found[0].index[0].tolist())) == M


@pytest.mark.slow
def test_shards_of_other_processes_choose_the_same(fitted, large, monkeypatch):
    monkeypatch.setattr(runs, "PORTION", 100)
    monkeypatch.setattr(shortlist, "SHARD", 4)
    here, there = (chosen(fitted, engine=engine).selection for engine in (HERE, Engine(jobs=2)))
    assert torch.equal(there.index, here.index)
    assert torch.equal(there.parts["worth"], here.parts["worth"])


def test_a_part_lowers_nearly_as_much_as_the_whole(fitted, large, monkeypatch):
    few = chosen(fitted)
    monkeypatch.setattr(shortlist, "SAMPLED", N)
    monkeypatch.setattr(shortlist, "LISTED", N)
    whole = chosen(fitted)
    assert float(few.selection.parts["share"].sum()) > 0.95 * float(whole.selection.parts["share"].sum())


def test_two_forms_are_sums_of_the_same_squares():
    parts = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(5)).double()
    forms = parts @ parts.mT * torch.tensor([1.0, 1e-6]).double()[:, None, None]
    columns, weights = shortlist._axes(*forms)
    for form, weight in zip(forms, weights.double(), strict=True):
        torch.testing.assert_close(columns * weight @ columns.mT, form, rtol=0, atol=1e-5 * float(form.abs().max()))


def test_a_screen_that_sees_all_gives_the_gains_of_the_rule(fitted, monkeypatch):
    """With as many landmarks and networks; its two networks rank candidates nearly alike."""
    how, state = fitted
    known = state.observations.counts(N) > 0
    score, view = Look(how, state).scored(Strategy.parse("default"), (~known).long(), known, 0, None)
    base, new = Basis(score, view, shortlist.SKETCHED), (~known[0]).nonzero()[:, 0]
    right = Work(base, new).now().double().clamp_min(0)
    for networks, least in ((None, 0.9999), (shortlist.NETWORKS, 0.9)):
        monkeypatch.setattr(shortlist, "NETWORKS", networks)
        first = shortlist.Screen(score, view, M).gains(view.x, view.points)[0, new].double()
        assert float(torch.corrcoef(torch.stack([first, right]))[0, 1]) > least


def test_candidates_that_count_are_all_drawn(fitted, large):
    """Ten of 3000 candidates count: the error is summed over them, and the batch goes there."""
    weight = torch.zeros(1, N).double()
    weight[0, 700:710] = 2.0
    drawn = shortlist.draw(N, weight, weight.device)
    assert drawn.hits.unique().tolist() == list(range(700, 710))
    index, stands = drawn.among(weight > 1)
    assert index.tolist() == list(range(700, 710))
    torch.testing.assert_close(stands, torch.ones(10).double())
    near = fitted[1].x[chosen(fitted, weight).selection.index[0, 0]]
    assert float(torch.cdist(near[None], fitted[1].x[700:710]).min()) < 1


def test_what_is_drawn_stands_for_the_pool():
    index, stands = shortlist.draw(10**6, None, torch.device("cpu")).among(torch.zeros(1, 10**6, dtype=torch.bool))
    assert len(index) == shortlist.SAMPLED
    assert float(stands.sum()) == pytest.approx(10**6)


def test_lists_are_joined_as_they_come():
    gains = torch.rand(2, 1000, generator=torch.Generator().manual_seed(3)).round(decimals=2)  # with equal ones
    index = torch.arange(1000)
    first = [set(one.argsort(descending=True, stable=True)[:10].tolist()) for one in gains]
    for size in (1000, 100, 7):
        parts = zip(index.split(size), gains.split(size, -1), strict=True)
        assert best(parts, 10)[0].tolist() == sorted(first[0] | first[1])


def test_the_same_target_twice_chooses_what_it_chooses_once(fitted, large):
    two, one = (chosen(fitted, targets=targets).selection for targets in (2, 1))
    assert torch.equal(two.index, one.index)
    torch.testing.assert_close(two.parts["share"], one.parts["share"])


@pytest.mark.parametrize("count", [1, 40, 200])
def test_a_part_sees_what_few_candidates_count(fitted, large, monkeypatch, count):
    """Fewer than landmarks of a screen: they stand for themselves."""
    weight = torch.zeros(1, N).double()
    weight[0, 701 : 701 + count] = 2.0
    few = chosen(fitted, weight)
    monkeypatch.setattr(shortlist, "SAMPLED", N)
    monkeypatch.setattr(shortlist, "LISTED", N)
    whole = chosen(fitted, weight)
    assert float(few.selection.parts["share"].sum()) > 0.95 * float(whole.selection.parts["share"].sum())


def test_where_nothing_counts_all_count_alike(fitted, large):
    """A threshold that no candidate can reach."""
    none = chosen(fitted, torch.zeros(1, N).double()).selection
    assert torch.isfinite(none.parts["share"]).all()
    assert len(none.index.unique()) == M
    assert none.index.max() > N / 2


def test_where_only_a_known_point_counts_others_are_looked_at(fitted, large):
    weight = torch.zeros(1, N).double()
    weight[0, 120] = 1.0  # measured
    x, found = fitted[1].x, chosen(fitted, weight).selection
    assert torch.isfinite(found.parts["share"]).all()
    assert float(torch.cdist(x[found.index[0, :1]], x[120:121])) < 0.5
