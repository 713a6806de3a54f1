"""Whether there is NNPACK: no."""

from ..eager.torch_core.backend_flags import flags_of as _flags_of
from ..eager.torch_core.backend_flags import never as is_available

enabled = True
flags = _flags_of(__name__, enabled=False)
__all__ = ["enabled", "flags", "is_available"]
