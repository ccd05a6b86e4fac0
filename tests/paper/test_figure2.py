"""What the paper claims first, in small."""

import pytest

from aicau import problems, simulate
from aicau.round import Round


@pytest.mark.parametrize("kind", ["type1", "type2", "type3"])
@pytest.mark.parametrize(("initial", "runs"), [(10, 4), (100, 6)])
def test_with_perfect_information_the_bias_wins(kind, initial, runs):
    """Figure 2 in small: after 15 single points BR and PEMSE beat random and least confidence."""
    names = ["random", "lc", "br:perfect", "pemse:perfect"]
    problem = problems.make(kind, grid=25)
    result = simulate(problem, names, initial, 1, rounds=15, runs=runs, seed=1, device="cpu", how=Round.paper())
    for ours in names[2:]:
        for other in names[:2]:
            assert result.paired(ours, other).mean < 0.9
