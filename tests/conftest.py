"""Makes `from oracles import oracle` work from every folder of tests; gives tests a cache folder of
their own and the same random numbers in every run; `--hypothesis-profile=default` draws others."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

if "PYTEST_XDIST_WORKER" not in os.environ:  # processes of one run share what they compile
    os.environ["WEFT_CACHE_DIR"] = tempfile.mkdtemp(prefix="weft-tests-")
    atexit.register(shutil.rmtree, os.environ["WEFT_CACHE_DIR"], ignore_errors=True)

# No deadline: the machines that run these are shared.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def numbers_from_the_beginning(request):
    """A module's `rng` starts anew for each test, whichever ran before it in this process."""
    rng = getattr(request.module, "rng", None)
    if isinstance(rng, np.random.Generator):
        rng.bit_generator.state = np.random.default_rng(0).bit_generator.state
