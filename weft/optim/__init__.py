"""Optimisers of tensors."""
