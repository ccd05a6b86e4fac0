"""The CUDA kernels against the reference, where there is a CUDA device."""

import pytest
import torch

from aicau import gp
from aicau.bias.quadratic import initial_parameters, split_pairs
from aicau.core import streams
from aicau.core.task import Task
from aicau.ensembles import MLP, kernels
from aicau.ensembles.kernels import EmbeddingSettings, MLPSettings, reference
from aicau.simulation.simulate import simulate

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")


@pytest.mark.parametrize("rows", [1, 12, 60, 110])
def test_networks_equal_the_reference(rows):
    settings = MLPSettings(max_epochs=20)
    x = torch.rand(3, rows, 2, device="cuda") * 6
    weights = torch.ones(3, 5, rows, device="cuda")
    weights[:, 1, : rows // 3] = 0
    parameters = (torch.rand(3, 5, settings.parameters(2), device="cuda") * 2 - 1) * 0.3
    arguments = x, torch.sin(x).prod(-1), weights, parameters, settings
    ours, theirs = kernels.train_mlp(*arguments), reference.train_mlp(*arguments)
    torch.testing.assert_close(ours[2], theirs[2], rtol=1e-3, atol=1e-4)
    assert torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("size", [None, 16, 128])
@pytest.mark.parametrize("rows", [1, 12, 60, 110])
def test_embeddings_equal_the_reference_without_dropout(rows, size):
    # After hundreds of steps roundings decide: where a gradient is nearly 0, Adam moves by its sign.
    settings = EmbeddingSettings(dropout=0.0, max_epochs=1 if size == 16 and rows > 12 else 4, batch_size=size)
    keys = streams.runs(0, 3).cuda()
    x, bias = torch.rand(3, rows, 4, device="cuda"), torch.randn(3, rows, device="cuda")
    split = split_pairs(keys, torch.ones(3, rows, dtype=torch.bool, device="cuda"), 0.15)
    parameters = initial_parameters(keys, 4, settings)
    ours = kernels.train_embedding(x, bias, split, parameters, keys, settings)
    running = torch.stack([torch.zeros(3, 160), torch.ones(3, 160)], 1).cuda()
    theirs = reference.train_embedding(x, bias, split, parameters, running, keys, settings)
    torch.testing.assert_close(ours[3], theirs[3], rtol=1e-3, atol=1e-4)
    cpu = kernels.train_embedding(*(t.cpu() for t in (x, bias, split, parameters, keys)), settings)
    torch.testing.assert_close(ours[3].cpu(), cpu[3], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("size", [None, 64])
def test_the_same_program_twice_gives_the_same_bits(size):
    settings = EmbeddingSettings(max_epochs=30, batch_size=size)
    keys = streams.runs(0, 3).cuda()
    x, bias = torch.rand(3, 40, 4, device="cuda"), torch.randn(3, 40, device="cuda")
    split = split_pairs(keys, torch.ones(3, 40, dtype=torch.bool, device="cuda"), 0.15)
    parameters = initial_parameters(keys, 4, settings)
    a, b = (kernels.train_embedding(x, bias, split, parameters, keys, settings)[0] for _ in range(2))
    assert torch.equal(a, b)


def test_gaussian_processes_equal_the_cpu():
    """On CUDA the optimiser's step is a recorded graph."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(6, 40, 2, generator=generator, dtype=torch.double) * 6
    y = torch.sin(x).prod(-1) + 0.1 * torch.randn(6, 40, generator=generator, dtype=torch.double)
    valid = torch.ones(6, 40, dtype=torch.bool)
    process = gp.Process(noise=True)
    cpu, cuda = process.fit(x, y, valid), process.fit(x.cuda(), y.cuda(), valid.cuda())
    torch.testing.assert_close(cuda.mean(x.cuda()).cpu(), cpu.mean(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("task", [Task("classification", 3), Task("count")], ids=lambda task: task.name)
def test_classes_and_counts_equal_the_cpu(task):
    ensemble = MLP(settings=MLPSettings(max_epochs=30), task=task)
    keys = streams.runs(0, 2)
    x = torch.rand(2, 40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double) * 6
    y = (x[..., 0] / 2).floor()  # 0, 1 or 2
    cpu = ensemble.fit(x, y, keys).predict(x)
    cuda = ensemble.fit(x.cuda(), y.cuda(), keys.cuda()).predict(x.cuda())
    torch.testing.assert_close(cuda.cpu(), cpu, rtol=1e-3, atol=1e-3)


def test_a_simulation_of_classes_starts_from_the_same_error_as_on_the_cpu():
    words = ["random", "trust:spread", "br:posterior:spread"]
    cpu, cuda = (simulate("class2", words, 20, rounds=1, runs=2, device=device) for device in ("cpu", "cuda"))
    torch.testing.assert_close(torch.tensor(cuda.mse[..., 0]), torch.tensor(cpu.mse[..., 0]), rtol=0.05, atol=0.01)
    assert (cuda.queried[:, :, :20] == cpu.queried[:, :, :20]).all()
