"""Programs that several files of these tests make are beside them."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _repeatable(request):
    """A test draws what it drew the last time."""
    random.seed(request.node.nodeid)
