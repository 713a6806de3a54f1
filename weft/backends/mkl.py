"""Whether there is MKL."""

from ..eager.torch_core.backend_flags import has as _has

is_available = _has("has_mkl")
__all__ = ["is_available"]
