"""The fused kernels against plain PyTorch: gradient, whole training, early stopping, independence of neighbours."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from aicau.bias.quadratic import initial_parameters, split_pairs
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.runs import threads
from aicau.ensembles import kernels
from aicau.ensembles.kernels import EmbeddingSettings, MLPSettings, cpu, pairs, reference


def data(runs=3, members=4, rows=23, inputs=2, settings=MLPSettings(), seed=0):  # noqa: B008
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(runs, rows, inputs, generator=g) * 6
    y = torch.sin(1.5 * x).prod(-1)
    weights = (torch.rand(runs, members, rows, generator=g) > 0.2).float()
    parameters = (torch.rand(runs, members, settings.parameters(inputs), generator=g) * 2 - 1) * 0.3
    return x, y, weights, parameters


def module_from(parameters, settings, inputs):
    """A plain torch.nn network with the same numbers in it."""
    layers, at = [], 0
    for o, i in settings.layers(inputs):
        linear = nn.Linear(i, o)
        block = parameters[at : at + o * (i + 1)].reshape(o, i + 1)
        linear.weight.data, linear.bias.data = block[:, :-1].clone(), block[:, -1].clone()
        layers += [linear, nn.ReLU()]
        at += o * (i + 1)
    return nn.Sequential(*layers[:-1])


def flat_gradient(module):
    linears = [layer for layer in module if isinstance(layer, nn.Linear)]
    return torch.cat([torch.cat([a.weight.grad, a.bias.grad[:, None]], 1).flatten() for a in linears])


def mlp_gradient(x, y, parameters, settings):
    """Loss and gradient of one network on all its points, as the fused kernel computes them."""
    sizes, rows = np.array(settings.sizes(x.shape[1])), len(x)
    a, d = (np.zeros((count, sizes.max() + 1, rows), np.float32) for count in (len(sizes), 2))
    a[0, : sizes[0]] = x.T
    target, weight = np.ascontiguousarray(y.reshape(rows, -1).T), np.full(rows, 1 / rows, np.float32)
    gradient = np.zeros_like(parameters)
    head = kernels.HEADS.index(settings.head)
    return float(cpu.mlp_gradient(parameters, gradient, a, d, sizes, target, weight, head)), gradient


@pytest.mark.parametrize(
    ("hidden", "inputs", "rows"), [((32, 32, 16), 2, 80), ((7, 5), 3, 17), ((10,), 1, 1), ((6, 6, 6, 6), 9, 33)]
)
def test_gradient_of_the_training_step_equals_a_plain_module(hidden, inputs, rows):
    settings = MLPSettings(hidden=hidden)
    x, y, _, parameters = data(1, 1, rows, inputs, settings)
    module = module_from(parameters[0, 0], settings, inputs)
    loss = nn.functional.mse_loss(module(x[0])[:, 0], y[0])
    loss.backward()
    got, gradient = mlp_gradient(x[0].numpy(), y[0].numpy(), parameters[0, 0].numpy(), settings)
    assert got == pytest.approx(float(loss.detach()), rel=1e-5)
    np.testing.assert_allclose(gradient, flat_gradient(module).numpy(), rtol=1e-4, atol=1e-6)


def test_training_equals_torch_adam_on_a_plain_module():
    settings = MLPSettings(max_epochs=25, weight_decay=1e-3)
    x, y, _, parameters = data(1, 1, 20, settings=settings)
    module = module_from(parameters[0, 0], settings, 2)
    optimiser = torch.optim.Adam(module.parameters(), 1e-3, weight_decay=1e-3)
    for _ in range(25):
        optimiser.zero_grad()
        nn.functional.mse_loss(module(x[0])[:, 0], y[0]).backward()
        optimiser.step()
    trained, epochs, _ = kernels.train_mlp(x, y, torch.ones(1, 1, 20), parameters, settings)
    assert int(epochs) == 25
    got = reference.mlp_forward(trained[0, 0], x[0], settings)
    torch.testing.assert_close(got, module(x[0])[:, 0].detach(), rtol=1e-4, atol=1e-5)


def test_the_cpu_kernel_equals_the_reference():
    settings = MLPSettings(max_epochs=40)
    arguments = data()
    ours, theirs = kernels.train_mlp(*arguments, settings), reference.train_mlp(*arguments, settings)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(ours[2], theirs[2], rtol=1e-3, atol=1e-5)
    assert torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("train", [kernels.train_mlp, reference.train_mlp])
def test_early_stopping_per_member(train):
    # A target of zero with tiny weights: the loss cannot fall by more than 1e-4, so training stops after 1 + 11 epochs.
    settings = MLPSettings()
    x, y, weights, parameters = data(1, 2, 10)
    parameters[0, 0] *= 1e-3
    _, epochs, _ = train(x, torch.where(torch.tensor([[True]]), 0 * y, y), weights, parameters, settings)
    assert int(epochs[0, 0]) == 12
    assert int(epochs[0, 1]) > 12


def test_a_network_depends_on_its_own_data_only():
    arguments = data(runs=7)
    settings = MLPSettings(max_epochs=60)
    with threads(1):
        whole = kernels.train_mlp(*arguments, settings)[0]
    for runs in ([4], [4, 1], [0, 4, 2, 6, 5]):
        some = [t[runs] for t in arguments]
        assert torch.equal(kernels.train_mlp(*some, settings)[0], whole[runs])
    with threads(2):
        assert torch.equal(kernels.train_mlp(*arguments, settings)[0], whole)


def test_a_loss_that_is_not_finite_is_returned_not_hidden():
    x, y, weights, parameters = data(1, 2, 10)
    for train in (kernels.train_mlp, reference.train_mlp):
        _, epochs, losses = train(x, y * 1e30, weights, parameters, MLPSettings())
        assert not torch.isfinite(losses).any()
        assert int(epochs.max()) == 1


def embedding_data(runs=3, rows=15, inputs=4, settings=EmbeddingSettings(), padded=2):  # noqa: B008
    g = torch.Generator().manual_seed(1)
    keys = streams.runs(0, runs)
    x, bias = torch.rand(runs, rows, inputs, generator=g), torch.randn(runs, rows, generator=g) * 0.5
    valid = (torch.arange(rows) < rows - padded).expand(runs, rows)
    return x, bias, split_pairs(keys, valid, settings.validation), initial_parameters(keys, inputs, settings), keys


@pytest.mark.slow
def test_the_process_that_compiles_has_the_bits_of_the_next_one(tmp_path):
    lines = ["import hashlib", "from test_kernels import *", "*own, keys = embedding_data(rows=40)"]
    lines += ["settings = EmbeddingSettings(max_epochs=20, batch_size=16)"]
    lines += ["found = kernels.train_embedding(*own, keys, settings)[0], kernels.train_mlp(*data(), MLPSettings())[0]"]
    lines += ["print(hashlib.sha256(b''.join(part.numpy().tobytes() for part in found)).hexdigest())"]
    command, here = [sys.executable, "-c", "\n".join(lines)], Path(__file__).parent
    place = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (subprocess.run(command, cwd=here, env=place, capture_output=True, check=True) for _ in range(2))
    assert any(tmp_path.rglob("*.nbc"))
    assert first.stdout == second.stdout != b""


@pytest.mark.parametrize("rows", [15, 4])
def test_the_cpu_kernel_of_q_equals_the_reference_without_dropout(rows):
    settings = EmbeddingSettings(dropout=0.0, max_epochs=30)
    x, bias, split, parameters, seeds = embedding_data(rows=rows, settings=settings)
    ours = kernels.train_embedding(x, bias, split, parameters, seeds, settings)
    running = torch.stack([torch.zeros(3, 160), torch.ones(3, 160)], 1)
    theirs = reference.train_embedding(x, bias, split, parameters, running, seeds, settings)
    torch.testing.assert_close(ours[3], theirs[3], rtol=2e-3, atol=1e-5)
    psi, phi = (kernels.embed(t[0], t[1], x, settings) for t in (ours, theirs))
    torch.testing.assert_close(psi @ psi.mT, phi @ phi.mT, rtol=2e-2, atol=2e-3)
    assert torch.equal(ours[2], theirs[2])


class Psi(nn.Module):
    """ψ as one would write it down."""

    def __init__(self, parameters, inputs, settings):
        super().__init__()
        self.linear, self.normal, at = nn.ModuleList(), nn.ModuleList(), 0
        *inner, (o, i) = settings.layers(inputs)
        for outs, ins in inner:
            self.linear.append(nn.Linear(ins, outs, bias=False))
            self.normal.append(nn.BatchNorm1d(outs))
            self.linear[-1].weight.data = parameters[at : at + outs * ins].reshape(outs, ins).clone()
            at += outs * (ins + 2)
        self.last = nn.Linear(i, o)
        block = parameters[at:].reshape(o, i + 1)
        self.last.weight.data, self.last.bias.data = block[:, :-1].clone(), block[:, -1].clone()

    def forward(self, x):
        for linear, normal in zip(self.linear, self.normal, strict=True):
            x = normal(linear(x)).relu()
        return self.last(x)


@pytest.mark.parametrize("size", [4, 16, 1000])
@pytest.mark.parametrize("kind", kernels.KINDS)
def test_mini_batches_of_q_equal_plain_pytorch_on_pairs(size, kind):
    """Rows (x_i, x_j, δ_i δ_j), both inputs of a mini-batch through one module, torch.optim.Adam, fit by fit."""
    settings = EmbeddingSettings(dropout=0.0, max_epochs=6, batch_size=size)
    x, bias, split, parameters, seeds = embedding_data(rows=12, settings=settings)
    with kernels.use(kind):
        _, _, epochs, losses = kernels.train_embedding(x, bias, split, parameters, seeds, settings)
    rank, steps, moves = pairs.order(split, seeds, settings)
    assert int(steps[0]) == max(1, -(-47 // size))
    for run in range(3):
        module = Psi(parameters[run], 4, settings)
        optimiser = torch.optim.Adam(module.parameters(), 3e-4, weight_decay=1e-5)
        best = math.inf
        for epoch in range(6):
            batch = torch.tril(pairs.batches(rank, steps, moves[:, epoch])[run] + 1)
            module.train()
            for step in range(int(steps[run])):
                i, j = (batch == step + 1).nonzero().T
                both = module(torch.cat([x[run, i], x[run, j]]))
                error = (both[: len(i)] * both[len(i) :]).sum(-1) - bias[run, i] * bias[run, j]
                optimiser.zero_grad()
                (error**2).mean().backward()
                optimiser.step()
            module.eval()
            with torch.no_grad():
                found = reference.pair_loss(module(x[run])[None], bias[None, run], split[None, run] == 2)
            best = min(best, float(found))
        assert int(epochs[run]) == 6
        assert float(losses[run]) == pytest.approx(best, rel=1e-3)


def test_every_pair_is_in_one_mini_batch_of_an_epoch_and_orders_change():
    settings = EmbeddingSettings(batch_size=10, max_epochs=50)
    _, _, split, _, seeds = embedding_data(rows=15, settings=settings)
    rank, steps, moves = pairs.order(split, seeds, settings)
    first, second = (pairs.batches(rank, steps, moves[:, epoch]) for epoch in (0, 1))
    sizes = torch.tril(first[0] + 1).flatten().bincount()[1:]
    assert int(sizes.sum()) == int((torch.tril(split[0]) == 1).sum())
    assert int(sizes.max()) <= 10
    assert int(sizes.max() - sizes.min()) <= 1
    assert torch.equal((first >= 0), split == 1)
    assert not torch.equal(first, second)
    together = torch.stack([pairs.batches(rank, steps, m)[0] for m in moves.unbind(1)])  # (epochs, l, l)
    i, j = (torch.tril(split[0]) == 1).nonzero()[0], (torch.tril(split[0]) == 1).nonzero()[1]
    share = (together[:, i[0], i[1]] == together[:, j[0], j[1]]).double().mean()
    assert 0 < float(share) < 0.5  # two pairs meet now and then, as in a random order (1 of 8)


def test_mini_batches_of_a_run_do_not_depend_on_its_neighbours():
    settings = EmbeddingSettings(max_epochs=8, batch_size=7)
    arguments = embedding_data(runs=4, settings=settings)
    whole = kernels.train_embedding(*arguments, settings)
    for runs in ([2], [3, 0]):
        some = kernels.train_embedding(*(t[runs] for t in arguments), settings)
        assert torch.equal(some[0], whole[0][runs])
        assert torch.equal(some[3], whole[3][runs])


def test_a_mini_batch_without_a_pair_is_refused():
    with pytest.raises(InputError, match="at least one pair"):
        EmbeddingSettings(batch_size=0)


def test_the_gram_objective_is_the_sum_over_pairs():
    """One epoch's objective equals the mean over rows (x_i, x_j, δ_i δ_j) of the lower triangle, the obvious way."""
    g = torch.Generator().manual_seed(0)
    psi, bias = torch.randn(6, 3, generator=g), torch.randn(6, generator=g)
    rows = [(psi[i] @ psi[j] - bias[i] * bias[j]) ** 2 for i in range(6) for j in range(i + 1)]
    ours = reference.pair_loss(psi[None], bias[None], torch.ones(1, 6, 6))
    assert float(ours) == pytest.approx(float(sum(rows) / len(rows)), rel=1e-5)


