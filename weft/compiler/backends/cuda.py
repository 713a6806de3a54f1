"""The backend of NVIDIA GPUs, put together from its parts in each room."""

from __future__ import annotations

from ...base.cuda_target import CudaTarget
from ...codegen.cuda.compile import CODEGEN
from ...lower.cuda.dispatch import LOWERING
from ...lower.cuda.layouts import LAYOUT_RULES
from ...runtime.cuda.executor import RUNTIME
from ..backend import Backend, Precision

ALWAYS = ("PackProjections",)
PRECISIONS = {
    "fp32": Precision(ALWAYS),
    "tf32": Precision(ALWAYS, {"precision": "tf32"}),
    "fp16": Precision((*ALWAYS, "ComputeInFloat16")),
    "bf16": Precision((*ALWAYS, "ComputeInBfloat16")),
}
CUDA = Backend[CudaTarget](RUNTIME, LOWERING, CODEGEN, LAYOUT_RULES, PRECISIONS)
