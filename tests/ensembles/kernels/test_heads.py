"""Softmax and Poisson heads: gradients by autograd, training against the reference, classifiers of other packages."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from test_kernels import flat_gradient, mlp_gradient, module_from
from torch import nn

from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.task import Task
from aicau.ensembles import MLP, Classifiers, Modules, kernels
from aicau.ensembles.kernels import MLPSettings, reference

SOFTMAX, POISSON = MLPSettings(head="softmax", outputs=3), MLPSettings(head="poisson")


def data(settings, runs=3, members=4, rows=23, inputs=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(runs, rows, inputs, generator=g) * 6
    if settings.head == "softmax":
        y = torch.softmax(2 * torch.randn(runs, rows, settings.outputs, generator=g), -1)
    else:
        y = torch.poisson(2 + 2 * torch.sin(x[..., :1]), generator=g)
    weights = (torch.rand(runs, members, rows, generator=g) > 0.2).float()
    parameters = (torch.rand(runs, members, settings.parameters(inputs), generator=g) * 2 - 1) * 0.3
    return x, y, weights, parameters


def loss_of(module, x, y, head):
    if head == "softmax":
        return nn.functional.cross_entropy(module(x), y)
    return nn.functional.poisson_nll_loss(module(x), y, log_input=True)


@pytest.mark.parametrize("rows", [1, 17, 80])
@pytest.mark.parametrize(
    "settings",
    [SOFTMAX, POISSON, MLPSettings((7, 5), head="softmax", outputs=2), MLPSettings((6,), head="softmax", outputs=9)],
)
def test_gradient_equals_a_plain_module(settings, rows):
    x, y, _, parameters = data(settings, 1, 1, rows)
    module = module_from(parameters[0, 0], settings, 2)
    loss = loss_of(module, x[0], y[0], settings.head)
    loss.backward()
    got, gradient = mlp_gradient(x[0].numpy(), y[0].numpy(), parameters[0, 0].numpy(), settings)
    assert got == pytest.approx(float(loss.detach()), rel=1e-5, abs=1e-6)
    np.testing.assert_allclose(gradient, flat_gradient(module).numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("head", [SOFTMAX, POISSON], ids=["softmax", "poisson"])
class TestTraining:
    def test_equals_torch_adam_on_a_plain_module(self, head):
        settings = MLPSettings(max_epochs=25, weight_decay=1e-3, head=head.head, outputs=head.outputs)
        x, y, _, parameters = data(settings, 1, 1, 20)
        module = module_from(parameters[0, 0], settings, 2)
        optimiser = torch.optim.Adam(module.parameters(), 1e-3, weight_decay=1e-3)
        for _ in range(25):
            optimiser.zero_grad()
            loss_of(module, x[0], y[0], settings.head).backward()
            optimiser.step()
        trained, epochs, _ = kernels.train_mlp(x, y, torch.ones(1, 1, 20), parameters, settings)
        assert int(epochs) == 25
        got = reference.mlp_outputs(trained[0, 0], x[0], settings)
        torch.testing.assert_close(got, module(x[0]).detach(), rtol=1e-4, atol=1e-5)

    def test_equals_the_reference(self, head):
        settings = MLPSettings(max_epochs=40, head=head.head, outputs=head.outputs)
        arguments = data(settings)
        ours, theirs = kernels.train_mlp(*arguments, settings), reference.train_mlp(*arguments, settings)
        torch.testing.assert_close(ours[0], theirs[0], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(ours[2], theirs[2], rtol=1e-3, atol=1e-5)
        assert torch.equal(ours[1], theirs[1])
        x = arguments[0]
        torch.testing.assert_close(
            kernels.mlp_forward(ours[0], x, settings),
            reference.mlp_forward(ours[0], x[:, None], settings),
            rtol=1e-4,
            atol=1e-6,
        )

    def test_a_network_depends_on_its_own_data_only(self, head):
        arguments = data(head, runs=5)
        whole = kernels.train_mlp(*arguments, head)[0]
        for runs in ([4], [3, 1]):
            assert torch.equal(kernels.train_mlp(*(t[runs] for t in arguments), head)[0], whole[runs])
        at = torch.rand(1, 131, 2)
        assert torch.equal(
            kernels.mlp_forward(whole, at, head)[2:3], kernels.mlp_forward(whole[2:3].contiguous(), at, head)
        )


def test_settings_that_cannot_be_meant_are_refused():
    for wrong, message in (
        ({"head": "tanh"}, "unknown head"),
        ({"head": "softmax"}, "two outputs"),
        ({"outputs": 2}, "one"),
    ):
        with pytest.raises(InputError, match=message):
            MLPSettings(**wrong)


def three_classes(lead=(2,), rows=60):
    x = 6 * streams.uniform(streams.runs(5, 1), *lead, rows, 2)[0]
    return x, (x[..., 0] // 2).clamp_max(2), streams.runs(0, lead[-1]).expand(lead)


class Wide(nn.Sequential):
    def __init__(self, inputs):
        super().__init__(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, 3))


ENSEMBLES = {
    "mlp": MLP(task=Task("classification", 3)),
    "scikit-learn": Classifiers([LogisticRegression(), DecisionTreeClassifier(), DecisionTreeClassifier()], 3),
    "modules": Modules(Wide, classes=3, members=2, epochs=200, learning_rate=1e-2),
}


@pytest.mark.parametrize("ensemble", ENSEMBLES.values(), ids=ENSEMBLES)
class TestClassifiers:
    def test_members_give_probabilities_that_know_the_classes(self, ensemble):
        x, y, keys = three_classes()
        fitted = ensemble.fit(x, y, keys)
        out = fitted.predict(x)
        assert out.shape == (2, fitted.unseen.shape[-2], 60, 3)
        torch.testing.assert_close(out.double().sum(-1), torch.ones(out.shape[:-1]).double(), rtol=0, atol=1e-6)
        assert float(out.min()) > 0
        right = (out.mean(1).argmax(-1) == y).double().mean()
        assert float(right) > 0.8
        assert torch.equal(fitted[1:].predict(x[1:]), out[1:])

    def test_a_run_does_not_depend_on_its_neighbours(self, ensemble):
        x, y, keys = three_classes((3,), 21)
        at = x[0, :7]
        whole = ensemble.fit(x, y, keys).predict(at)
        assert torch.equal(ensemble.fit(x[1:2], y[1:2], keys[1:2]).predict(at), whole[1:2])

    def test_one_class_only_and_one_row_only(self, ensemble):
        x, _, keys = three_classes((2,), 9)
        out = ensemble.fit(x, torch.ones(2, 9), keys).predict(x)
        assert bool((out.mean(1).argmax(-1) == 1).all())
        assert torch.isfinite(ensemble.fit(x[:, :1], torch.zeros(2, 1), keys).predict(x)).all()

    @pytest.mark.parametrize("label", [3.0, -1.0, 0.5, float("nan")])
    def test_what_is_no_class_is_refused(self, ensemble, label):
        x, y, keys = three_classes((2,), 9)
        y[0, 3] = label
        with pytest.raises(InputError, match="whole numbers from 0 to 2"):
            ensemble.fit(x, y, keys)


def test_a_class_no_member_saw_gets_the_floor():
    x, y, keys = three_classes((1,), 30)
    out = Classifiers([LogisticRegression()] * 2, 4, floor=0.04).fit(x, y, keys).predict(x)
    torch.testing.assert_close(out[..., 3], torch.full_like(out[..., 3], 0.01))


def test_wrong_members_are_refused():
    from sklearn.svm import LinearSVC

    with pytest.raises(InputError, match="no predict_proba"):
        Classifiers([LinearSVC()], 3)
    with pytest.raises(InputError, match="at least one member"):
        Classifiers([], 3)
    x, y, keys = three_classes((1,), 9)
    with pytest.raises(InputError, match="one output per class"):
        Modules(Wide, classes=4, members=1, epochs=1).fit(x, y, keys)


def test_counts_find_the_rate_whatever_its_size():
    x = 6 * streams.uniform(streams.runs(5, 1), 3, 80, 2)[0]
    shape = 1 + 0.8 * torch.sin(x[..., 0])
    size = torch.tensor([3.0, 10.0, 5000.0]).double()[:, None]
    y = torch.poisson(size * shape, generator=torch.Generator().manual_seed(0))
    fitted = MLP(task=Task("count")).fit(x, y, streams.runs(0, 3))
    out = fitted.predict(x)
    assert out.shape == (3, 5, 80)
    assert float(out.min()) > 0
    error = ((out.double().mean(1) / size - shape) ** 2).mean(-1)
    spread = shape.var(-1)
    assert bool((error < torch.tensor([0.6, 0.2, 0.1]) * spread).all()), error / spread


def test_counts_that_are_all_zero_or_negative():
    x = torch.rand(1, 9, 2)
    out = MLP(task=Task("count")).fit(x, torch.zeros(1, 9), streams.runs(0, 1)).predict(x)
    assert torch.isfinite(out).all()
    assert float(out.max()) < 0.5
    with pytest.raises(InputError, match="not negative"):
        MLP(task=Task("count")).fit(x, -torch.ones(1, 9), streams.runs(0, 1))
