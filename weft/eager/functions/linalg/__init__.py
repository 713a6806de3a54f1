"""Vectors and matrices: products, einsum, factors, systems of equations, eigenvalues."""
