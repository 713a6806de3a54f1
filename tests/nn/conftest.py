"""Makes `from twin_modules import ...` work in the tests of this folder, with asserts that tell values."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("scenarios", "twin_modules")
