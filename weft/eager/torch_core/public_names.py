"""Names of PyTorch's vocabulary that `weft` itself has, and what they mean: tensors, their functions and dtypes, modes
of gradients. `extra_names.py` has the rest, which a script may never use."""

from __future__ import annotations

from typing import Any

from ..autocast import AUTOCAST
from ..autograd.anomaly import is_anomaly_enabled, set_anomaly_enabled
from ..autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from ..functions.all import FUNCTIONS
from ..grad_scaler import GradScaler
from ..tensor import types
from ..tensor.storage import UntypedStorage
from ..tensor.tensor import Tensor, is_tensor

NAMES: dict[str, Any] = {
    **AUTOCAST,
    **FUNCTIONS["weft"],
    **types.DTYPE_NAMES,
    **types.ALIASES,
    **{name: getattr(types, name) for name in types.__all__ if name[0] not in "ADO"},
    "GradScaler": GradScaler,
    "Tensor": Tensor,
    "UntypedStorage": UntypedStorage,
    "enable_grad": enable_grad,
    "inference_mode": inference_mode,
    "is_anomaly_enabled": is_anomaly_enabled,
    "is_grad_enabled": is_grad_enabled,
    "is_inference_mode_enabled": is_inference_mode_enabled,
    "is_tensor": is_tensor,
    "no_grad": no_grad,
    "set_anomaly_enabled": set_anomaly_enabled,
    "set_grad_enabled": set_grad_enabled,
}
