"""Kernels and programs whose extents are arguments, kept by key: what eager calls run."""
