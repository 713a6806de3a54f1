"""Object code of CPUs: LLVM's back end, kernels, and the native function that walks the steps of a plan."""
