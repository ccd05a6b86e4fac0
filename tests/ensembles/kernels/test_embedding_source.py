"""The CUDA source of ψ's training, compiled for one thread of the processor, against the reference."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from aicau.bias.quadratic import initial_parameters, split_pairs
from aicau.core import streams
from aicau.ensembles.kernels import EmbeddingSettings, cuda_embedding, reference

COMPILER = shutil.which("g++") or shutil.which("clang++")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
INTEGERS = 6  # the last arguments


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kernel")


def launcher(folder):
    """Runs the kernel block by block."""

    def launch(shape, runs, arguments, device):
        defines = shape.defines(1, False)
        name = "-".join(str(value) for value in defines.values())
        library = folder / f"{name}.so"
        if not library.exists():
            source = folder / f"{name}.cpp"
            head = "".join(f"#define {key} {value}\n" for key, value in defines.items())
            start = 'extern "C" void start(int run, int runs) { blockIdx.x = run; gridDim.x = runs; }\n'
            text = cuda_embedding.SOURCE.read_text(encoding="utf-8")
            source.write_text(f'{head}#include "{Path(__file__).with_name("host.h")}"\n{start}{text}', encoding="utf-8")
            command = [COMPILER, "-O2", "-shared", "-fPIC", "-Wno-unknown-pragmas", "-o", library, source]
            subprocess.run(command, check=True)
        kept, rows = shape.floats()
        scratch = torch.zeros(runs * rows + kept)
        arguments[cuda_embedding.SCRATCH] = scratch
        kernel = ctypes.CDLL(str(library))
        pointers = [ctypes.c_void_p(one.data_ptr()) for one in arguments[:-INTEGERS]]
        for run in range(runs):
            kernel.start(run, runs)
            kernel.train(*pointers, *arguments[-INTEGERS:])

    return launch


def problem(rows, settings, missing=0, inputs=4):
    keys = streams.runs(0, 3)
    generator = torch.Generator().manual_seed(rows)
    x, bias = torch.rand(3, rows, inputs, generator=generator), torch.randn(3, rows, generator=generator)
    valid = torch.ones(3, rows, dtype=torch.bool)
    valid[1, : rows // 3] = not missing
    split = split_pairs(keys, valid, 0.15)
    return x, bias, split, initial_parameters(keys, inputs, settings), keys


@pytest.mark.parametrize("size", [None, 16, 128])
@pytest.mark.parametrize("rows", [1, 12, 61])
@pytest.mark.parametrize("missing", [0, 1])
def test_it_equals_the_reference_without_dropout(folder, rows, size, missing):
    settings = EmbeddingSettings(dropout=0.0, max_epochs=1 if size == 16 and rows > 12 else 4, batch_size=size)
    x, bias, split, parameters, keys = problem(rows, settings, missing)
    running = torch.stack([torch.zeros(3, 160), torch.ones(3, 160)], 1)
    arguments = x, bias, split, parameters, running, keys, settings
    ours = cuda_embedding.train_embedding(*arguments, launch=launcher(folder))
    theirs = reference.train_embedding(*arguments)
    assert torch.equal(ours[2], theirs[2])
    torch.testing.assert_close(ours[3], theirs[3], rtol=1e-3, atol=1e-4)
    if size != 16:  # a hundred steps: where a gradient is nearly 0, Adam moves by its rounding
        torch.testing.assert_close(ours[0], theirs[0], rtol=2e-3, atol=2e-4)
        torch.testing.assert_close(ours[1], theirs[1], rtol=2e-3, atol=2e-4)


def test_units_that_are_no_multiple_of_eight(folder):
    settings = EmbeddingSettings(hidden=(12, 20, 9), width=5, dropout=0.0, max_epochs=3, batch_size=32)
    x, bias, split, parameters, keys = problem(25, settings, inputs=3)
    running = torch.stack([torch.zeros(3, 41), torch.ones(3, 41)], 1)
    arguments = x, bias, split, parameters, running, keys, settings
    ours = cuda_embedding.train_embedding(*arguments, launch=launcher(folder))
    theirs = reference.train_embedding(*arguments)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("size", [None, 64])
def test_dropout_keeps_the_mean_and_widens_the_spread(folder, size):
    still = EmbeddingSettings(dropout=0.0, max_epochs=1, batch_size=size, learning_rate=0.0, momentum=1.0)
    x, bias, split, parameters, keys = problem(40, still)
    running = torch.stack([torch.zeros(3, 160), torch.ones(3, 160)], 1)
    found = []
    for drop in (0.0, 0.4):
        settings = EmbeddingSettings(**(vars(still) | {"dropout": drop}))
        arguments = x, bias, split, parameters, running, keys, settings
        found.append(cuda_embedding.train_embedding(*arguments, launch=launcher(folder))[1])
    (mean, variance), (mean_with, variance_with) = (one.unbind(1) for one in found)
    own = slice(64, 128)  # the second layer: the first to see dropout
    spread = variance[:, own].sqrt()
    assert float(((mean_with - mean)[:, own] / spread).abs().median()) < 0.2
    assert float((variance_with / variance)[:, own].median()) > 1.2
    torch.testing.assert_close(mean_with[:, :64], mean[:, :64], rtol=1e-4, atol=1e-4)
