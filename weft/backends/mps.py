"""Whether there are Metal devices: no."""

from ..eager.torch_core.backend_flags import never as is_available
from ..eager.torch_core.backend_flags import never as is_built
from ..eager.torch_core.backend_flags import never as is_macos13_or_newer

__all__ = ["is_available", "is_built", "is_macos13_or_newer"]
