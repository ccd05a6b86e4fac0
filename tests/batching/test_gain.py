"""`gain` against its formula with full matrices."""

from dataclasses import replace

import pytest
import torch

from aicau import Omega, Score, View
from aicau.batching import gain, shortlist, work
from aicau.batching.gain import Gain
from aicau.core import runs
from aicau.core.errors import InputError
from aicau.core.omega import Cobias
from aicau.ensembles import MLP, gradients
from aicau.ensembles.kernels import MLPSettings

LENGTHS = torch.tensor([[0.7, 3.0]]).double()


def view_of(n=60, known=(3, 17, 40), noise=0.05, room=None, fitted=None, trust=None):
    x = torch.rand(n, 2, generator=torch.Generator().manual_seed(1)).double() * 4
    measured = torch.zeros(1, n, dtype=torch.bool)
    measured[0, list(known)] = True
    room = None if room is None else torch.full((1, n), room)
    trust = None if trust is None else torch.tensor([trust]).double()
    own = Cobias(torch.ones(1, n, 1), noise=torch.full((1, n), noise).double(), lengths=LENGTHS, trust=trust)
    allowed = ~measured if room is None else torch.ones_like(measured)
    return View(x, allowed, measured, torch.zeros(1, dtype=torch.int64), cobias=own, room=room, fitted=fitted, points=x)


def score_of(n=60):
    return Score(torch.rand(1, n, generator=torch.Generator().manual_seed(2)).double())


def kernel(view):
    z = view.x / LENGTHS
    smooth = torch.exp(-0.5 * torch.cdist(z, z) ** 2)
    if view.fitted is None:
        return smooth
    networks = view.fitted.layers(view.points)
    tangent = gradients.between(networks, networks).double()
    return 0.5 * (smooth + tangent / tangent.diagonal().mean())


def by_hand(view, alpha, m, noise):
    """Points and gains with the full posterior covariance."""
    k = kernel(view)
    known = view.measured[0].nonzero()[:, 0]
    inner = k[known][:, known] + noise * torch.eye(len(known)).double()
    k = k - k[:, known] @ torch.linalg.solve(inner, k[known])
    room = view.allowed[0].long() if view.room is None else view.room[0].clone()
    found = []
    for _ in range(m):
        worth = (alpha @ k**2) / (k.diagonal() + noise)
        at = int(torch.where(room > 0, worth, -1.0).argmax())
        found.append((at, float(worth[at])))
        k = k - torch.outer(k[:, at], k[:, at]) / (k[at, at] + noise)
        room[at] -= 1
    return zip(*found, strict=True)


def check(view, m=8, noise=0.05):
    score = score_of(len(view.x))
    found = Gain().select(score, view, m)
    index, worth = by_hand(view, score.alpha[0], m, noise)
    assert found.index[0].tolist() == list(index)
    assert found.parts["worth"][0].tolist() == pytest.approx(list(worth), rel=1e-4)
    return found


def networks(n=60):
    x = view_of(n).x
    return MLP(members=2, settings=MLPSettings(max_epochs=5)).fit(x[None, :9], x[None, :9, 0], torch.tensor([4]))


def test_it_is_the_formula_with_a_length_per_feature():
    found = check(view_of())
    assert not found.parts["known"].any()


def test_it_is_the_formula_with_gradients_of_networks():
    check(view_of(fitted=networks()))


def test_known_points_compete_by_the_same_formula():
    """Little noise: new points only. Much noise: the points worth most are asked for again."""
    quiet = check(view_of(room=3, noise=work.LEAST), noise=work.LEAST)
    assert len(set(quiet.index[0].tolist())) == 8
    loud = check(view_of(room=3, noise=4.0), noise=4.0)
    assert loud.parts["known"].any()
    again = loud.numbers(0, int(loud.parts["known"][0].int().argmax()))
    assert Gain().reason(again, "bias").startswith("a known point: one more measurement lowers the error expected")


def test_replicates_and_pending_points_count():
    """Three measurements of a point are one with a third of the noise; a pending point counts as one measurement."""
    view = view_of(known=(3, 17))
    times = view.measured.long() * torch.where(torch.arange(60) == 3, 3, 0)  # 17 is pending
    features = work.Features(view, gain.LANDMARKS)
    noise = work.noise_of(view)
    phi, rest = features.at(torch.tensor([3, 17]))
    assert float(rest.max()) < 1e-5
    precision = torch.eye(phi.shape[-1]).double() + phi.mT @ (phi * torch.tensor([[3 / 0.05], [1 / 0.05]]))
    found = work.posterior(replace(view, times=times), features, noise)
    torch.testing.assert_close(found, torch.linalg.inv(precision))


