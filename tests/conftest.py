"""Makes `from oracles import oracle` work from every folder of tests; gives tests a cache folder of
their own and the same random numbers in every run; `--hypothesis-profile=default` draws others;
says at the end what a missing oracle cost; `--share=10` runs every tenth of the generated cases, `--rest-of=10` what
that leaves out."""

import atexit
import gc
import os
import random
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
import browser
import oracles

if "PYTEST_XDIST_WORKER" not in os.environ:  # processes of one run share what they compile
    os.environ["WEFT_CACHE_DIR"] = tempfile.mkdtemp(prefix="weft-tests-")
    atexit.register(shutil.rmtree, os.environ["WEFT_CACHE_DIR"], ignore_errors=True)

# No deadline: the machines that run these are shared.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def numbers_from_the_beginning(request):
    """A module's `rng` and the generators that libraries share start anew for each test, whichever ran before it in
    this process."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  which libraries draw from
    if "weft.eager" in sys.modules:
        sys.modules["weft"].manual_seed(0)
    if hasattr(sys.modules.get("torch"), "manual_seed"):
        sys.modules["torch"].manual_seed(0)
    rng = getattr(request.module, "rng", None)
    if isinstance(rng, np.random.Generator):
        rng.bit_generator.state = np.random.default_rng(0).bit_generator.state


def pytest_addoption(parser):
    parser.addoption("--share", type=int, default=1, help="run one in so many generated cases")
    parser.addoption("--rest-of", type=int, default=0, help="run what that share leaves out")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leaves the cases of a parametrised test out whose names' checksum no share falls on: the same
    ones in every run, and one at least of each test; none of those that are marked as a whole. Without
    a share, those of a test that is marked as sampled become slow ones."""
    share, rest_of = config.getoption("share"), config.getoption("rest_of")
    kept, left_out, tests = [], [], set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        always = test not in tests or item.get_closest_marker("whole") is not None
        tests.add(test)
        number = zlib.crc32(item.nodeid.encode())
        sampled = item.get_closest_marker("sampled")
        if sampled and share == 1 and not always and number % sampled.args[0]:
            item.add_marker("slow")
        chosen = always or number % share == 0
        if rest_of:
            chosen = not (always or number % rest_of == 0)
        (kept if chosen else left_out).append(item)
    items[:] = kept
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish():
    """What was imported and collected stays: collections of garbage need not look at it."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """One line for each oracle that is missing: how many tests asked it, and how to get it."""
    reasons = Counter(
        report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()) if isinstance(report.longrepr, tuple)
    )
    for name, title in oracles.TITLES.items():
        count = reasons[f"Skipped: {oracles.MISSING.format(name)}"]
        if count:
            terminalreporter.write_line(
                f"{count} tests were skipped: they compare with {title}, which is not installed. "
                "`make oracles` installs it."
            )
    count = reasons[f"Skipped: {browser.MISSING}"]
    if count:
        terminalreporter.write_line(f"{count} tests were skipped: they look at pages. {browser.MISSING}.")
