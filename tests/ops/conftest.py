"""Makes `from sample import samples` work in the files of samples."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
