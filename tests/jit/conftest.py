"""Programs that several files of these tests make are beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
