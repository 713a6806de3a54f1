"""Object code of CPUs: LLVM's back end, and kernels."""
