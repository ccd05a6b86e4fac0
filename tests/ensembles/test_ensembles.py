from dataclasses import replace

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from sklearn.ensemble import BaggingRegressor, GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from torch import nn

from aicau import MLP, Members, Modules, PosteriorSamples, Regressors
from aicau.core import streams
from aicau.core.errors import InputError, TrainingError
from aicau.ensembles import Process
from aicau.ensembles.base import fold_membership
from aicau.ensembles.kernels import MLPSettings


def distinct(runs, rows):
    """Rows with features of their own."""
    return torch.arange(rows).double()[:, None].expand(runs, -1, -1)


def test_folds_are_a_partition_and_members_see_four_fifths():
    unseen = fold_membership(streams.runs(0, 3), 5, distinct(3, 100))
    assert torch.equal(unseen.sum(-2), torch.ones(3, 100, dtype=torch.int64))
    assert torch.equal((~unseen).sum(-1), torch.full((3, 5), 80))
    assert not torch.equal(unseen[0], unseen[1])


def test_with_few_rows_no_member_is_left_without_data():
    for rows in (1, 2, 3):
        seen = (~fold_membership(streams.runs(0, 4), 5, distinct(4, rows))).sum(-1)
        assert int(seen.min()) >= 1
    assert not fold_membership(streams.runs(0, 1), 1, distinct(1, 7)).any()  # a single member sees everything


def test_replicates_of_a_point_stand_in_one_fold_and_points_are_dealt_out_evenly():
    point = torch.tensor([4, 0, 1, 4, 2, 3, 0, 4, 5, 4])
    x = torch.rand(6, 3).double()[point].expand(50, -1, -1)
    unseen = fold_membership(streams.runs(0, 50), 3, x)
    for one in range(6):
        rows = unseen[..., point == one]
        assert torch.equal(rows, rows[..., :1].expand_as(rows))
    first = [point.tolist().index(one) for one in range(6)]
    assert torch.equal(unseen[..., first].sum(-1), torch.full((50, 3), 2))  # six points, two in each fold
    assert torch.equal(unseen.sum(-2), torch.ones(50, 10, dtype=torch.int64))
    assert not fold_membership(streams.runs(0, 4), 5, x[:4, [0, 3, 7]]).any()  # one point: everyone sees it


def test_the_paper_ensemble_learns():
    x = torch.rand(2, 150, 2, dtype=torch.double) * 6.28
    y = torch.sin(x).prod(-1)
    fitted = MLP().fit(x, y, streams.runs(0, 2))
    predictions = fitted.predict(x)
    assert predictions.shape == (2, 5, 150)
    assert float(((predictions.mean(1) - y) ** 2).mean()) < 0.3 * float(y.var())
    assert fitted.unseen.shape == (2, 5, 150)
    assert int(fitted.epochs.max()) <= 500


def test_out_of_fold_errors_are_larger_than_errors_in_fold():
    x = torch.rand(8, 40, 2, dtype=torch.double) * 6.28
    y = torch.sin(1.5 * x).prod(-1)
    fitted = MLP().fit(x, y, streams.runs(0, 8))
    square = (fitted.predict(x) - y[:, None]) ** 2
    assert float(square[fitted.unseen].mean()) > 1.1 * float(square[~fitted.unseen].mean())


