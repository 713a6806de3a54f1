"""Eager calls in native code. `choice.py` says which calls those are, by operator, dtypes and sizes
alone; the other files are families of kernels whose extents are arguments, each with the sizes from
which on it pays. A file takes numpy arrays and gives arrays, or None where the operator's reference
is to run."""
