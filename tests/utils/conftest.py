"""Makes `from loaded_samples import ...` work in the tests of this folder, and in processes that they start."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