def test_same_key_same_weights_and_other_key_other_weights():
    x, y = torch.rand(1, 12, 2), torch.rand(1, 12)
    small = MLP(settings=MLPSettings(max_epochs=3))
    a, b, c = (small.fit(x, y, streams.runs(seed, 1)).parameters for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_bad_input_is_one_sentence():
    keys = streams.runs(0, 1)
    with pytest.raises(InputError, match="members must be a whole number of at least 1; got 0"):
        MLP(members=0)
    with pytest.raises(InputError, match="at least one member"):
        Regressors([])
    with pytest.raises(InputError, match="NaN or infinity"):
        MLP().fit(torch.full((1, 3, 2), torch.nan), torch.zeros(1, 3), keys)
    with pytest.raises(InputError, match="at least one measurement"):
        MLP().fit(torch.zeros(1, 0, 2), torch.zeros(1, 0), keys)
    with pytest.raises(InputError, match="got shapes"):
        MLP().fit(torch.zeros(1, 4, 2), torch.zeros(1, 3), keys)
    with pytest.raises(TrainingError, match="scale the target"):
        MLP().fit(torch.rand(1, 9, 2), torch.full((1, 9), 1e30), keys)
    rows = torch.rand(1, 9, 2), torch.rand(1, 9), keys
    with pytest.raises(InputError, match="has no members"):
        Members(LinearRegression()).fit(*rows)
    with pytest.raises(InputError, match=r"do not average to what it predicts .*; use Regressors"):
        Members(GradientBoostingRegressor(n_estimators=3)).fit(*rows)
    with pytest.raises(InputError, match=r"such as Ridge.*; got <class"):
        Members(RandomForestRegressor)
    with pytest.raises(InputError, match=r"takes a list of them; got LinearRegression"):
        Regressors(LinearRegression())


def test_modules_that_a_factory_must_not_make():
    rows, one = (torch.rand(1, 9, 2), torch.rand(1, 9), streams.runs(0, 1)), nn.Linear(2, 1)
    for factory, got in ((lambda d: one, "the same one again"), (lambda d: None, "None")):
        with pytest.raises(InputError, match=f"makes a new torch.nn.Module each time; it gave {got}"):
            Modules(factory, epochs=1).fit(*rows)
    with pytest.raises(InputError, match="one number per row; for 7 rows it gave 21"):
        Modules(lambda d: nn.Linear(d, 3), epochs=1).fit(*rows)


@pytest.fixture
def line():
    x = torch.linspace(0, 1, 30, dtype=torch.double).reshape(1, 30, 1).repeat(2, 1, 1)
    return x, 2 * x[..., 0] + 1, streams.runs(0, 2)


def test_regressors_are_trained_on_the_other_folds(line):
    x, y, keys = line
    y = y + torch.randn(30, generator=torch.Generator().manual_seed(0))
    fitted = Regressors([LinearRegression(), DecisionTreeRegressor()]).fit(x, y, keys)
    predictions = fitted.predict(x[0])
    rows = ~fitted.unseen[1, 0]
    by_hand = LinearRegression().fit(x[1, rows].numpy(), y[1, rows].numpy()).predict(x[1].numpy())
    np.testing.assert_allclose(predictions[1, 0].numpy(), by_hand)
    tree_rows = ~fitted.unseen[1, 1]
    torch.testing.assert_close(predictions[1, 1][tree_rows], y[1][tree_rows])  # a tree memorises what it saw


def test_models_inside_a_pipeline_have_the_seed_of_the_run(line):
    x, y, keys = line
    forests = Regressors([make_pipeline(StandardScaler(), RandomForestRegressor(3))] * 2)
    noisy = y + torch.randn(30, generator=torch.Generator().manual_seed(0))
    once, again = (forests.fit(x, noisy, keys).predict(x[0]) for _ in range(2))
    assert torch.equal(once, again)


def test_a_forest_gives_its_trees_and_bagging_its_rows(line):
    x, y, keys = line
    forest = Members(RandomForestRegressor(7, random_state=0)).fit(x, y, keys)
    model = RandomForestRegressor(7, random_state=0).fit(x[0].numpy(), y[0].numpy())
    np.testing.assert_allclose(forest.predict(x).mean(1)[0].numpy(), model.predict(x[0].numpy()))
    bagging = Members(BaggingRegressor(LinearRegression(), 6, max_samples=0.5)).fit(x, y, keys)
    assert bagging.predict(x).shape == (2, 6, 30)
    assert 0.5 <= float(bagging.unseen.float().mean()) < 0.9
    torch.testing.assert_close(bagging.predict(x)[0], y[:1].expand(6, 30))


@pytest.mark.slow
def test_a_module_factory_is_trained(line):
    x, y, keys = line
    modules = Modules(lambda d: nn.Linear(d, 1), members=3, epochs=800, learning_rate=0.05)
    fitted = modules.fit(x, y, keys)
    torch.testing.assert_close(fitted.predict(x[0]), y[:, None].expand(2, 3, 30).float(), atol=0.02, rtol=0.02)
    once, again = (replace(modules, epochs=5).fit(x, y, keys).predict(x[0]) for _ in range(2))
    assert torch.equal(once, again)


def test_posterior_samples_have_the_moments_of_the_posterior(line):
    x, y, keys = line

    def fit(a, b):
        model = SingleTaskGP(a[::10], b[::10])
        return model.eval()

    fitted = PosteriorSamples(fit, members=4000).fit(x, y, keys)
    at = torch.linspace(0, 1, 9, dtype=torch.double)[:, None]
    samples = fitted.predict(at)
    with torch.no_grad():
        posterior = fitted.functions[0].model.posterior(at)
    torch.testing.assert_close(samples[0].mean(0), posterior.mean[:, 0], atol=0.06, rtol=0.05)
    torch.testing.assert_close(samples[0].var(0), posterior.variance[:, 0], atol=0.03, rtol=0.1)
    assert not torch.equal(samples[0], samples[1])
    assert not fitted.unseen.any()


@pytest.mark.parametrize(
    "ensemble",
    [
        MLP(settings=MLPSettings(max_epochs=5)),
        Regressors([DecisionTreeRegressor(), LinearRegression()]),
        PosteriorSamples(SingleTaskGP, members=3),
    ],
    ids=lambda ensemble: type(ensemble).__name__,
)
def test_some_runs_of_a_fitted_ensemble_predict_as_they_do_within_all(ensemble):
    torch.manual_seed(0)
    x, at = torch.rand(2, 3, 9, 2).double(), torch.rand(4, 2).double()
    fitted = ensemble.fit(x, x.sum(-1), streams.runs(0, 3).expand(2, 3))
    whole = fitted.predict(at)
    for run in (1, slice(1, 2), [1, 0, 1]):
        torch.testing.assert_close(fitted[run].predict(at), whole[run])
        assert torch.equal(fitted[run].unseen, fitted.unseen[run])
    torch.testing.assert_close(fitted[1][2:3].predict(at), whole[1, 2:3])


def wavy(rows, seed=0, noise=0.1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(2, rows, 3, generator=generator, dtype=torch.double)
    y = torch.sin(5 * x[..., 0]) + x[..., 1] + noise * torch.randn(2, rows, generator=generator, dtype=torch.double)
    return x, y, streams.runs(0, 2)


def test_members_of_a_process_average_to_the_posterior_means_of_its_folds():
    x, y, keys = wavy(40)
    fitted = Process(members=7).fit(x, y, keys)
    out = fitted.predict(x)
    at = [(own - one.shift) / one.scale for own, one in zip(x, fitted.functions, strict=True)]
    expected = torch.stack(
        [one.posterior.mean(at[i].expand(7, -1, -1)).mean(0) for i, one in enumerate(fitted.functions)]
    )
    torch.testing.assert_close(out.double().mean(-2), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(fitted[[1]].predict(x[1:]), out[1:])
    assert torch.equal(fitted.unseen, fold_membership(keys, 7, distinct(len(keys), 40)))


def left_out(fitted):
    """Every measurement by the mean of the process that did not see it."""
    posteriors = [one.posterior for one in fitted.functions]
    means = torch.stack([posterior.mean(posterior.rows.x) for posterior in posteriors])  # (runs, K, l)
    assert bool((fitted.unseen.sum(-2) == 1).all())
    return (means * fitted.unseen).sum(-2)


def test_a_measurement_has_no_part_in_its_own_left_out_prediction():
    x, y, keys = wavy(30)
    before = left_out(Process().fit(x, y, keys))
    changed = y.clone()
    changed[:, 4] += 3
    after = left_out(Process().fit(x, changed, keys))
    assert torch.equal(after[:, 4], before[:, 4])
    assert not torch.equal(after, before)
