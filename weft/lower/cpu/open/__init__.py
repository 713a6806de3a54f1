"""Kernels whose extents are arguments: one serves all sizes of an operator's calls."""
