"""Methods of other packages: their features against dense truths, and what every entry of the registry must do."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from bench.peers import bmdal, gradients, greedy
from bench.peers import hetgpy as het
from bench.peers import qnipv as nipv
from bench.peers.base import Peer, complete
from bench.peers.gp import Box

from aicau import MLP, problems, simulate
from aicau.acquisition import View
from aicau.core import decomposition, streams
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.pool import Pool, standardise
from aicau.ensembles import Members
from aicau.ensembles.kernels import MLPSettings
from bench import peers

QUICK = MLP(settings=MLPSettings(max_epochs=40))
MODULE = {"gs": "skactiveml.pool", "qnipv": "botorch.acquisition.active_learning", "hetgpy": "hetgpy"}


EVERY = {**peers.PEERS, **peers.GP_LINES}


def dense(parameters, x, settings):  # (K, P), (n, d) -> (n, K·P)
    """Gradient features written out, in the order of the parameters."""
    layers = gradients.each(parameters, x, settings)
    parts = [(error[..., :, None] * seen[..., None, :]).flatten(-2) for seen, error in layers]
    return torch.cat(parts, -1).transpose(0, 1).flatten(-2) / parameters.shape[0] ** 0.5


def module_of(name):
    return next((module for start, module in MODULE.items() if name.startswith(start)), "bmdal_reg")


def installed(name):
    pytest.importorskip(module_of(name), reason="the extra peers is not installed")
    return EVERY[name]


@pytest.fixture(scope="module")
def view():
    """Three runs of 16 measurements on a 12 × 12 grid, all of Type I: what was measured is not allowed again."""
    problem, keys = problems.make("type1", grid=12), streams.runs(3, 3)
    index = streams.permutation(keys, problem.pool.n)[:, :16]
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    observations = Observations(index, y, torch.zeros(16, dtype=torch.int64))
    fitted = QUICK.fit(problem.pool.x[index], y, keys)
    measured = observations.counts(problem.pool.n) > 0
    return View(
        problem.pool.coordinates,
        ~measured,
        measured,
        keys,
        fitted.predict(problem.pool.x),
        None,
        fitted,
        observations,
        problem.pool.x,
    )


def features_as_given(phi):
    """The view of one run whose features are `phi` (n, p), as a linear kernel sees them."""
    return lambda view: phi.double()


class TestGradients:
    @pytest.mark.parametrize(("inputs", "hidden"), [(2, (32, 32, 16)), (5, (4,)), (3, ())])
    def test_they_are_those_of_autograd(self, inputs, hidden):
        settings = MLPSettings(hidden=hidden)
        torch.manual_seed(0)
        parameters = torch.randn(3, settings.parameters(inputs), dtype=torch.double)
        x = torch.randn(7, inputs, dtype=torch.double)
        from aicau.ensembles.kernels import reference

        def one(row, at):
            return reference.mlp_forward(row, at[None], settings)[0]

        rows = [torch.func.vmap(torch.func.grad(one), in_dims=(None, 0))(row, x) for row in parameters]
        truth = torch.cat(rows, -1) / 3**0.5
        torch.testing.assert_close(dense(parameters, x, settings), truth)

    def test_the_sketch_is_a_linear_map_of_them(self):
        settings, key = MLPSettings(hidden=(4, 3)), streams.root(1)
        torch.manual_seed(0)
        parameters, x = torch.randn(2, settings.parameters(2), dtype=torch.double), torch.randn(9, 2).double()
        matrix = []  # (P, width) per member: the product of the two Gaussian vectors at each weight
        parts = gradients.each(parameters, x, settings)
        for depth, (seen, error) in enumerate(parts):
            left, right = gradients.projections(streams.fold(key, depth), seen, error, 11)
            matrix.append((right[:, :, None] * left[:, None, :, :]).flatten(1, 2))
        matrix = torch.cat(matrix, 1).flatten(0, 1) / 11**0.5
        truth = dense(parameters, x, settings) @ matrix
        torch.testing.assert_close(gradients.sketch(parameters, x, settings, key, 11), truth)

    def test_the_sketch_keeps_inner_products(self, view):
        parameters, settings = view.fitted.parameters[0], view.fitted.settings
        phi = dense(parameters, view.points, settings).double()
        wide = gradients.sketch(parameters, view.points, settings, streams.root(0), 20_000)
        truth = phi @ phi.mT
        assert ((wide @ wide.mT - truth).norm() / truth.norm()) < 0.03


def test_predictions_as_features_have_sigma_f_as_kernel(view):
    phi = bmdal.prediction_features(view[1:2])
    torch.testing.assert_close(phi @ phi.mT, decomposition.covariance(view.predictions[1].double()).dense())


@pytest.mark.parametrize("name", peers.PEERS)
class TestEveryPeer:
    def test_exactly_m_distinct_allowed_points(self, name, view):
        choice = installed(name).choose(view, 6)
        chosen, alpha = choice.selection.index, choice.alpha
        assert chosen.shape == (3, 6)
        assert chosen.dtype == torch.int64
        assert alpha.shape == view.allowed.shape
        assert choice.plain is None
        assert view.allowed.gather(-1, chosen).all()
        assert all(len(set(row.tolist())) == 6 for row in chosen)
        assert torch.equal(alpha.argmax(-1), chosen[:, 0])

    def test_all_that_is_left_can_be_asked_for(self, name, view):
        few = view.allowed & (torch.arange(view.allowed.shape[-1]) > 135)
        m = int(few.sum(-1).min())
        chosen = installed(name).choose(replace(view, allowed=few), m).selection.index
        assert few.gather(-1, chosen).all()
        assert all(len(set(row.tolist())) == m for row in chosen)
        with pytest.raises(InputError, match="can still be measured"):
            EVERY[name].choose(replace(view, allowed=few), m + 3)

    def test_measured_points_may_be_all_that_is_allowed(self, name, view):
        chosen = installed(name).choose(replace(view, allowed=view.measured), 5).selection.index
        assert view.measured.gather(-1, chosen).all()
        assert all(len(set(row.tolist())) == 5 for row in chosen)

    def test_a_run_does_not_depend_on_its_neighbours_nor_on_the_global_generators(self, name, view):
        peer = installed(name)
        whole = peer.choose(view, 4).selection.index
        torch.manual_seed(99)
        np.random.seed(99)  # noqa: NPY002
        before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        assert torch.equal(peer.choose(view[1:2], 4).selection.index, whole[1:2])
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002

    def test_a_missing_package_is_one_sentence(self, name, view, monkeypatch):
        full = {"bmdal_reg": "bmdal_reg.bmdal.algorithms"}.get(module_of(name), module_of(name))
        monkeypatch.setitem(sys.modules, full, None)
        with pytest.raises(InputError, match=r"needs the extra peers: pip install 'aicau\[peers\]'"):
            EVERY[name].choose(view, 2)

    def test_it_says_what_a_lane_needs(self, name, view):
        peer = EVERY[name]
        assert (peer.name, str(peer), peer.bias) == (name, name, None)
        assert peer == EVERY[name]


class TestBmdal:
    line = torch.tensor([0.0, 3.0, 3.1, 3.2, 3.3, 20.0, 24.0])[:, None]

    def on_the_line(self, view, setting, m):
        """Points on a line, the first of them measured."""
        pytest.importorskip("bmdal_reg", reason="the extra peers is not installed")
        measured = torch.zeros(1, 7, dtype=torch.bool)
        measured[0, 0] = True
        small = View(self.line, ~measured, measured, view.keys[:1])
        return bmdal.select("test", features_as_given(1 + self.line), setting, small, m)

    def test_core_set_takes_the_farthest_point_each_time(self, view):
        assert self.on_the_line(view, bmdal.Setting("maxdist", True), 3) == [6, 5, 4]

    def test_lcmd_takes_the_farthest_point_of_the_largest_cluster(self, view):
        # From 0 alone the farthest is 24. Then squared distances in the cluster of 0 add up to 40, in that of 24 to 16.
        assert self.on_the_line(view, bmdal.Setting("lcmd", True), 3) == [6, 4, 5]

    def test_batchbald_takes_the_largest_determinant(self, view):
        pytest.importorskip("bmdal_reg", reason="the extra peers is not installed")
        phi = prediction = bmdal.prediction_features(view[:1])
        kernel = phi @ prediction.mT
        rows = view.measured[0].nonzero()[:, 0]
        noise = bmdal.SIGMA**2 * kernel.diagonal()[rows].mean()  # they scale the kernel to 1 on the training points
        picked = bmdal.select("test", bmdal.prediction_features, bmdal.PREDICTIONS["batchbald"], view[:1], 3)
        allowed, chosen = view.allowed[0].clone(), []
        for _ in range(3):
            best = {}
            for index in allowed.nonzero()[:, 0].tolist():
                some = [*chosen, index]
                best[index] = torch.logdet(kernel[some][:, some] + noise * torch.eye(len(some)))
            chosen.append(max(best, key=best.get))
            allowed[chosen[-1]] = False
        assert picked == chosen

    def test_gradients_need_networks(self, view):
        with pytest.raises(InputError, match="use sigma features"):
            bmdal.gradient_features(replace(view, fitted=None)[:1])

    def test_one_member_has_no_spread_and_points_are_random(self, view):
        alike = replace(view, predictions=view.predictions[:, :1])
        chosen = installed("batchbald:sigma").choose(alike, 4).selection.index
        assert torch.equal(chosen, torch.stack([complete([], alike[run : run + 1], 4) for run in range(3)]))


class TestGreedySampling:
    def test_one_by_one_is_what_one_call_chooses(self, view):
        pool = pytest.importorskip("skactiveml.pool", reason="the extra peers is not installed")
        one = view[:1]
        x, mean = view.x.numpy(), decomposition.mean(view.predictions[0]).double().numpy()
        y = np.full(len(x), np.nan)
        y[view.observations.index[0]] = view.observations.y[0]
        left = view.allowed[0].nonzero()[:, 0].numpy()
        reg = greedy._fitted(mean[left])
        for method in ("GSi", "GSy"):
            whole = pool.GreedySamplingTarget(method=method).query(x, y, reg, fit_reg=False, batch_size=5)
            assert greedy.select("test", method, one, 5) == whole.tolist()

    def test_gsx_is_farthest_point_in_x(self, view):
        """On a grid points tie, so distances are compared, not points."""
        for run, batch in enumerate(installed("gsx").choose(view, 5).selection.index.tolist()):
            known = view.measured[run].nonzero()[:, 0].tolist()
            for index in batch:
                reach = torch.cdist(view.x, view.x[known]).amin(-1)
                assert reach[index] == pytest.approx(float(reach.max()))
                known.append(index)

    def test_chunks_change_nothing(self, view, monkeypatch):
        whole = installed("gsi").choose(view, 4).selection.index
        monkeypatch.setattr(greedy, "CHUNK", 17)
        assert torch.equal(EVERY["gsi"].choose(view, 4).selection.index, whole)

    def test_it_needs_a_measurement(self, view):
        nothing = replace(view, measured=torch.zeros_like(view.measured))
        with pytest.raises(InputError, match="at least one measurement"):
            installed("gsx").choose(nothing, 2)


def test_too_few_points_are_filled_at_random_from_the_allowed():
    allowed = torch.tensor([[True, False, True, True, True]])
    view = View(torch.zeros(5, 1), allowed, ~allowed, streams.runs(0, 1))
    assert complete([3, 1, 3, 0], view, 2).tolist() == [3, 0]
    assert sorted(complete([3, 1, 3], view, 4).tolist()) == [0, 2, 3, 4]
    choice = Peer("nobody", lambda view, m: []).choose(view, 2)
    assert choice.alpha[0, choice.selection.index[0]].tolist() == [2, 1]


def test_a_peer_stands_where_a_strategy_stands():
    """Same initial points and first model; the pool's features reach the networks as they are, not standardised."""
    names = [name for name in ("lcmd:grad", "bait:sigma", "gsi") if installed(name)]
    problem = problems.make("type2", grid=8)
    settings = {"initial": 6, "batch_size": 3, "rounds": 2, "device": "cpu", "ensemble": QUICK}
    few = simulate(problem, ["random", *(EVERY[name] for name in names)], runs=2, **settings)
    assert few.strategies == ("random", *names)
    assert (few.queried[:, :, :6] == few.queried[:1, :, :6]).all()
    assert (few.mse[:, :, 0] == few.mse[:1, :, 0]).all()
    many = simulate(problem, [EVERY[names[0]]], runs=3, **settings)
    assert np.array_equal(many.queried[0, :2], few.queried[1])


