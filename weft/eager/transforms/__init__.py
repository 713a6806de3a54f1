"""Transforms of functions of tensors: over batches, and to derivatives. Comes in a function, goes out another one."""
