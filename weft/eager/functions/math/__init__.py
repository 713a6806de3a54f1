"""Element by element: arithmetic, comparisons, casts, special functions, complex numbers."""
