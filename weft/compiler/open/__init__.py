"""Sizes that are arguments: kernels and programs by key, which eager calls run, and compiled models of named sizes."""
