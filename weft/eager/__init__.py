"""Eager tensors, with PyTorch's names over weft's registry. In the order of a call:

tensor      values: dtypes, sizes, devices, storages, Tensor, views, indexing, printing
functions   the table of functions that users call, a folder a family
dispatch    the one path from a call to its result: a kernel, then the record of it
native      which calls run native code, and by which kernels
autograd    the record: nodes, gradient rules as programs, the engine that runs them backward
random      generators and distributions, the same numbers as PyTorch's from the same seed
archive     saving and loading, without executing a pickle
torch_core  what `weft._C` holds, the names of `weft`, futures, settings of a process
"""
