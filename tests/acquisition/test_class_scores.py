"""Acquisitions and beliefs for classes: values by hand, forms with a matrix, messages where there is none."""

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats

from aicau import Strategy, View
from aicau.acquisition import ACQUISITIONS, terms
from aicau.bias import BIASES, Belief, Direct, Evidence, Perfect, Posterior, classes, skill
from aicau.core import bregman, streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.task import Task
from aicau.ensembles import MLP
from aicau.ensembles.kernels import MLPSettings
from aicau.problems import class1, class2

TASK = Task("classification", 3)
QUICK = MLP(task=Task("classification", 3), settings=MLPSettings(max_epochs=60))


@pytest.fixture(scope="module")
def small():
    """class2 on a 12 × 12 grid, two runs of 30 labels (some points twice), and the ensemble trained on them."""
    problem = class2(grid=12)
    keys = streams.runs(3, 2)
    index = streams.permutation(keys, problem.pool.n)[:, :24]
    index = torch.cat([index, index[:, :6]], -1)
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    observations = Observations(index, y, torch.arange(30) // 15)
    predictions = QUICK.fit(problem.pool.x[index], y, keys).predict(problem.pool.x)
    return problem, observations, predictions, keys


def evidence_of(small, runs=slice(None)):
    problem, observations, predictions, keys = small
    known = problem.truth.expand(len(keys[runs]), -1, -1)
    return Evidence(
        problem.pool.x, observations[runs], predictions[runs], keys[runs], None, lambda count: known, task=TASK
    )


BELIEFS = {}  # by estimator: fitted once


def view_of(small, estimator="perfect"):
    problem, observations, predictions, keys = small
    counts = observations.counts(problem.pool.n)
    view = View(problem.pool.coordinates, counts >= 0, counts > 0, keys, predictions, task=TASK)
    if estimator not in BELIEFS:
        BELIEFS[estimator] = BIASES[estimator]().believe(evidence_of(small))
    return view.with_estimate(BELIEFS[estimator])


def by_hand(*members, belief=None):
    """One run, one point."""
    every = torch.ones(1, 1, dtype=torch.bool)
    predictions = torch.tensor(members).double()[None, :, None, :]
    task = Task("classification", predictions.shape[-1])
    view = View(torch.zeros(1, 2).double(), every, ~every, torch.zeros(1, dtype=torch.int64), predictions, task=task)
    return view if belief is None else view.with_estimate(belief)


def score(name, view):
    return float(ACQUISITIONS[name]().score(view).alpha)


def test_values_by_hand():
    view = by_hand([0.9, 0.1, 0.0], [0.5, 0.1, 0.4])  # mean (0.7, 0.1, 0.2)
    assert score("lc", view) == pytest.approx(0.3)
    assert score("margin", view) == pytest.approx(0.5)
    whole = stats.entropy([0.7, 0.1, 0.2])
    assert score("entropy", view) == pytest.approx(whole)
    parts = (stats.entropy([0.9, 0.1]) + stats.entropy([0.5, 0.1, 0.4])) / 2
    assert score("bald", view) == pytest.approx(whole - parts)


def test_bald_differs_from_least_confidence_where_labels_are_noise():
    agreed, disputed = by_hand([1 / 3] * 3, [1 / 3] * 3), by_hand([0.9, 0.05, 0.05], [0.05, 0.9, 0.05])
    assert score("lc", agreed) > score("lc", disputed)
    assert score("bald", agreed) == pytest.approx(0, abs=1e-12)
    assert score("bald", disputed) > 0.3


def test_bias_and_epistemic_terms_are_those_of_the_decomposition(small):
    problem, _, predictions, _ = small
    view = view_of(small)
    members = predictions.movedim(1, -2).double()
    label = problem.truth[None, :, None, :]
    parts = bregman.decompose("kl", label, members)
    torch.testing.assert_close(ACQUISITIONS["br"]().score(view).alpha, parts.bias, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(ACQUISITIONS["epistemic"]().score(view).alpha, parts.epistemic, rtol=1e-9, atol=1e-12)
    # p is certain, so the aleatoric term is zero and PEMSE is the whole expected divergence.
    torch.testing.assert_close(ACQUISITIONS["pemse"]().score(view).alpha, parts.total, rtol=1e-9, atol=1e-12)


def test_the_aleatoric_term_cancels_in_the_difference():
    """Same members, the truth as noisy as can be: `entropy` stays, its difference is zero."""
    view = by_hand([1 / 3] * 3, [0.3, 0.3, 0.4])
    now = ACQUISITIONS["entropy"]().score(view)
    assert float(now.alpha) > 1
    assert float(now.difference(now).alpha) == 0


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("kl", lambda m, v, n: stats.beta(m * (m * (1 - m) / v - 1), (1 - m) * (m * (1 - m) / v - 1)).rvs(n)),
        ("poisson", lambda m, v, n: stats.gamma(m**2 / v, scale=v / m).rvs(n)),
        ("squared", lambda m, v, n: stats.norm(m, v**0.5).rvs(n)),
    ],
)
def test_what_is_not_known_is_the_mean_over_what_may_be(name, draw):
    m, v = torch.tensor([[0.2]]).double(), torch.tensor([[0.03]]).double()
    import numpy as np

    np.random.seed(0)  # noqa: NPY002 (scipy's own generator)
    draws = torch.from_numpy(draw(0.2, 0.03, 200_000))[:, None]
    d = bregman.make(name)
    expected = float((d.function(draws) - d.function(m)).mean())
    assert float(terms.unknown(d, m, v)) == pytest.approx(expected, abs=4e-3)
    assert float(terms.unknown(d, m, 0 * v)) == 0
    second = bregman.custom(lambda u: (u**2).sum(-1), lambda u: 2 * u)
    assert float(terms.unknown(second, m, v)) == pytest.approx(0.03)


