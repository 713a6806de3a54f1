"""Computation in narrower floats where that is safe."""
