"""What the processor can do."""

from ..eager.torch_core.backend_flags import get_cpu_capability

__all__ = ["get_cpu_capability"]