def test_portions_and_a_short_list_choose_the_same(monkeypatch):
    view, score = view_of(300, fitted=networks()), score_of(300)
    whole = Gain().select(score, view, 6)
    monkeypatch.setattr(shortlist, "LISTED", 96)
    monkeypatch.setattr(runs, "PORTION", 100)
    parts = Gain().select(score, view, 6)
    assert torch.equal(parts.index, whole.index)
    for name, part in whole.parts.items():
        torch.testing.assert_close(parts.parts[name], part)


def test_landmarks_come_close(monkeypatch):
    view, score = view_of(300), score_of(300)
    whole = Gain().select(score, view, 1)
    monkeypatch.setattr(gain, "LANDMARKS", 150)
    few = Gain().select(score, view, 1)
    assert torch.equal(few.index, whole.index)
    assert float(few.parts["worth"]) == pytest.approx(float(whole.parts["worth"]), rel=0.02)


def test_it_goes_where_the_error_is():
    """Two far groups: the one with ten times the score gets the first points."""
    x = torch.cat([torch.randn(20, 1), 50 + torch.randn(20, 1)]).double()
    every = torch.ones(1, 40, dtype=torch.bool)
    view = View(x, every, ~every, torch.zeros(1, dtype=torch.int64))
    alpha = torch.where(torch.arange(40) < 20, 0.1, 1.0)[None].double()
    assert int(Gain().select(Score(alpha), view, 1).index) >= 20
    assert int(Gain().select(Score(alpha.flip(-1)), view, 1).index) < 20


def test_without_a_model_or_a_positive_score_it_lowers_the_variance():
    view = replace(view_of(), cobias=None)
    one, other = (Gain().select(Score(torch.full((1, 60), value).double()), view, 4) for value in (1.0, -3.0))
    assert torch.equal(one.index, other.index)


def believed(view, delta, weight, m, noise, share):
    """Points and gains of both beliefs, with full matrices."""
    k = kernel(view)
    known = view.measured[0].nonzero()[:, 0]
    inner = k[known][:, known] + noise * torch.eye(len(known)).double()
    k = k - k[:, known] @ torch.linalg.solve(inner, k[known])
    alpha, delta, found, room = delta.diagonal().clone(), delta.clone(), [], view.allowed[0].clone()
    for _ in range(m):
        s = k.diagonal() + noise
        g = k / s
        right = 2 * (weight @ (g * delta)) - (weight @ g**2) * (delta.diagonal() + noise)
        worth = share * right + (1 - share) * (weight * alpha) @ k**2 / s
        at = int(torch.where(room, worth, -torch.inf).argmax())
        found.append((at, float(worth[at])))
        change = torch.eye(len(k)).double()
        change[:, at] -= g[:, at]
        delta = change @ delta @ change.mT + noise * torch.outer(g[:, at], g[:, at])
        k = k - torch.outer(k[:, at], k[:, at]) / s[at]
        room[at] = False
    return zip(*found, strict=True)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize(("trust", "share"), [(1.0, 1.0), (0.8, 0.6), (0.4, 0.0), (None, 0.0)])
def test_with_a_matrix_two_beliefs_are_weighed(weighed, trust, share):
    """Δ̂ counts as far as it predicts more than half of the squared bias."""
    generator = torch.Generator().manual_seed(3)
    factor = torch.rand(1, 60, 4, generator=generator).double() - 0.3
    weight = torch.rand(1, 60, generator=generator).double() if weighed else None
    view = replace(view_of(fitted=networks(), trust=trust), weight=weight)
    omega = Omega(factor, None, torch.rand(1, 60, generator=generator).double())
    found = Gain().select(Score.of(omega), view, 6)
    counts = torch.ones(60).double() if weight is None else weight[0]
    index, worth = believed(view, omega.dense()[0], counts, 6, 0.05, share)
    assert found.index[0].tolist() == list(index)
    assert found.parts["worth"][0].tolist() == pytest.approx(list(worth), rel=1e-4)
    assert float(found.parts["score"][0, 0]) == pytest.approx(float(omega.diagonal()[0, index[0]]))


def test_with_a_matrix_a_repeat_pays_where_noise_is_strong():
    """Six points far apart; the bias of one is much larger. Where noise is weak one measurement of it is enough."""
    x, delta = 100 * torch.arange(6).double()[:, None], torch.tensor([[0.1, 0.1, 10.0, 0.1, 0.1, 0.1]]).double()
    every, score = torch.ones(1, 6, dtype=torch.bool), Score.of(Omega(torch.zeros(1, 6, 1).double(), None, delta))
    for noise, most in ((0.001, 1), (2.0, 3)):
        own = Cobias(torch.zeros(1, 6, 1), noise=torch.full((1, 6), noise), lengths=torch.ones(1, 1).double(),
                     trust=torch.ones(1))  # fmt: skip
        view = View(x, every, ~every, torch.zeros(1, dtype=torch.int64), cobias=own, room=torch.full((1, 6), 3))
        assert Gain().select(score, view, 4).index[0].tolist().count(2) == most