def test_dropout_keeps_the_mean_and_changes_with_the_seed():
    settings = EmbeddingSettings(max_epochs=20)
    x, bias, split, parameters, seeds = embedding_data(settings=settings)
    a = kernels.train_embedding(x, bias, split, parameters, seeds, settings)
    b = kernels.train_embedding(x, bias, split, parameters, seeds, settings)
    c = kernels.train_embedding(x, bias, split, parameters, seeds + 1, settings)
    assert torch.equal(a[0], b[0])
    assert not torch.equal(a[0], c[0])


def test_q_stops_after_its_patience_and_keeps_its_best_epoch():
    settings = EmbeddingSettings(patience=5, max_epochs=400, learning_rate=0.05)
    x, bias, split, parameters, seeds = embedding_data(settings=settings, padded=0)
    trained, running, epochs, losses = kernels.train_embedding(x, bias, split, parameters, seeds, settings)
    assert int(epochs.max()) < 400
    psi = kernels.embed(trained, running, x, settings)
    torch.testing.assert_close(psi, reference.embed(trained, running, x, settings), rtol=1e-4, atol=1e-5)
    check = reference.pair_loss(psi, bias, split == 2)
    torch.testing.assert_close(check, losses, rtol=1e-3, atol=1e-5)


def test_pairs_are_split_85_to_15_over_the_lower_triangle():
    valid = torch.ones(1, 20, dtype=torch.bool)
    valid[0, 17:] = False
    split = split_pairs(streams.runs(0, 1), valid, 0.15)[0]
    lower = torch.tril(split)
    pairs = 17 * 18 // 2
    assert int((lower == 2).sum()) == round(0.15 * pairs)
    assert int((lower == 1).sum()) == pairs - round(0.15 * pairs)
    assert torch.equal(split, split.mT)
    assert int(split[17:].sum()) == 0


