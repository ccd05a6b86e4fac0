"""Every batching rule of the registry: what it gives, and that its reason says what decided."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from aicau import Score, Strategy, problems, simulate
from aicau.acquisition import ACQUISITIONS
from aicau.arrays import query
from aicau.batching import BATCHINGS, Selection
from aicau.batching.base import take_best
from aicau.core import streams
from aicau.core.omega import Omega

WORDS = {"score", "distance", "predictions", "matrix", "random"}
M = 12  # more than the error matrix has modes: five members, centred, and the bias


@pytest.fixture(scope="module")
def seen(fitted):
    """A view with a matrix, predictions and skill, and its score."""
    view = replace(fitted["regression"].view(), skill=torch.tensor([0.3, 0.6, 0.9]).double())
    return view, ACQUISITIONS["pemse"]().score(view)


@pytest.mark.parametrize("name", BATCHINGS)
class TestBatching:
    @pytest.mark.parametrize("m", [1, 5, 40])
    def test_gives_distinct_allowed_points_and_numbers_for_each(self, seen, name, m):
        view, score = seen
        found = BATCHINGS[name]().select(score, view, m)
        assert found.index.shape == (3, m)
        for run in range(3):
            assert len(set(found.index[run].tolist())) == m
            assert view.allowed[run, found.index[run]].all()
        assert "worth" in found.parts
        for part in found.parts.values():
            assert part.shape == (3, m)
            assert torch.isfinite(part).all()

    def test_a_run_does_not_depend_on_its_neighbours_and_survives_nan(self, seen, name):
        view, score = seen
        whole = Strategy.parse(f"pemse:direct:{name}").choose(view, 4).selection
        alone = BATCHINGS[name]().select(score[1:2], view[1:2], 4)
        assert torch.equal(alone.index, whole.index[1:2])
        for part, own in alone.parts.items():
            assert torch.equal(own, whole.parts[part][1:2])
        broken = Score(torch.full_like(score.alpha, torch.nan), score.omega)
        assert len(set(BATCHINGS[name]().select(broken, view, 4).index[0].tolist())) == 4

    def test_a_strategy_with_it_is_understood(self, seen, name):
        assert Strategy.parse(f"pemse:direct:{name}").batching == BATCHINGS[name]()


def shuffled(what, view, score):
    """The same view and score with one thing changed at random."""
    generator = torch.Generator().manual_seed(7)
    if what == "distance":
        return replace(view, x=torch.rand(view.x.shape, generator=generator).to(view.x)), score
    if what == "predictions":
        drawn = torch.randn(view.predictions.shape, generator=generator).to(view.predictions)
        return replace(view, predictions=drawn), score
    if what == "random":
        return replace(view, keys=streams.runs(99, len(view))), score
    if what == "matrix":
        factor = torch.randn(score.omega.factor.shape, generator=generator).to(score.omega.factor)
        return view, Score(score.alpha, Omega(factor))
    return view, Score(torch.rand(score.alpha.shape, generator=generator).to(score.alpha), score.omega)


@pytest.mark.parametrize("name", BATCHINGS)
class TestReasons:
    def test_uses_are_known_words(self, name):
        assert BATCHINGS[name].uses
        assert BATCHINGS[name].uses <= WORDS

    @pytest.mark.parametrize("what", sorted(WORDS))
    def test_what_it_uses_decides_and_nothing_else(self, seen, name, what):
        rule = BATCHINGS[name]()
        before, after = rule.select(seen[1], seen[0], M), rule.select(*reversed(shuffled(what, *seen)), M)
        if what in rule.uses:
            assert not torch.equal(before.index, after.index)
        else:
            assert torch.equal(before.index, after.index)
            assert all(torch.equal(part, after.parts[key]) for key, part in before.parts.items())

    def test_the_reason_names_what_decided(self, seen, name):
        rule = BATCHINGS[name]()
        found = rule.select(seen[1], seen[0], M)
        for place in range(M):
            said = rule.reason(found.numbers(0, place), "expected wobble")
            assert ("distance" in said) == ("distance" in rule.uses)
            assert ("predictions" in said) == ("predictions" in rule.uses)
            if "score" in rule.uses:
                assert "expected wobble" in said
            if "random" in said or "drawn" in said:
                assert "random" in rule.uses
            if "matrix" in said or "mode" in said:
                assert "matrix" in rule.uses
            assert "nan" not in said

    def test_a_strategy_hands_the_reason_out(self, seen, name):
        strategy = Strategy.parse(f"pemse:direct:{name}")
        choice = strategy.choose(seen[0], 3)
        own = strategy.batching.reason(choice.selection.numbers(2, 1), strategy.acquisition.meaning)
        assert strategy.reason(choice, 2, 1) == (own, choice.selection.numbers(2, 1))

    def test_scores_are_stated_in_the_units_of_the_error(self, seen, name):
        strategy = Strategy.parse(f"pemse:direct:{name}")
        choice = strategy.choose(seen[0], 3)
        said, numbers = strategy.reason(choice, 2, 1, 100.0)
        plain = choice.selection.numbers(2, 1)
        scaled = ("score", "worth") if "score" in plain else ()
        for part, value in plain.items():
            assert numbers[part] == pytest.approx(100 * value if part in scaled else value)
        assert said == strategy.batching.reason(numbers, strategy.acquisition.meaning)


def squares_to_the_nearest(x, known):  # (n, p), indices -> (n,)
    return torch.stack([((x - x[at]) ** 2).sum(-1) for at in known]).amin(0)


@pytest.mark.parametrize("name", ["top", "spread", "eigen"])
def test_worth_is_the_largest_among_the_allowed_at_its_step(seen, name):
    """Recomputed by hand: α, α·d², entries of eigenvectors."""
    view, score = seen
    found = BATCHINGS[name]().select(score, view, 5)
    for run in range(3):
        alpha, allowed = score.alpha[run].double(), view.allowed[run].clone()
        known = view.measured[run].nonzero()[:, 0].tolist()
        inside = torch.where(view.allowed[run, :, None] & view.allowed[run], score.omega.dense()[run].double(), 0.0)
        modes = torch.linalg.eigh(inside).eigenvectors.flip(-1).abs()
        for step in range(5):
            worth = {
                "top": alpha,
                "spread": alpha.clamp_min(0) * squares_to_the_nearest(view.x, known),
                "eigen": modes[:, step],
            }[name]
            chosen = int(found.index[run, step])
            best = float(torch.where(allowed, worth, -torch.inf).max())
            assert float(found.parts["worth"][run, step]) == pytest.approx(best, rel=1e-4)
            assert float(worth[chosen]) == pytest.approx(best, rel=1e-4)
            numbers = found.numbers(run, step)
            if name == "spread":
                assert numbers["worth"] == pytest.approx(numbers["score"] * numbers["distance"] ** 2, rel=1e-6)
                said = BATCHINGS[name]().reason(numbers, "bias")
                assert f"bias ({float(alpha[chosen]):.3g})" in said
                assert f"({float(squares_to_the_nearest(view.x, known)[chosen]) ** 0.5:.3g})" in said
            allowed[chosen] = False
            known.append(chosen)


@dataclass(frozen=True)
class Lowest:
    """A rule of this test: allowed points in rising order of the score."""

    uses: ClassVar[frozenset[str]] = frozenset({"score"})

    def select(self, score, view, m):
        allowed, chosen = view.allowed, []
        for _ in range(m):
            index, allowed = take_best(-score.alpha, allowed)
            chosen.append(index)
        chosen = torch.stack(chosen, -1)
        return Selection(chosen, {"worth": -score.alpha.gather(-1, chosen)})

    def reason(self, numbers, meaning):
        return f"the smallest {meaning} left: {-numbers['worth']:.3g}"


def test_a_new_rule_is_its_file_and_a_line_in_the_registry(monkeypatch, fitted):
    """The class above and this line are all that it takes: strings, simulations, `query` and reasons know it."""
    monkeypatch.setitem(BATCHINGS, "lowest", Lowest)
    strategy = Strategy.parse("lc:lowest")
    assert strategy.batching == Lowest()
    one = fitted["regression"]
    choice = one.round.choose(strategy, one.state, None, 2)
    smallest = torch.where(choice.alpha.isnan() | (one.rows.counts(100) > 0), torch.inf, choice.alpha).argmin(-1)
    assert torch.equal(choice.selection.index[:, 0], smallest)
    value = float(choice.alpha[0, smallest[0]])
    said, numbers = strategy.reason(choice, 0, 0)
    assert said == f"the smallest disagreement of the members left: {value:.3g}"
    assert numbers == {"worth": pytest.approx(-value)}
    result = simulate(problems.type2(grid=6), ["random", "lc:lowest"], 5, 2, 2, 2, device="cpu", how=one.round)
    assert result.strategies == ("random", "lc:lowest")
    assert result.queried.shape == (2, 2, 9)
    x = np.random.default_rng(0).random((20, 2))
    y = np.where(np.arange(20) < 8, x.sum(1), np.nan)
    index, utilities = query("lc:lowest", x, y, batch_size=2, return_utilities=True, ensemble=one.round.ensemble)
    assert index[0] == np.nanargmin(utilities[0])
    from aicau.core.errors import InputError

    with pytest.raises(InputError, match="lowest"):  # the list of known words has it, too
        Strategy.parse("lc:lowst")
