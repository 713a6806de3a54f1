"""Modules as functions of their parameters."""

from .nn.utils.functional import functional_call, stack_module_state

__all__ = ["functional_call", "stack_module_state"]
