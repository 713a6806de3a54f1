"""Signals: Fourier transforms, short-time spectra, windows."""
