"""Autograd as PyTorch users know it: backward, grad, Function, grad modes, checks."""

from ..eager.autograd.anomaly import detect_anomaly, set_detect_anomaly
from ..eager.autograd.backward import Variable, backward, grad
from ..eager.autograd.function import Function, once_differentiable
from ..eager.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from ..eager.autograd.gradient_graph import is_multithreading_enabled, set_multithreading_enabled
from ..eager.autograd.modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from ..eager.functions import all as _functions  # noqa: F401  tensors have their methods
from . import anomaly_mode, engine, function, functional, grad_mode, graph, profiler, variable

__all__ = [
    "Function",
    "GradcheckError",
    "Variable",
    "anomaly_mode",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "engine",
    "function",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_multithreading_enabled",
    "no_grad",
    "once_differentiable",
    "profiler",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
    "variable",
]
