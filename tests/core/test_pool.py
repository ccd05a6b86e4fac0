import pytest
import torch

from aicau import Pool
from aicau.core.pool import standardise


def test_a_rare_category_is_no_farther_than_the_ends_of_a_uniform_column():
    n = 400
    rare = torch.zeros(n, 1)
    rare[0] = 1
    line = torch.linspace(0, 1, n)[:, None]
    at = Pool(torch.cat([rare, line], -1)).coordinates
    width = at.amax(0) - at.amin(0)
    assert float(width[0]) == pytest.approx(12**0.5)
    torch.testing.assert_close(at[:, 1], standardise(line.double())[:, 0])  # what is not too wide stays as it is