def test_a_measurement_pays_where_its_neighbours_are_wrong_in_the_same_direction():
    """Two far groups, wrong by as much in all. In one, half is wrong upwards and half downwards: a measurement there
    moves one half away from the truth."""
    x = torch.cat([torch.linspace(0, 1, 20), 50 + torch.linspace(0, 1, 20)]).double()[:, None]
    every = torch.ones(1, 40, dtype=torch.bool)
    own = Cobias(torch.ones(1, 40, 1), noise=torch.full((1, 40), 0.05), lengths=torch.tensor([[2.0]]).double(),
                 trust=torch.ones(1))  # fmt: skip
    view = View(x, every, ~every, torch.zeros(1, dtype=torch.int64), cobias=own)
    wrong = torch.where((torch.arange(40) < 20) & (torch.arange(40) % 2 == 0), -1.0, 1.0).double()
    index = Gain().select(Score.of(Omega(wrong[None, :, None])), view, 1).index
    assert int(index) >= 20


def groups():
    """Two far groups of twenty, and scores that each see one of them."""
    x = torch.cat([torch.randn(20, 1), 50 + torch.randn(20, 1)]).double()
    every = torch.ones(1, 40, dtype=torch.bool)
    left = torch.where(torch.arange(40) < 20, 1.0, 0.0)[None].double()
    return View(x, every, ~every, torch.zeros(1, dtype=torch.int64)), Score(left), Score(1 - left)


def test_two_targets_with_different_needs_both_get_points():
    view, left, right = groups()
    assert int((Gain().select(left, view, 4).index < 20).sum()) == 4
    both = Gain().select(left, replace(view, others=((right, view),)), 4)
    assert int((both.index < 20).sum()) == 2
    much = Gain().select(left, replace(view, others=((right.times(torch.tensor([1e6])), view),)), 4)
    assert int((much.index < 20).sum()) == 0


def test_a_target_twice_chooses_what_it_chooses_once():
    view, score = view_of(fitted=networks()), score_of()
    once = Gain().select(score, view, 8)
    twice = Gain().select(score, replace(view, others=((score, view),)), 8)
    assert torch.equal(once.index, twice.index)
    assert torch.equal(once.parts["share"], twice.parts["share"])
    torch.testing.assert_close(2 * once.parts["worth"], twice.parts["worth"])


def test_the_gain_of_two_targets_is_the_sum_of_theirs():
    view, score = view_of(), score_of()
    other = replace(view_of(noise=0.8), measured=view.measured)
    alone = [Gain().select(score, replace(one, allowed=at), 1).parts["worth"] for one in (view, other)
             for at in [torch.arange(60)[None] == 11]]  # fmt: skip
    both = replace(view, allowed=torch.arange(60)[None] == 11, others=((score, other),))
    torch.testing.assert_close(Gain().select(score, both, 1).parts["worth"], sum(alone))


def test_a_budget_buys_what_is_worth_most_per_cost():
    view, left, _ = groups()
    score = Score(left.alpha + 0.4)  # the left group is worth more, and costs ten times as much
    dear = replace(view, cost=torch.where(torch.arange(40) < 20, 10.0, 1.0)[None].double())
    tight = Gain().select(score, replace(dear, budget=10.0), 8).index
    assert int((tight < 20).sum()) == 0
    rich = Gain().select(score, replace(dear, budget=1e6), 8)
    free = Gain().select(score, view, 8)
    assert torch.equal(rich.index, free.index)  # money that is left over buys nothing
    for budget in (1.0, 7.0, 23.0):
        index = Gain().select(score, replace(dear, budget=budget), 8).index[0]
        assert float(dear.cost[0, index].sum()) <= budget
    with pytest.raises(InputError, match=r"costs 0\.5 or less; raise the budget"):
        Gain().select(score, replace(dear, budget=0.5), 8)


@pytest.mark.parametrize("short", [False, True])
def test_a_candidate_without_a_price_can_always_be_bought(monkeypatch, short):
    view, score = view_of(300), score_of(300)
    if short:
        monkeypatch.setattr(shortlist, "LISTED", 96)
    free = torch.arange(300)[None] % 2 == 0
    dear = replace(view, cost=torch.where(free, 0.0, 1.0).double(), budget=2.0)
    found = Gain().select(score, dear, 8)
    assert torch.isfinite(found.parts["worth"]).all()
    assert float(dear.cost[0, found.index[0]].sum()) <= 2
    spent = Gain().select(score, replace(dear, cost=dear.cost * 2, budget=2.0), 8).index[0]  # after one nothing is left
    best = Gain().select(score, replace(view, allowed=view.allowed & free), 8).index[0]
    assert len(set(spent.tolist()) & set(best.tolist())) > 4
    endless = Gain().select(score, replace(dear, budget=float("inf")), 8)
    assert torch.equal(endless.index, Gain().select(score, view, 8).index)
