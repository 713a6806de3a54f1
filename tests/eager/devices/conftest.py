"""A GPU for tests of tensors on one: a driver of Python, whose kernels run in the interpreter of loop IR."""

import sys
from pathlib import Path

import pytest
from runtime.interpreted_cuda import tensors_there
from runtime.test_cuda_executor import fake_driver

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def gpu():
    """At the end nothing is left on it, and nothing was done that a driver would refuse."""
    with fake_driver(memory=1 << 32, devices=2) as fake, tensors_there(fake):
        yield fake
