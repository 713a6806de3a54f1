"""Makes `from over_batches import ...` and `from opinfo import ...` work in the tests of this folder."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "eager")]
