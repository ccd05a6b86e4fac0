"""Run by run: any number of leading dimensions, and a run does not depend on those beside it."""

import pytest
import torch

from aicau.core.pool import Frame
from aicau.core.runs import by_run, carried, moved, over


@pytest.mark.parametrize("lead", [(), (1,), (3,), (2, 3)])
def test_leading_dimensions_come_back(lead):
    y = torch.rand(*lead, 4, 2)
    calls = []

    def function(a, b):
        calls.append(a.shape)
        return a.sum((-1, -2)), a + b

    total, both = by_run(function, y, 10 * y, lead=len(lead))
    torch.testing.assert_close(total, y.sum((-1, -2)))
    torch.testing.assert_close(both, 11 * y)
    assert calls == [(1, 4, 2)] * max(1, torch.Size(lead).numel())


def test_over_keeps_the_order_and_the_threads():
    before = torch.get_num_threads()
    inside = list(over(lambda part: (part, torch.get_num_threads()), iter(range(50))))
    assert [part for part, _ in inside] == list(range(50))
    assert {count for _, count in inside} == {1}
    with pytest.raises(ZeroDivisionError):
        list(over(lambda part: 1 / part, [2, 1, 0, 1, 2]))
    assert torch.get_num_threads() == before


def test_records_are_moved_with_all_their_tensors():
    one, there = torch.ones(2), torch.device("meta")
    frame, words, (kept, none) = moved((Frame(one, one, one), {"a": [one]}, ("text", None)), there)
    for tensor in (frame.mean, frame.spread, frame.stretch, words["a"][0]):
        assert tensor.device.type == "meta"
    assert (kept, none) == ("text", None)
    assert [part.device.type for part in carried([one, one], there)] == ["meta", "meta"]
    assert moved(one, one.device) is one


def test_what_comes_back_from_an_accelerator_is_there_before_it_is_read():
    """A copy to memory that nobody waits for may be read before it has arrived."""
    waited = []

    class Far(torch.Tensor):
        def to(self, *where, non_blocking=False):
            waited.append(not non_blocking)
            return torch.ones(2)

    moved(torch.ones(2).as_subclass(Far), torch.device("cpu"))
    assert waited == [True]
