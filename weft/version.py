"""The version, read by the build and by `weft.__version__`."""

__version__ = "0.1.0"
debug = False
cuda = hip = xpu = git_version = None  # libraries that weft is not built with, and a revision that is not recorded
