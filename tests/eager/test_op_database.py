"""The function table against PyTorch's own operator samples: values, gradients, errors; of real and
of complex numbers."""

from __future__ import annotations

import pytest
from oracles import installed, skip

if not installed("torch"):
    skip("torch")  # its database names the cases
from opinfo import compared, function_of, tally, tally_inplace, tally_out
from opinfo_complex import takes_complex, takes_only_reals, tally_complex, tally_refused
from opinfo_lists import (
    BEYOND,
    COMPLEX_EXCEPTIONS,
    COMPLEX_LEFT_OUT,
    COMPLEX_NOT_IN_PLACE,
    EXCEPTIONS,
    LEFT_OUT,
    NOT_IN_PLACE,
    OF_HERMITIAN,
    OF_TRIANGLES,
    SLOW,
)
from torch_samples import database

from weft.eager.tensor.tensor import Tensor

FEWEST = 450
OF_COMPLEX = {"view_as_real", "istft"}  # have no samples of real numbers
NAMES = [name for name in compared() if name not in {*LEFT_OUT, *OF_COMPLEX}]


def _with_slow(names):
    return [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in names]


def _must_pass(result, exceptions):
    name = result.name
    shown = "\n".join(f"{case}: {why}" for case, why in result.failures[:10])
    assert result.tried or result.foreign, f"{name} has no sample"
    if name in exceptions:
        assert result.failures, f"{name} passes every sample: it needs no exception"
        assert result.share >= 0.95, f"{name}: {result.share:.1%} of samples\n{shown}"
    else:
        assert not result.failures, f"{name}: {result.share:.1%} of samples\n{shown}"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", _with_slow(NAMES))
def test_function(name):
    _must_pass(tally(name), EXCEPTIONS)


FEWEST_COMPLEX = 290
COMPLEX_NAMES = [n for n in compared() if takes_complex(n) and n not in COMPLEX_LEFT_OUT]
REAL_NAMES = [n for n in NAMES if takes_only_reals(n)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", _with_slow(COMPLEX_NAMES))
def test_complex_function(name):
    _must_pass(tally_complex(name), COMPLEX_EXCEPTIONS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", _with_slow(REAL_NAMES))
def test_function_of_real_numbers_alone(name):
    _must_pass(tally_refused(name), {})


IN_PLACE = [n for n in NAMES if hasattr(Tensor, f"{n}_") and n not in NOT_IN_PLACE]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", IN_PLACE)
def test_inplace_form(name):
    failures = tally_inplace(name).failures
    assert not failures, "\n".join(f"{case}: {why}" for case, why in failures)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [n for n in NAMES if n not in EXCEPTIONS and n not in SLOW])
def test_out_form(name):
    failures = tally_out(name).failures
    assert not failures, "\n".join(f"{case}: {why}" for case, why in failures)


def test_number_of_functions():
    assert len(NAMES) >= FEWEST
    assert len(COMPLEX_NAMES) >= FEWEST_COMPLEX


def test_lists_name_functions():
    complex_lists = (COMPLEX_LEFT_OUT, COMPLEX_EXCEPTIONS, COMPLEX_NOT_IN_PLACE, OF_HERMITIAN, OF_TRIANGLES)
    for name in (*LEFT_OUT, *EXCEPTIONS, *SLOW, *BEYOND, *(n for ns in complex_lists for n in ns)):
        assert name in database(), f"{name} is not in PyTorch's database"
        assert function_of(name) is not None, f"{name} is not in the table"
