"""ONNX files of modules and functions, as `torch.onnx` writes them. `weft.frontend` reads them, and writes symbols."""

from .jit.onnx_export.onnx_file import export

__all__ = ["export"]
