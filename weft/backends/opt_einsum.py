"""Whether sums of products are ordered by the package opt_einsum: no."""

from ..eager.torch_core.backend_flags import flags_of as _flags_of
from ..eager.torch_core.backend_flags import never as is_available

enabled = False
strategy: str | None = None
flags = _flags_of(__name__, enabled=False, strategy=None)
__all__ = ["enabled", "flags", "is_available", "strategy"]
