"""Kernel templates, schedules and layout rules of CPUs: vectors, register tiles, caches, one parallel loop."""