def test_prediction_equals_the_reference_at_any_number_of_points():
    settings = MLPSettings(hidden=(7, 5))
    for points in (1, 127, 4096, 4100):
        x, _, _, parameters = data(3, 4, points, 3, settings)
        expected = reference.mlp_forward(parameters, x[:, None], settings)
        torch.testing.assert_close(kernels.mlp_forward(parameters, x, settings), expected, rtol=1e-4, atol=1e-6)
        shared = kernels.mlp_forward(parameters, x[:1], settings)
        assert torch.equal(shared[0], kernels.mlp_forward(parameters[:1], x[:1], settings)[0])


def test_the_kind_of_kernel_is_switched_for_a_while_only():
    settings = EmbeddingSettings(max_epochs=3)
    arguments = embedding_data(settings=settings)
    fused = kernels.train_embedding(*arguments, settings)[0]
    with kernels.use("reference"):
        plain = kernels.train_embedding(*arguments, settings)[0]
    running = torch.stack([torch.zeros(3, 160), torch.ones(3, 160)], 1)
    x, bias, split, parameters, seeds = arguments
    assert torch.equal(plain, reference.train_embedding(x, bias, split, parameters, running, seeds, settings)[0])
    assert torch.equal(fused, kernels.train_embedding(*arguments, settings)[0])
    with pytest.raises(InputError, match="unknown kind of kernel"), kernels.use("slow"):
        pass


@pytest.mark.slow
def test_numba_leaves_the_threads_of_torch_alone():
    """Its first launch in a process sets OpenMP's threads; with two, every small product may wait for a busy core."""
    code = """
import torch
torch.set_num_threads(1)
from aicau import MLP
from aicau.core import streams
x = torch.rand(1, 20, 2)
MLP().fit(x, x[..., 0], streams.runs(0, 1)).predict(x[0])
print(torch.get_num_threads())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "1"
