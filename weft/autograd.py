"""Autograd as PyTorch users know it: backward, grad, Function, grad modes, checks."""

from .eager import functions as _functions  # noqa: F401  tensors have their methods
from .eager.anomaly import detect_anomaly, set_detect_anomaly
from .eager.autograd import Variable, backward, grad
from .eager.function import Function, once_differentiable
from .eager.gradcheck import GradcheckError, gradcheck, gradgradcheck
from .eager.modes import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "Function",
    "GradcheckError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "no_grad",
    "once_differentiable",
    "set_detect_anomaly",
    "set_grad_enabled",
]
