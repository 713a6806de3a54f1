"""Kernels of tensor cores as LLVM IR: plans of `te.tensor_cores` come in, text goes out."""
