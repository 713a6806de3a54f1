"""The backend of CPUs, put together from its parts in each room."""

from __future__ import annotations

from ...base.cpu_target import CpuTarget
from ...codegen.cpu.compile import CODEGEN
from ...lower.cpu.apart import pays_apart
from ...lower.cpu.dispatch import LOWERING
from ...lower.cpu.layouts import LAYOUT_RULES
from ...lower.cpu.weight_only.levels import LEVEL_RULES
from ...lower.cpu.words.byte_layouts import BYTE_RULES
from ...lower.cpu.words.pair_layouts import PAIR_RULES, pairs_pay
from ...runtime.cpu.executor import RUNTIME
from ..backend import Backend, Precision

RULES = {**LAYOUT_RULES, **BYTE_RULES, **PAIR_RULES, **LEVEL_RULES}
PRECISIONS = {
    "fp32": Precision(),
    "bf16": Precision(("UseBfloat16",), further={"RoundImages": pairs_pay}),
    "fp16-weights": Precision(("UseFloat16",)),
}
CPU = Backend[CpuTarget](RUNTIME, LOWERING, CODEGEN, RULES, PRECISIONS, pays_apart)
