"""The old names of autocast and GradScaler for CUDA devices."""

from ..eager.autocast import CudaAutocast as autocast
from ..eager.autocast import cuda_custom_bwd as custom_bwd
from ..eager.autocast import cuda_custom_fwd as custom_fwd
from ..eager.grad_scaler import CudaGradScaler as GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
