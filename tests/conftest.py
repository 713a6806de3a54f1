"""Makes `from oracles import oracle` work from every folder of tests; gives tests a cache folder of
their own."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

os.environ["WEFT_CACHE_DIR"] = tempfile.mkdtemp(prefix="weft-tests-")
atexit.register(shutil.rmtree, os.environ["WEFT_CACHE_DIR"], ignore_errors=True)
