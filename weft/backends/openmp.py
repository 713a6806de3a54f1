"""Whether there is OpenMP."""

from ..eager.torch_core.backend_flags import has as _has

is_available = _has("has_openmp")
__all__ = ["is_available"]
