"""Kernels that tensor cores run: what such a kernel does, as plain data between the lowering that decides it and the
code generator that writes it, and the integer functions that say where its elements lie."""
