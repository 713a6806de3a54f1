"""Files of tensors: PyTorch's archives and safetensors, and which classes they may hold."""

from .eager.archive.allowed import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from .eager.archive.load import check, load
from .eager.archive.safetensors import load_safetensors, read_safetensors, save_safetensors
from .eager.archive.save import save

__all__ = [
    "add_safe_globals",
    "check",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "load_safetensors",
    "read_safetensors",
    "safe_globals",
    "save",
    "save_safetensors",
]
