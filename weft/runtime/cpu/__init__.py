"""Running on CPUs: the LLJIT, the thread pool, executors, single kernels."""
