"""The function table against PyTorch's own operator samples: values, gradients, errors."""

from __future__ import annotations

import pytest
from oracles import oracle

oracle("torch")
from opinfo import compared, function_of, tally, tally_inplace, tally_out  # noqa: E402
from opinfo_lists import EXCEPTIONS, LEFT_OUT, NOT_IN_PLACE, SLOW  # noqa: E402
from torch_samples import database  # noqa: E402

from weft.eager.tensor import Tensor  # noqa: E402

FEWEST = 450
NAMES = [name for name in compared() if name not in LEFT_OUT]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in NAMES]
)
def test_function(name):
    result = tally(name)
    shown = "\n".join(f"{case}: {why}" for case, why in result.failures[:10])
    assert result.tried or result.foreign, f"{name} has no sample"
    if name in EXCEPTIONS:
        assert result.failures, f"{name} passes every sample: it needs no exception"
        assert result.share >= 0.95, f"{name}: {result.share:.1%} of samples\n{shown}"
    else:
        assert not result.failures, f"{name}: {result.share:.1%} of samples\n{shown}"


IN_PLACE = [n for n in NAMES if hasattr(Tensor, f"{n}_") and n not in NOT_IN_PLACE]


@pytest.mark.parametrize("name", IN_PLACE)
def test_inplace_form(name):
    failures = tally_inplace(name).failures
    assert not failures, "\n".join(f"{case}: {why}" for case, why in failures)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in EXCEPTIONS and n not in SLOW])
def test_out_form(name):
    failures = tally_out(name).failures
    assert not failures, "\n".join(f"{case}: {why}" for case, why in failures)


def test_number_of_functions():
    assert len(NAMES) >= FEWEST


def test_lists_name_functions():
    for name in (*LEFT_OUT, *EXCEPTIONS, *SLOW):
        assert name in database(), f"{name} is not in PyTorch's database"
        assert function_of(name) is not None, f"{name} is not in the table"
