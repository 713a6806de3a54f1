"""Matrices: products, factorisations, solutions, distances."""

from . import distances, factors, lapack, matmul
