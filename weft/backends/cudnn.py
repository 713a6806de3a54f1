"""Switches of cuDNN, which can be set and change nothing."""

from ..eager.torch_core.backend_flags import flags_of as _flags_of
from ..eager.torch_core.backend_flags import never as is_available
from ..eager.torch_core.backend_flags import no_version as version

enabled = True
benchmark = False
benchmark_limit: int | None = None
deterministic = False
allow_tf32 = True
flags = _flags_of(__name__, enabled=False, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True)
__all__ = ["allow_tf32", "benchmark", "benchmark_limit", "deterministic", "enabled", "flags", "is_available", "version"]
