"""The version, read by the build and by `weft.__version__`."""

__version__ = "0.1.0"
