import pytest
import torch

from aicau import Pool
from aicau.core import pool
from aicau.core.pool import Frame, Rows, standardise

TABLE = torch.rand(50, 3, generator=torch.Generator().manual_seed(0))


def test_a_rare_category_is_no_farther_than_the_ends_of_a_uniform_column():
    n = 400
    rare = torch.zeros(n, 1)
    rare[0] = 1
    line = torch.linspace(0, 1, n)[:, None]
    at = Pool(torch.cat([rare, line], -1)).coordinates
    width = at.amax(0) - at.amin(0)
    assert float(width[0]) == pytest.approx(12**0.5)
    torch.testing.assert_close(at[:, 1], standardise(line.double())[:, 0])  # what is not too wide stays as it is


def rows_of(sizes):
    """Chunks in memory and chunks that are read, in turn."""
    parts = [part if at % 2 else part.clone for at, part in enumerate(TABLE.split(sizes))]
    return Rows(parts, sizes, 3)


@pytest.mark.parametrize("sizes", [[50], [20, 1, 9, 20], [7] * 7 + [1]])
def test_rows_answer_as_a_tensor_does(sizes, monkeypatch):
    x = rows_of(sizes)
    assert (len(x), x.shape) == (50, TABLE.shape)
    for size in (1, 7, 16, 50, 99):
        parts = list(x.split(size))
        assert [len(part) for part in parts] == [len(part) for part in TABLE.split(size)]
        assert torch.equal(torch.cat(parts), TABLE)
    for held in (0, 10, 100):
        monkeypatch.setattr(pool, "HELD", held)
        for index in ([[3, 49], [3, 0]], [12, 13, 14], [5], [30, 2, 2, 41], []):
            index = torch.tensor(index, dtype=torch.long)
            assert torch.equal(x[index], TABLE[index])
    assert torch.equal(x[:], TABLE)


def test_the_frame_does_not_depend_on_how_a_pool_is_read(monkeypatch):
    whole = Frame.of(TABLE)
    monkeypatch.setattr(pool, "TOGETHER", 16)
    one, other = Frame.of(TABLE), Frame.of(rows_of([20, 30]))
    for name in ("mean", "spread", "stretch"):
        assert torch.equal(getattr(one, name), getattr(other, name))
        torch.testing.assert_close(getattr(one, name), getattr(whole, name))
