"""Programs that several files of these tests make are beside them."""

import random
import sys
import warnings
from pathlib import Path

import pytest
from oracles import oracle
from runtime.interpreted_cuda import tensors_there
from runtime.test_cuda_executor import fake_driver

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _repeatable(request):
    """A test draws what it drew the last time."""
    random.seed(request.node.nodeid)


@pytest.fixture
def torch():
    """PyTorch, whose warnings about its own functions say nothing here."""
    found = oracle("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield found


@pytest.fixture(scope="module")
def gpu():
    """Two GPUs of Python, whose kernels run in the interpreter of loop IR."""
    with fake_driver(memory=1 << 32, devices=2) as fake, tensors_there(fake):
        yield fake
