"""Whether operators record what a backward pass needs."""

from ..eager.autograd.gradient_graph import set_multithreading_enabled
from ..eager.autograd.modes import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]
