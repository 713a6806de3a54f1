"""Tensors from sizes, data, other libraries' memory and storages; where one is and how it lies."""