@pytest.mark.parametrize("estimator", ["perfect", "posterior"])
@pytest.mark.parametrize("form", ["brier", "symmetric"])
@pytest.mark.parametrize("name", ["br", "pemse"])
def test_forms_with_a_matrix(small, estimator, form, name):
    view = view_of(small, estimator)
    found = ACQUISITIONS[name](form=form).score(view)
    dense = found.omega.dense()
    torch.testing.assert_close(dense, dense.mT)
    torch.testing.assert_close(found.alpha, dense.diagonal(dim1=-2, dim2=-1), rtol=1e-3, atol=1e-5)
    for rule in ("eigen", "spread"):
        chosen = Strategy.parse(f"{name}:{estimator}:{rule}:{form}").choose(view, 5).selection.index
        assert len(set(chosen[0].tolist())) == 5


def test_the_forms_are_brier_and_jeffreys(small):
    problem, _, predictions, _ = small
    view = view_of(small)
    members = predictions.movedim(1, -2).double()
    brier = ACQUISITIONS["br"](form="brier").score(view).alpha.double()
    torch.testing.assert_close(brier, ((members.mean(-2) - problem.truth) ** 2).sum(-1), rtol=1e-4, atol=1e-6)
    centre = bregman.dual_mean("kl", members)
    truth = problem.truth.clamp_min(terms.LEAST)
    both = bregman.KL.between(truth, centre) + bregman.KL.between(centre, truth)
    got = ACQUISITIONS["br"](form="symmetric").score(view).alpha.double()
    torch.testing.assert_close(got, both, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("text", ["br:perfect:eigen", "pemse:posterior:eigen", "epistemic:eigen"])
def test_eigen_says_why_not_and_what_works(small, text):
    with pytest.raises(InputError, match=r"kl divergence is not symmetric.*no cobias matrix.*top or spread.*brier"):
        Strategy.parse(text).choose(view_of(small, "direct"), 3)


@pytest.mark.parametrize("text", ["lc:eigen", "entropy:eigen"])
def test_scores_without_a_matrix_say_so(small, text):
    with pytest.raises(InputError, match="has no matrix; use top or spread"):
        Strategy.parse(text).choose(view_of(small), 3)


@pytest.mark.parametrize("text", ["br:perfect", "entropy", "margin", "lc", "bald", "pemse:direct:difference"])
@pytest.mark.parametrize("rule", ["top", "spread", "gain"])
def test_rules_that_need_no_matrix_work(small, text, rule):
    strategy = Strategy.parse(f"{text}:{rule}")
    view = view_of(small, "direct")
    found = strategy.choose(view, 7)
    assert found.selection.index.shape == (2, 7)
    assert torch.isfinite(found.alpha).all()
    assert torch.equal(strategy.choose(view[1:], 7).selection.index, found.selection.index[1:])


def test_words_that_are_not_for_values_or_not_for_classes(small):
    view = by_hand([0.5, 0.5])
    values = View(view.x, view.allowed, view.measured, view.keys, torch.rand(1, 2, 1))
    for word in ("entropy", "margin"):
        with pytest.raises(InputError, match=f"{word}.*is about classes"):
            Strategy.parse(word).choose(values, 1)
    with pytest.raises(InputError, match=r"quadratic completes a matrix.*direct or posterior"):
        BIASES["quadratic"]().believe(evidence_of(small))
    with pytest.raises(InputError, match="has no form 'brier'"):
        Strategy.parse("lc:brier")
    with pytest.raises(InputError, match="perfect information needs"):
        Perfect().believe(Evidence(small[0].pool.x, small[1], small[2], small[3], task=TASK))


@pytest.mark.parametrize("name", ["perfect", "direct", "posterior"])
class TestBelief:
    def test_is_one_about_probabilities(self, small, name):
        belief = view_of(small, name).belief
        assert belief.mean.shape == (2, 144, 3)
        torch.testing.assert_close(belief.mean.sum(-1), torch.ones(2, 144).double())
        variance = belief.variance()
        assert float(belief.mean.min()) >= 0
        assert bool((variance <= belief.mean * (1 - belief.mean) + 1e-12).all())
        assert torch.isfinite(terms.bias(view_of(small, name)).alpha).all()

    def test_a_run_does_not_depend_on_its_neighbours(self, small, name):
        whole = view_of(small, name).belief
        one = BIASES[name]().believe(evidence_of(small, slice(1, 2)))
        assert torch.equal(one.mean, whole.mean[1:])
        assert torch.equal(one.variance(), whole.variance()[1:])


def test_direct_finds_where_a_certain_ensemble_is_wrong():
    """Members say class 0 everywhere; labels are right in class1's way: the belief must turn where labels disagree."""
    problem, keys = class1(grid=12), streams.runs(0, 1)
    index = streams.permutation(keys, 144)[:, :60]
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    sure = torch.tensor([0.8, 0.1, 0.1]).expand(1, 2, 144, 3)
    seen = Observations(index, y, torch.zeros(60, dtype=torch.int64))
    belief = Direct().believe(Evidence(problem.pool.x, seen, sure, keys, task=TASK))
    right = (belief.mean[0].argmax(-1) == problem.label).double().mean()
    assert float((problem.label == 0).double().mean()) < 0.5
    assert float(right) > 0.6


@pytest.mark.parametrize("name", ["direct", "posterior"])
@pytest.mark.parametrize("rows", [1, 5])
def test_one_label_one_class_and_members_that_are_certain(name, rows):
    problem, keys = class2(grid=6), streams.runs(0, 1)
    sure = torch.tensor([1.0, 0.0, 0.0]).expand(1, 2, 36, 3)
    seen = Observations(torch.arange(rows)[None], torch.ones(1, rows), torch.zeros(rows, dtype=torch.int64))
    belief = BIASES[name]().believe(Evidence(problem.pool.x, seen, sure, keys, task=TASK))
    assert torch.isfinite(belief.mean + belief.variance()).all()
    every = torch.ones(1, 36, dtype=torch.bool)
    view = View(problem.pool.coordinates, every, ~every, keys, sure, task=TASK).with_estimate(belief)
    assert not torch.isnan(ACQUISITIONS["pemse"]().score(view).alpha).any()
    assert Strategy.parse(f"br:{name}:spread").choose(view, 4).selection.index.unique().numel() == 4


def test_frequencies_are_shares_of_labels():
    seen, share = classes.frequencies(
        Observations(torch.tensor([[5, 2, 5, 5]]), torch.tensor([[0.0, 1, 2, 2]]), torch.zeros(4, dtype=torch.int64)), 3
    )
    assert seen.index[0, :2].tolist() == [2, 5]
    torch.testing.assert_close(share[0, :2], torch.tensor([[0, 1, 0], [1 / 3, 0, 2 / 3]]).double())


def test_posterior_knows_least_where_nothing_was_measured():
    problem = class2()
    keys = streams.runs(0, 1)
    left = (problem.pool.x[:, 0] < 3).nonzero()[:, 0]
    index = left[streams.permutation(keys, len(left))[:, :60]]
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    flat = torch.full((1, 2, 2500, 3), 1 / 3)
    evidence = Evidence(
        problem.pool.x, Observations(index, y, torch.zeros(60, dtype=torch.int64)), flat, keys, task=TASK
    )
    belief = Posterior().believe(evidence)
    variance = belief.variance()[0].sum(-1)
    assert float(variance[problem.pool.x[:, 0] > 5].mean()) > 3 * float(variance[left].mean())
    right = belief.mean[0, left].argmax(-1) == problem.label[left]
    assert float(right.double().mean()) > 0.8


def test_of_what_a_label_varies_the_unknown_has_its_share():
    """p̂(1 − p̂) of each class is split as the process splits its variance: 1 to 3, and all noise."""
    mean = torch.tensor([[[0.5, 0.5], [0.9, 0.1]]]).double()
    factor = torch.tensor([[[[0.2], [0.0]], [[0.2], [0.0]]]]).double()  # (1, c, n, 1)
    rest, own = torch.tensor([[[0.01, 0.01], [0.0, 0.0]]]).double(), torch.full((1, 2, 2), 0.15).double()
    belief = classes.on_simplex(mean, factor, rest, own)
    torch.testing.assert_close(belief.mean, mean)
    torch.testing.assert_close(belief.variance(), 0.999 * torch.tensor([[[0.25 / 4, 0.25 / 4], [0.0, 0.0]]]).double())


def test_posterior_tells_noise_from_what_is_unknown():
    """Labels that disagree at the same points are noise; the same labels at points apart may be either."""
    x = torch.linspace(0, 6, 40)[:, None].double()
    keys = torch.zeros(1, dtype=torch.int64)
    predictions = torch.full((1, 2, 40, 2), 0.5).double()

    def unknown(index):
        y = torch.tensor([0.0, 1.0] * 12).double()[None]
        o = Observations(torch.tensor(index)[None], y, torch.zeros(24, dtype=torch.int64))
        belief = Posterior().believe(Evidence(x, o, predictions, keys, task=Task("classification", 2)))
        torch.testing.assert_close(belief.mean[0, 20], torch.tensor([0.5, 0.5]).double(), atol=0.1, rtol=0)
        return float(terms.unknown(bregman.KL, belief.mean, belief.variance())[0, 20])

    replicated = unknown([5] * 4 + [12] * 4 + [20] * 8 + [28] * 4 + [35] * 4)
    assert replicated < 0.1 * math.log(2)  # nearly all of the entropy is the label's own
    assert replicated < unknown(list(range(0, 36, 3)) + list(range(4, 40, 3)))


def test_counts_have_beliefs_and_the_poisson_divergence(small):
    """The seam for counts: rates (..., K, n), one entry per vector."""
    problem, observations, _, keys = small
    task, n = Task("count"), problem.pool.n
    rates = 1 + torch.rand(2, 4, n)
    counts = Observations(observations.index, observations.y.round() + 1, observations.round)
    evidence = Evidence(problem.pool.x, counts, rates, keys, task=task)
    every = torch.ones(2, n, dtype=torch.bool)
    for name in ("direct", "posterior"):
        belief = BIASES[name]().believe(evidence)
        assert belief.mean.shape == (2, n, 1)
        view = View(problem.pool.coordinates, every, ~every, keys, rates, task=task)
        view = view.with_estimate(Belief(belief.mean.clamp_min(1e-3), belief.factor, belief.rest))
        alpha = ACQUISITIONS["pemse"]().score(view).alpha
        assert torch.isfinite(alpha).all()
        assert float(alpha.min()) >= 0
    mean, middle = rates.double().mean(1)[..., None], rates.double().log().mean(1).exp()[..., None]
    flat = View(problem.pool.coordinates, every, ~every, keys, rates, task=task).with_estimate(Belief(mean))
    gap = bregman.divergence("poisson", mean, middle)
    torch.testing.assert_close(ACQUISITIONS["br"]().score(flat).alpha, gap)
    assert math.isfinite(float(gap.max()))


def told(labels, members, unseen=None):
    """One run of points 0, 1, ... with one label each; members (K, l, c)."""
    o = Observations(
        torch.arange(len(labels))[None], torch.tensor(labels).double()[None], torch.zeros(len(labels)).long()
    )
    predictions = torch.tensor(members).double()[None]
    task = Task("classification", predictions.shape[-1])
    outside = None if unseen is None else torch.tensor(unseen)[None]
    x = torch.arange(len(labels)).double()[:, None]
    return Evidence(x, o, predictions, torch.zeros(1, dtype=torch.int64), outside, task=task)


RIGHT, WRONG = [0.9, 0.1], [0.1, 0.9]


def test_skill_is_the_share_of_the_entropy_that_is_explained():
    found = float(skill(told([0, 0, 1, 1], [[RIGHT, RIGHT, WRONG, WRONG]])))
    sure = math.log(0.9**1.4 / (0.9**1.4 + 0.1**1.4))  # the largest power is the best where all is right
    assert found == pytest.approx(1 - sure / math.log(1 / 2))


def test_skill_is_none_where_labels_are_not_foretold():
    assert float(skill(told([0, 1, 0, 1], [[RIGHT, RIGHT, RIGHT, RIGHT]]))) == 0
    assert float(skill(told([0, 0, 0, 1], [[WRONG, WRONG, WRONG, RIGHT]]))) == 0


def test_skill_counts_only_labels_that_a_member_had_not_seen():
    """Each member is right about what it saw and wrong about the rest."""
    members = [[RIGHT, RIGHT, RIGHT, RIGHT], [WRONG, WRONG, WRONG, WRONG]]
    unseen = [[False, False, True, True], [True, True, False, False]]
    assert float(skill(told([0, 0, 1, 1], members, unseen))) == 0
    assert float(skill(told([0, 0, 1, 1], members, [[not one for one in row] for row in unseen]))) > 0.5


def test_skill_counts_labels_of_the_first_batch_only_where_there_is_no_other():
    """Four labels told together are all foretold, the two told later are not."""
    evidence = told([0, 0, 1, 1, 0, 1], [[RIGHT, RIGHT, WRONG, WRONG, WRONG, RIGHT]])
    assert float(skill(evidence)) > 0.05
    o = evidence.observations
    later = Observations(o.index, o.y, o.round, torch.tensor([[7, 7, 7, 7, 8, 9]]))
    assert float(skill(replace(evidence, observations=later))) == 0
    first = Observations(o.index, o.y, o.round, torch.tensor([[8, 9, 9, 9, 8, 8]]))
    alone = told([0, 1, 1], [[RIGHT, WRONG, WRONG]])
    often = math.log(4 / 8)  # half of all six labels
    sure = 1 - math.log(0.9**1.4 / (0.9**1.4 + 0.1**1.4)) / often
    assert float(skill(replace(evidence, observations=first))) == pytest.approx(sure)
    assert float(skill(alone)) > 0


def test_trust_by_hand():
    """Two points: members agree on one, and differ by 0.4 in each of two classes at the other: u = 0 and 2·0.2²."""
    flags = torch.ones(1, 2, dtype=torch.bool)
    predictions = torch.tensor([[[0.5, 0.5], [0.9, 0.1]], [[0.5, 0.5], [0.5, 0.5]]]).double()[None]
    view = View(torch.eye(2), flags, ~flags, streams.runs(0, 1), predictions, task=Task("classification", 2))
    for share, expected in ((0.0, [0.04, 0.04]), (1.0, [0.0, 0.08]), (0.25, [0.03, 0.05])):
        alpha = ACQUISITIONS["trust"]().score(replace(view, skill=torch.tensor([share]))).alpha
        assert alpha[0].tolist() == pytest.approx(expected, abs=1e-7)
    with pytest.raises(InputError, match="'trust' is about classes"):
        Strategy.parse("trust:spread").choose(view, 1)


def test_without_skill_trust_fills_the_space_like_farthest(small):
    view = replace(view_of(small), skill=torch.zeros(2))
    chosen = Strategy.parse("trust:spread").choose(view, 6).selection.index
    assert torch.equal(chosen, Strategy.parse("farthest").choose(view, 6).selection.index)
    sure = Strategy.parse("trust:spread").choose(replace(view, skill=torch.ones(2)), 6).selection.index
    assert not torch.equal(chosen, sure)


def test_skill_of_a_run_does_not_depend_on_its_neighbours(small):
    whole = skill(evidence_of(small))
    assert whole.shape == (2,)
    assert torch.equal(skill(evidence_of(small, slice(1, 2))), whole[1:])
