"""The builder of functions for GPUs: no masked instructions, no C library; values of other threads of a warp."""

from __future__ import annotations

from ...base.cuda_target import CudaTarget
from ..builder import Builder, Value
from ..llvm_types import BITS
from .short_math import SHORT_FUNCTIONS

WHOLE_WARP = -1
_SHUFFLE = "llvm.nvvm.shfl.sync.bfly.i32"


class CudaBuilder(Builder):
    """Instructions of one kernel. Lanes are loaded and stored under branches where a mask says which."""

    has_masks = False
    has_library = False
    has_bfloats = True
    has_propagating = True
    short_functions = SHORT_FUNCTIONS

    def __init__(self, target: CudaTarget) -> None:
        super().__init__(target)

    def any_of(self, mask: Value) -> Value:
        result = self.extract(mask, 0)
        for lane in range(1, mask.lanes):
            result = self.binary("or", result, self.extract(mask, lane))
        return result

    def special(self, register: str) -> Value:
        """A special register of 32 bits as an i64: tid.x, ctaid.y, ..."""
        name = f"llvm.nvvm.read.ptx.sreg.{register}"
        self.declarations.setdefault(name, f"declare i32 @{name}()")
        narrow = self.pure("i32", 1, f"call i32 @{name}()", ())
        return self.convert("zext", narrow, "i64")

    def nothing(self, name: str, *arguments: str) -> None:
        """A call of an intrinsic that gives nothing; arguments are written with their types."""
        types = ", ".join(argument.split()[0] for argument in arguments)
        self.declarations.setdefault(name, f"declare void @{name}({types})")
        self.line(f"call void @{name}({', '.join(arguments)})")

    def from_lane(self, value: Value, distance: int) -> Value:
        """The value that the thread has whose number in the warp differs in the bits of `distance`."""
        bits = BITS[value.element]
        whole = self.bits(value) if value.element in ("float", "double") else value
        if bits == 64:
            low, high = self.convert("trunc", whole, "i32"), self._upper(whole)
            joined = self._joined(self._shuffled(low, distance), self._shuffled(high, distance))
        else:
            wide = self.convert("zext", whole, "i32")
            joined = self.convert("trunc", self._shuffled(wide, distance), whole.element)
        return self.from_bits(joined) if value.element in ("float", "double") else joined

    def _upper(self, whole: Value) -> Value:
        return self.convert("trunc", self.binary("lshr", whole, self.like(whole, 32)), "i32")

    def _joined(self, low: Value, high: Value) -> Value:
        upper = self.convert("zext", high, "i64")
        upper = self.binary("shl", upper, self.like(upper, 32))
        return self.binary("or", upper, self.convert("zext", low, "i64"))

    def _shuffled(self, word: Value, distance: int) -> Value:
        self.declarations.setdefault(_SHUFFLE, f"declare i32 @{_SHUFFLE}(i32, i32, i32, i32)")
        text = f"call i32 @{_SHUFFLE}(i32 {WHOLE_WARP}, i32 {word.ref}, i32 {distance}, i32 31)"
        return self.effect("i32", 1, text)