def test_gradients_of_another_ensemble_are_refused():
    forest = pytest.importorskip("sklearn.ensemble").RandomForestRegressor(4)
    problem = problems.make("type2", grid=6)
    settings = {"initial": 6, "batch_size": 2, "rounds": 1, "runs": 1, "device": "cpu", "ensemble": Members(forest)}
    assert simulate(problem, [installed("lcmd:sigma")], **settings).mse.shape == (1, 1, 2)
    with pytest.raises(InputError, match="use sigma features"):
        simulate(problem, [installed("lcmd:grad")], **settings)


@pytest.mark.parametrize("name", peers.GP_LINES)
class TestEveryGPLine:
    def test_its_curve_is_paired_with_every_other_line(self, name):
        line, problem, keys = installed(name), problems.make("type1", grid=8), streams.runs(0, 2)
        mse, queried, seconds = peers.gp_curve(problem, line, 8, 4, 2, keys)
        assert mse.shape == (2, 3)
        assert queried.shape == (2, 16)
        assert seconds > 0
        assert all(len(set(row.tolist())) == 16 for row in queried)  # Type I: nothing is measured twice
        other = simulate(problem, ["random"], initial=8, batch_size=4, rounds=2, runs=2, device="cpu", ensemble=QUICK)
        assert np.array_equal(queried[:, :8], other.queried[0, :, :8])
        alone, asked, _ = peers.gp_curve(problem, line, 8, 4, 2, keys[1:])
        assert np.array_equal(asked, queried[1:])
        np.testing.assert_array_equal(alone, mse[1:])

    def test_the_error_is_that_of_its_posterior_mean(self, name):
        line, problem, keys = installed(name), problems.make("type2", grid=8), streams.runs(0, 1)
        mse, queried, _ = peers.gp_curve(problem, line, 10, 3, 1, keys)
        box, index = Box.of(problem.pool), torch.from_numpy(queried[:, :10])
        y = problem.measure(index, torch.zeros_like(index), keys, 0)
        model = line.fit(box(problem.pool.x[index[0]]), y[0])
        error = ((line.mean(model, box(problem.pool.x)) - problem.truth) ** 2).mean()
        assert mse[0, 0] == pytest.approx(float(error))

    def test_replicates_and_features_that_do_not_vary(self, name):
        line = installed(name)
        torch.manual_seed(0)
        x = torch.rand(30, 3).double()
        x[:, 1] = 0.5  # constant over the pool
        x[:10, 2] = 0.25  # constant among the measured
        index = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 0])
        y = x[index].sum(-1) + 0.1 * torch.randn(14).double()
        box = Box.of(Pool(x))
        assert box(x).shape == (30, 2)
        model = line.fit(box(x[index]), y)
        assert torch.isfinite(line.mean(model, box(x))).all()
        chosen = line.select(model, box(x), torch.ones(30, dtype=torch.bool), 4, streams.root(0))
        assert len(set(chosen)) == 4

    def test_it_chooses_with_its_own_model_only(self, name, view):
        with pytest.raises(InputError, match="run it with gp_curve"):
            EVERY[name].chooser.choose(view, 2)

    def test_a_missing_package_is_one_sentence(self, name, monkeypatch):
        for module in ("hetgpy", "botorch.models"):
            monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(InputError, match=r"needs the extra peers: pip install 'aicau\[peers\]'"):
            peers.gp_curve(problems.make("type2", grid=5), EVERY[name], 5, 1, 1, streams.runs(0, 1))


