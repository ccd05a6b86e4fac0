"""What all parts of a strategy have in common: parameters only, frozen, and equal where their parameters are."""

from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest

from aicau.acquisition import ACQUISITIONS
from aicau.batching import BATCHINGS
from aicau.bias import BIASES
from aicau.ensembles import ENSEMBLES


@pytest.mark.parametrize("entry", [*ACQUISITIONS.values(), *BATCHINGS.values(), *BIASES.values(), *ENSEMBLES.values()])
def test_parts_are_frozen_and_comparable(entry):
    part = entry()
    assert is_dataclass(part)
    assert part == entry()
    assert hash(part) == hash(entry())
    for field in fields(part)[:1]:
        with pytest.raises(FrozenInstanceError):
            setattr(part, field.name, None)
