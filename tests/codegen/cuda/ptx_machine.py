"""Runs the PTX of a kernel on numpy arrays, all threads of a block at once: no GPU is needed.

Written from the PTX manual, for the instructions that kernels of single warps have. It is stricter than a GPU: reads
outside of buffers, of shared memory that nobody wrote or whose copy has not been waited for, and accesses by two warps
without a barrier between them are errors. Copies that run ahead land as late as they may.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from codegen.cuda.ptx_text import Instruction, parsed

WARP = 32
GAP = 1 << 12  # bytes between buffers that nobody may touch
SHARED_START = 0x400 + 64  # no multiple of what tiles need
TYPES = {
    "u16": np.uint16, "s16": np.int16, "b16": np.uint16, "u32": np.uint32, "s32": np.int32, "b32": np.uint32,
    "u64": np.uint64, "s64": np.int64, "b64": np.uint64, "f32": np.float32, "f16": np.float16, "pred": np.bool_,
    "bf16": ml_dtypes.bfloat16, "b8": np.uint8, "u8": np.uint8,
}  # fmt: skip
RAW = {1: np.bool_, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Memory:
    """Buffers one after the other, with gaps; `parameters` are where they begin, then scalars."""

    def __init__(self, arrays: list[np.ndarray], scalars: Sequence[int] = ()) -> None:
        self.arrays, self.starts = arrays, []
        at = 1 << 20
        for array in arrays:
            self.starts.append(at)
            at += -(-array.nbytes // 256) * 256 + GAP
        self.bytes = np.zeros(at, np.uint8)
        self.there = np.zeros(at, bool)
        for start, array in zip(self.starts, arrays):
            self.bytes[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self.there[start : start + array.nbytes] = True
        self.parameters = [*self.starts, *scalars]

    def places(self, address: np.ndarray, size: int) -> np.ndarray:
        address = address.astype(np.int64)
        assert not (address % size).any(), "an address that is not aligned"
        found = address[:, None] + np.arange(size)
        assert ((found >= 0) & (found < len(self.there))).all(), "an address far outside of all buffers"
        assert self.there[found].all(), "an access outside of buffers"
        return found

    def take_back(self) -> None:
        for start, array in zip(self.starts, self.arrays):
            array.reshape(-1).view(np.uint8)[:] = self.bytes[start : start + array.nbytes]


class Shared:
    """A block's shared memory; an epoch is what lies between two barriers of all threads."""

    def __init__(self, size: int) -> None:
        self.start, self.epoch = SHARED_START, 0
        self.bytes = np.zeros(size, np.uint8)
        self.flying = np.zeros(size, bool)
        self.written = np.full(size, -1, np.int32)
        self.writer = np.full(size, -1, np.int32)
        self.read_at = np.full(size, -1, np.int32)
        self.reader = np.full(size, -1, np.int32)  # -2: several warps

    def places(self, address: np.ndarray, size: int) -> np.ndarray:
        address = address.astype(np.int64)
        assert not (address % size).any(), "an address that is not aligned"
        found = address[:, None] - self.start + np.arange(size)
        assert ((found >= 0) & (found < len(self.bytes))).all(), "an address outside of shared memory"
        return found

    def read(self, address: np.ndarray, size: int, warp: np.ndarray) -> np.ndarray:
        at, who = self.places(address, size), np.broadcast_to(warp[:, None], (len(warp), size))
        assert not self.flying[at].any(), "a read of what is still being copied"
        assert (self.written[at] >= 0).all(), "a read of shared memory that nobody wrote"
        assert ((self.written[at] < self.epoch) | (self.writer[at] == who)).all(), "a read with no barrier before it"
        again = (self.read_at[at] == self.epoch) & (self.reader[at] != who)
        self.reader[at] = np.where(again, -2, who)
        for other in np.unique(warp)[1:]:  # the same byte read by several warps at once
            mine, others = at[warp == other], at[warp < other]
            if len(mine) and len(others):
                self.reader[np.intersect1d(mine, others)] = -2
        self.read_at[at] = self.epoch
        return self.bytes[at]

    def claim(self, at: np.ndarray, warp: np.ndarray) -> None:
        who = np.broadcast_to(warp[:, None], at.shape)
        assert not self.flying[at].any(), "a write to where a copy is on its way"
        assert ((self.read_at[at] < self.epoch) | (self.reader[at] == who)).all(), (
            "a write to what others may still read"
        )
        assert ((self.written[at] < self.epoch) | (self.writer[at] == who)).all(), "two warps write to the same place"
        self.written[at], self.writer[at] = self.epoch, who

    def write(self, address: np.ndarray, data: np.ndarray, warp: np.ndarray) -> None:
        at = self.places(address, data.shape[1])
        self.claim(at, warp)
        self.bytes[at] = data