def small_process(line):
    problem, keys = problems.make("type2", grid=6), streams.runs(1, 1)
    x = Box.of(problem.pool)(problem.pool.x)
    index = torch.cat([streams.permutation(keys, 36)[:, :12]] * 2, -1)  # every point twice
    y = problem.measure(index, torch.zeros_like(index), keys, 0)
    return line.fit(x[index[0]], y[0]), x


def test_the_closed_form_of_the_integrated_variance_is_botorchs():
    active = pytest.importorskip(MODULE["qnipv"], reason="BoTorch is not installed")
    model, x = small_process(nipv.LINE)
    nodes, pending = x[::3], [7, 20]
    variance = nipv.Variance.of(model, nodes, x)
    for index in pending:
        variance = variance.after(model, x, index)
    with torch.no_grad():
        truth = active.qNegIntegratedPosteriorVariance(model, mc_points=nodes, X_pending=x[pending])(x[:, None])
    gain = variance.gain().detach()
    scale = float(model.outcome_transform.stdvs.squeeze()) ** 2
    torch.testing.assert_close(gain - gain[0], (truth - truth[0]) / scale, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["hetGP", "homGP"])
def test_imspe_of_all_candidates_is_hetgpys(kind):
    package = pytest.importorskip("hetgpy", reason="the extra peers is not installed")
    model, x = small_process(het.LINE)
    assert isinstance(model, package.hetGP)
    if kind == "homGP":
        model = het.fit(x[::3], standardise(x[::3].sum(-1) + x[::3, 0] ** 2))
        assert isinstance(model, package.homGP)
    candidates = het.Candidates(model, x.numpy())
    again = int((x.numpy() == model.X0[3]).all(-1).nonzero()[0][0])
    fresh = next(i for i in range(36) if not (x[i].numpy() == model.X0).all(-1).any())
    for index in (None, fresh, again):
        if index is not None:
            candidates.measure(index)
            model.update(Xnew=x[index : index + 1].numpy(), Znew=np.array([np.nan]), maxit=0)
        truth = [float(np.squeeze(model.crit_IMSPE(x=at))) for at in x.numpy()]
        np.testing.assert_allclose(candidates.imspe(), truth, rtol=1e-5)
