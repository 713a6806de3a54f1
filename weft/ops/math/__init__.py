"""Element-wise functions: arithmetic, comparisons and bits, special functions, complex numbers; Fourier transforms."""

from . import bessel, binary, broadcast, complex, elemwise, fft, magnitude, special, special_pairs
