"""Switches of oneDNN, which can be set and change nothing."""

from ..eager.torch_core.backend_flags import flags_of as _flags_of
from ..eager.torch_core.backend_flags import has as _has

enabled = True
deterministic = False
allow_tf32 = False
is_available = _has("has_mkldnn")
flags = _flags_of(__name__, enabled=False, deterministic=False, allow_tf32=True)
__all__ = ["allow_tf32", "deterministic", "enabled", "flags", "is_available"]
