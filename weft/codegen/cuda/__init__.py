"""Code of GPUs: loop IR with a grid becomes LLVM IR, and LLVM IR becomes PTX."""
