"""Computation in narrower floats where that is safe."""

from .eager.autocast import autocast, custom_bwd, custom_fwd, is_autocast_available
from .eager.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
