import pytest
import torch

from aicau import Observations, Pool
from aicau.core.errors import InputError
from aicau.core.pool import standardise


def test_collapse_gives_mean_and_count_per_point():
    rows = Observations(
        torch.tensor([[4, 1, 4, 4], [0, 1, 2, 3]]), torch.tensor([[1.0, 5, 2, 6], [1, 2, 3, 4]]), torch.arange(4)
    )
    view = rows.collapse()
    assert view.index.tolist() == [[1, 4, 0, 0], [0, 1, 2, 3]]
    assert view.mean.tolist() == [[5, 3, 0, 0], [1, 2, 3, 4]]
    assert view.count.tolist() == [[1, 3, 0, 0], [1, 1, 1, 1]]
    assert view.valid.sum(-1).tolist() == [2, 4]
    assert rows.counts(6)[0].tolist() == [0, 1, 0, 0, 3, 0]


def test_rows_are_appended_never_overwritten():
    rows = Observations(torch.tensor([[4]]), torch.tensor([[1.0]]), torch.tensor([0]))
    more = rows.append(torch.tensor([[4, 2]]), torch.tensor([[9.0, 8.0]]), 1)
    assert more.index.tolist() == [[4, 4, 2]]
    assert more.y.tolist() == [[1, 9, 8]]
    assert more.round.tolist() == [0, 1, 1]
    assert rows.rows == 1


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="as many rows"):
        Observations(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 3), torch.zeros(2))


def test_pool_refuses_what_cannot_be_features():
    with pytest.raises(InputError, match=r"entry \(1, 0\) is nan"):
        Pool([[1.0], [float("nan")]])
    with pytest.raises(InputError, match="empty"):
        Pool(torch.zeros(0, 3))
    with pytest.raises(InputError, match="must be numbers"):
        Pool([["a"], ["b"]])
    with pytest.raises(InputError, match="distinct ids"):
        Pool([[1.0], [2.0]], ("a", "a"))
    with pytest.raises(InputError, match="table"):
        Pool(torch.zeros(2, 2, 2))


def test_standardising_leaves_a_constant_feature_at_zero():
    assert standardise(torch.tensor([[1.0, 5], [3, 5]])).tolist() == [[-1, 0], [1, 0]]
