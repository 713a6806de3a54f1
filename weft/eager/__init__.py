"""Eager tensors: storages, views, dispatch to the registry's operators, and autograd."""