class Block:
    """The threads of one block."""

    def __init__(self, program: Any, memory: Memory, number: int, shared: int) -> None:
        self.program, self.memory = program, memory
        self.threads, self.number = program.threads, number
        self.shared = Shared(shared + GAP)
        self.lane_of = np.arange(self.threads)
        self.warp = self.lane_of // WARP
        self.registers: dict[str, np.ndarray] = {}
        self.pc = np.zeros(self.threads, np.int64)
        self.waits = np.zeros(self.threads, bool)
        self.begun: list[list[Any]] = [[] for _ in range(self.threads // WARP)]  # copies of a warp's unfinished group
        self.groups: list[list[list[Any]]] = [[] for _ in range(self.threads // WARP)]
        self.ran = 0

    # Operands

    def get(self, text: str, kind: str) -> np.ndarray:
        dtype = TYPES[kind]
        if text in self.registers:
            held = self.registers[text]
            return held if held.dtype == dtype else self._as(held, dtype)
        return np.broadcast_to(self._immediate(text, dtype), (self.threads,))

    def _as(self, held: np.ndarray, dtype: Any) -> np.ndarray:
        size = np.dtype(dtype).itemsize
        if held.dtype.itemsize != size:  # the lower bits
            held = held.astype(RAW[size])
        return held.view(dtype)

    def _immediate(self, text: str, dtype: Any) -> np.ndarray:
        if text == "%tid.x":
            return self.lane_of.astype(np.uint32)
        if text == "%ctaid.x":
            return np.uint32(self.number)
        if text == "shared":
            return np.array(self.shared.start).astype(dtype)
        if text.startswith("0f"):
            return np.array(int(text[2:], 16), np.uint32).view(dtype)
        value = int(text, 0)
        size = np.dtype(dtype).itemsize
        raw = np.array(value % (1 << (8 * size)), RAW[size])
        return raw.astype(bool) if size == 1 else raw.view(dtype)

    def put(self, name: str, value: Any, kind: str, mask: np.ndarray) -> None:
        value = np.broadcast_to(np.asarray(value), (self.threads,)).astype(TYPES[kind], copy=False)
        raw = value if kind == "pred" else value.view(RAW[value.dtype.itemsize])
        old = self.registers.get(name)
        if mask.all() or old is None or old.dtype != raw.dtype:
            self.registers[name] = raw.copy()
        else:
            self.registers[name] = np.where(mask, raw, old)

    # Running

    def run(self) -> None:
        code = self.program.code
        end = len(code)
        while True:
            alive = self.pc < end
            if not alive.any():
                return
            ready = alive & ~self.waits
            if not ready.any():
                assert alive.all(), "a barrier that some threads never reach"
                self.waits[:] = False
                self.shared.epoch += 1
                continue
            at = int(self.pc[ready].min())
            mask = ready & (self.pc == at)
            self.ran += 1
            self._step(code[at], mask, at)

    def _step(self, one: Instruction, mask: np.ndarray, at: int) -> None:
        self.pc[mask] = at + 1
        if one.guard:
            asked = self.get(one.guard.lstrip("!"), "pred")
            mask = mask & (~asked if one.guard.startswith("!") else asked)
            if not mask.any():
                return
        try:
            self._do(one, mask)
        except AssertionError as error:
            raise AssertionError(f"{error}, at {one}, block {self.number}") from None

    def _do(self, one: Instruction, mask: np.ndarray) -> None:
        words, names = one.words, one.operands
        first = words[0]
        if first == "bra":
            self.pc[mask] = self.program.labels[names[0]]
        elif first == "ret":
            self.pc[mask] = len(self.program.code)
        elif first == "bar":
            assert names[0] == "0"
            self.waits |= mask
        elif first in ("ld", "st"):
            self._memory(one, mask)
        elif first == "cp":
            self._copy(one, mask)
        elif first == "ldmatrix":
            self._load_matrix(one, mask)
        elif first == "mma":
            self._multiply(one, mask)
        elif first == "shfl":
            self._shuffle(one, mask)
        elif first == "griddepcontrol":
            pass
        elif first == "mov" and one.braces:
            self._move_parts(one, mask)
        elif first == "cvt":
            self._convert(one, mask)
        elif first == "setp":
            kind = words[-1]
            a, b = (self.get(name, kind) for name in names[1:3])
            self.put(names[0], COMPARISONS[words[1]](a, b), "pred", mask)
        elif first == "selp":
            a, b = (self.get(name, words[-1]) for name in names[1:3])
            self.put(names[0], np.where(self.get(names[3], "pred"), a, b), words[-1], mask)
        else:
            self._arithmetic(one, mask)

    def _arithmetic(self, one: Instruction, mask: np.ndarray) -> None:
        words, names, kind = one.words, one.operands, one.words[-1]
        given = [self.get(name, kind) for name in names[1:]]
        if words[0] in ("shl", "shr"):
            given[1] = self.get(names[2], "u32").astype(np.int64)
        with np.errstate(all="ignore"):
            if words[:2] in (["mul", "wide"], ["mad", "wide"]):
                wide = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}[kind]
                made = given[0].astype(TYPES[wide]) * given[1].astype(TYPES[wide])
                made = made + self.get(names[3], wide) if words[0] == "mad" else made
                self.put(names[0], made, wide, mask)
                return
            if words[0] in ("add", "sub", "fma") and words[-2] in ("f32", "f16", "bf16"):  # floats of two lengths
                kind = "f32"
                given = [self.get(name, k).astype(np.float32) for name, k in zip(names[1:], (words[-1], words[-2]))]
                words = [word for word in words[:-2] if word != "rn"] + ["f32"]
            key = ".".join(w for w in (words[0], *words[1:-1]) if w not in ("rn", "approx", "ftz", "lo"))
            assert key in ARITHMETIC, f"no meaning is known of {'.'.join(words)}"
            self.put(names[0], ARITHMETIC[key](*given), kind, mask)

    def _convert(self, one: Instruction, mask: np.ndarray) -> None:
        words, names = one.words, one.operands
        to, source = words[-2], words[-1]
        with np.errstate(all="ignore"):
            if to in ("f16x2", "bf16x2"):
                half = to[:-2]
                high, low = (self.get(name, "f32").astype(TYPES[half]).view(np.uint16) for name in names[1:])
                self.put(names[0], high.astype(np.uint32) << 16 | low, "b32", mask)
            elif to == "tf32":
                bits = self.get(names[1], "u32").astype(np.uint64)
                self.put(names[0], ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32), "b32", mask)
            else:
                self.put(names[0], self.get(names[1], source).astype(TYPES[to]), to, mask)

    def _move_parts(self, one: Instruction, mask: np.ndarray) -> None:
        """A register as two halves, or two as one."""
        names = one.operands
        if one.braces == (0,):
            low, high, whole = names
            bits = self.get(whole, "b32")
            self.put(low, bits.astype(np.uint16), "b16", mask)
            self.put(high, (bits >> 16).astype(np.uint16), "b16", mask)
        else:
            whole, low, high = names
            both = self.get(low, "b16").astype(np.uint32) | self.get(high, "b16").astype(np.uint32) << 16
            self.put(whole, both, "b32", mask)

    def _address(self, text: str) -> np.ndarray:
        name, more = re.fullmatch(r"\[(.+?)((?:\+-?\d+)?)\]", text).groups()
        size = "u32" if self.registers.get(name, np.zeros(0, np.uint64)).dtype == np.uint32 else "u64"
        return self.get(name, size).astype(np.int64) + (int(more[1:]) if more else 0)

    def _memory(self, one: Instruction, mask: np.ndarray) -> None:
        words, names, kind = one.words, one.operands, one.words[-1]
        size, is_load = np.dtype(TYPES[kind]).itemsize, words[0] == "ld"
        if words[1] == "param":
            number = int(re.search(r"_(\d+)\]", names[1]).group(1))
            self.put(names[0], np.uint64(self.memory.parameters[number]), "u64", mask)
            return
        held, where = (names[:-1], names[-1]) if is_load else (names[1:], names[0])
        address, whole = self._address(where)[mask], size * len(held)
        if is_load:
            if words[1] == "shared":
                data = self.shared.read(address, whole, self.warp[mask])
            else:
                data = self.memory.bytes[self.memory.places(address, whole)]
            for number, name in enumerate(held):
                value = np.zeros(self.threads, TYPES[kind])
                part = np.ascontiguousarray(data[:, number * size : (number + 1) * size])
                value[mask] = part.view(TYPES[kind])[:, 0]
                self.put(name, value, "b16" if size == 1 else kind, mask)  # registers have 16 bits at least
            return
        parts = [np.ascontiguousarray(self.get(name, kind)[mask]).view(np.uint8).reshape(-1, size) for name in held]
        data = np.concatenate(parts, 1)
        if words[1] == "shared":
            self.shared.write(address, data, self.warp[mask])
        else:
            self.memory.bytes[self.memory.places(address, whole)] = data

    def _copy(self, one: Instruction, mask: np.ndarray) -> None:
        words, names = one.words, one.operands
        if words[2:3] == ["commit_group"]:
            for warp in np.flatnonzero(self._warps(mask)):
                self.groups[warp].append(self.begun[warp])
                self.begun[warp] = []
        elif words[2:3] == ["wait_group"]:
            count = int(names[0])
            for warp in np.flatnonzero(self._warps(mask)):
                groups = self.groups[warp]
                done, self.groups[warp] = groups[: len(groups) - count], groups[len(groups) - count :]
                for at, data in (copy for group in done for copy in group):
                    self.shared.flying[at] = False
                    self.shared.bytes[at] = data
                    self.shared.written[at], self.shared.writer[at] = self.shared.epoch, warp
        else:
            size = int(names[2])
            assert size == 16 or words[2] == "ca"
            count = self.get(names[3], "u32").astype(np.int64)[mask] if len(names) > 3 else np.full(mask.sum(), size)
            at = self.shared.places(self._address(names[0])[mask], size)
            self.shared.claim(at, self.warp[mask])
            self.shared.flying[at] = True
            data = np.zeros((len(at), size), np.uint8)
            reads = count > 0
            assert set(np.unique(count)) <= {0, size}
            data[reads] = self.memory.bytes[self.memory.places(self._address(names[1])[mask][reads], size)]
            for warp in np.unique(self.warp[mask]):
                own = self.warp[mask] == warp
                self.begun[warp].append((at[own], data[own]))

    def _warps(self, mask: np.ndarray) -> np.ndarray:
        """Those that are here; none may be so in part."""
        some = mask.reshape(-1, WARP)
        assert (some.all(1) | ~some.any(1)).all(), "a part of a warp"
        return some.all(1)

    def _load_matrix(self, one: Instruction, mask: np.ndarray) -> None:
        here, names = self._warps(mask), one.operands
        *held, where = names
        address = self._address(where)
        data = np.zeros((self.threads, 16), np.uint8)
        data[mask] = self.shared.read(address[mask], 16, self.warp[mask])
        rows = data.reshape(len(here), 4, 8, 16).view(np.uint16)  # warp, matrix, row, column
        if "trans" in one.words:
            rows = rows.transpose(0, 1, 3, 2)
        for number, name in enumerate(held):
            pairs = np.ascontiguousarray(rows[:, number].reshape(len(here), WARP, 2)).view(np.uint32)
            self.put(name, pairs.reshape(-1), "b32", mask)

    def _multiply(self, one: Instruction, mask: np.ndarray) -> None:
        here, names = self._warps(mask), one.operands
        shape, kind = one.words[3], one.words[-2]
        warps = len(here)
        out, a, b, c = names[:4], names[4:8], names[8:10], names[10:]
        lane = np.arange(WARP)
        group, within = lane // 4, lane % 4
        depth = {"m16n8k16": 16, "m16n8k8": 8}[shape]
        left, right = np.zeros((warps, 16, depth)), np.zeros((warps, depth, 8))
        for number, name in enumerate(a):
            row, half = group + number % 2 * 8, number // 2
            for k, value in self._elements(name, kind, half, within, depth):
                left[:, row, k] = value.reshape(warps, WARP)
        for number, name in enumerate(b):
            for k, value in self._elements(name, kind, number, within, depth):
                right[:, k, group] = value.reshape(warps, WARP)
        total = left @ right
        for number, (name, before) in enumerate(zip(out, c)):
            row, column = group + number // 2 * 8, within * 2 + number % 2
            old = self.get(before, "f32").reshape(warps, WARP)
            with np.errstate(all="ignore"):
                made = (total[:, row, column] + old).astype(np.float32)
            self.put(name, made.reshape(-1), "f32", mask)

    def _elements(self, name: str, kind: str, half: int, within: np.ndarray, depth: int):
        """The k of each lane, and the elements there."""
        bits = self.get(name, "u32")
        if kind == "tf32":
            yield within + 4 * half, (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
            return
        for number in range(2):
            part = (bits >> (16 * number)).astype(np.uint16)
            yield within * 2 + number + 8 * half, part.view(TYPES[kind]).astype(np.float64)

    def _shuffle(self, one: Instruction, mask: np.ndarray) -> None:
        self._warps(mask)
        assert one.words[2] == "bfly"
        distance = int(one.operands[2])
        value = self.get(one.operands[1], "b32")
        self.put(one.operands[0], value[self.lane_of ^ distance], "b32", mask)


def _shifted(left: bool) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def shift(value: np.ndarray, count: np.ndarray) -> np.ndarray:
        count = np.minimum(count, value.dtype.itemsize * 8 - 1).astype(value.dtype)
        return value << count if left else value >> count

    return shift


def _upper_half(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = 8 * a.dtype.itemsize
    return np.array([(int(x) * int(y)) >> bits for x, y in zip(*np.broadcast_arrays(a, b))], a.dtype)


COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "equ": lambda a, b: ~(a < b) & ~(a > b), "neu": lambda a, b: (a < b) | (a > b) | np.isnan(a) | np.isnan(b),
    "num": lambda a, b: ~np.isnan(a) & ~np.isnan(b), "nan": lambda a, b: np.isnan(a) | np.isnan(b),
    "ltu": lambda a, b: ~(a >= b), "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
}  # fmt: skip
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "mov": lambda a: a, "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "mul.hi": _upper_half,
    "mad": lambda a, b, c: a * b + c, "neg": lambda a: -a, "abs": np.abs, "not": lambda a: ~a,
    "div": lambda a, b: a / b if a.dtype.kind == "f" else a // np.maximum(b, 1),
    "rem": lambda a, b: a % np.maximum(b, 1),
    "min": lambda a, b: np.fmin(a, b) if a.dtype.kind == "f" else np.minimum(a, b),
    "max": lambda a, b: np.fmax(a, b) if a.dtype.kind == "f" else np.maximum(a, b),
    "min.NaN": np.minimum, "max.NaN": np.maximum,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "shl": _shifted(True), "shr": _shifted(False),
    "fma": lambda a, b, c: (a.astype(np.float64) * b + c).astype(np.float32),
    "ex2": np.exp2, "rcp": lambda a: np.float32(1) / a, "sqrt": np.sqrt, "rsqrt": lambda a: 1 / np.sqrt(a),
    "bfe": lambda a, at, count: (a >> at) & ((np.uint32(1) << count) - np.uint32(1)),
    "lg2": np.log2, "tanh": np.tanh, "copysign": lambda a, b: np.copysign(b, a),
}  # fmt: skip


def run_ptx(text: str, arrays: list[np.ndarray], blocks: int, shared: int, scalars: Sequence[int] = ()) -> int:
    """Runs all blocks of a kernel over arrays, in place; gives how many instructions of blocks that were."""
    program, memory = parsed(text), Memory(arrays, scalars)
    ran = 0
    for number in range(blocks):
        block = Block(program, memory, number, shared)
        block.run()
        left = [copy for groups in [block.begun, *block.groups] for group in groups for copy in group]
        assert not left, "copies that nobody waits for"
        ran += block.ran
    memory.take_back()
    return ran
