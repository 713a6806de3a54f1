"""What LLVM can lower to PTX. IR text comes in; an error names the first line that is not on the list.

LLVM ends the process over an operation that it has no PTX for, so text is checked before LLVM sees it. The list has
instructions, LLVM's intrinsics with the types they exist for, and families of NVPTX's own intrinsics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...base.errors import Unsupported

_INSTRUCTIONS = frozenset(
    "add sub mul shl lshr ashr and or xor udiv sdiv urem srem "
    "fadd fsub fmul fdiv fneg icmp fcmp select phi freeze "
    "trunc zext sext fptrunc fpext fptosi fptoui sitofp uitofp bitcast ptrtoint inttoptr addrspacecast "
    "extractelement insertelement shufflevector extractvalue insertvalue "
    "alloca load store getelementptr atomicrmw cmpxchg fence call br switch ret unreachable".split()
)
_MARKS = frozenset("tail musttail notail".split())
_HEADS = (
    "define ",
    "declare ",
    "@",
    "}",
    ";",
    "target ",
    "attributes ",
    "!",
    "source_filename",
    "module asm",
    "$",
    "]",
)

# LLVM's own intrinsics -> the types they may have, without a vector's length.
_FLOATS = frozenset({"f32", "f64"})
_ALL_FLOATS = _FLOATS | {"f16", "bf16"}
_INTEGERS = frozenset({"i8", "i16", "i32", "i64"})
_SHORT = frozenset({"f32", "f16", "bf16"})
_INTRINSICS: dict[str, frozenset[str]] = {
    **dict.fromkeys("sqrt floor ceil trunc rint nearbyint roundeven".split(), _FLOATS),
    **dict.fromkeys("fabs fma fmuladd copysign maxnum minnum maximum minimum".split(), _ALL_FLOATS),
    **dict.fromkeys("abs smin smax umin umax ctpop ctlz cttz fshl fshr bitreverse".split(), _INTEGERS),
    "exp2": _SHORT,
    "assume": frozenset({""}),
}
_APPROXIMATE = frozenset("sin cos tanh".split())  # of f32, only where `afn` allows it

# Families of llvm.nvvm: special registers, barriers, shuffles, copies, tensor cores, approximations.
_NVVM = tuple(
    "read.ptx.sreg. barrier bar. shfl.sync. vote. match. redux.sync. activemask elect.sync nanosleep "
    "griddepcontrol. mapa getctarank is_explicit_cluster setmaxnreg. fence. membar. mbarrier. cluster. "
    "cp.async. ldmatrix. stmatrix. mma. wgmma. prefetch. isspacep. add.rn fma.rn mul.rn "
    "ex2.approx. rcp.approx. rsqrt.approx. sqrt.approx. sin.approx. cos.approx. lg2.approx. div.approx. "
    "fmin. fmax. f2 d2 i2 ui2 ll2 ull2 idp dp4a dp2a prmt sad bfe bfi".split()
)

_CALLED = re.compile(r"@(?:\"([^\"]+)\"|([\w.$-]+))\(")
_LABEL = re.compile(r'^(?:[\w.$-]+|"[^"]+"):')
_RESULT = re.compile(r"^%[\w.$-]+ = |^%\"[^\"]+\" = ")
_DEFINED = re.compile(r"^define [^@]*@(?:\"([^\"]+)\"|([\w.$-]+))\(", re.MULTILINE)


def check_allowed(ir: str) -> None:
    """Raises Unsupported for text that has an operation which is not known to have PTX."""
    own = {quoted or plain for quoted, plain in _DEFINED.findall(ir)}
    for number, line in _instructions(ir):
        why = _objection(line, own)
        if why:
            raise Unsupported(
                f"LLVM IR that is not known to become PTX: {why}",
                where=f"line {number}: {line[:160]}",
                why="LLVM ends the process over an operation that it cannot lower",
                hint="write it with operations of the list in weft/codegen/cuda/allowed.py",
            )


def _instructions(ir: str) -> Iterator[tuple[int, str]]:
    """Lines with an instruction, without the name of its result."""
    for number, line in enumerate(ir.splitlines(), 1):
        text = line.strip()
        if not text or text.startswith(_HEADS) or _LABEL.match(text):
            continue
        if text.startswith(("i32 ", "i64 ", "i8 ", "i16 ")) and ", label " in text:
            continue  # a case of a switch
        yield number, _RESULT.sub("", text)


def _objection(text: str, own: set[str]) -> str:
    words = text.split()
    word = words[1] if words[0] in _MARKS and len(words) > 1 else words[0]
    if word not in _INSTRUCTIONS:
        return f"instruction {word}"
    if word == "call":
        return _call_objection(text, own)
    if word == "atomicrmw" and re.search(r"atomicrmw (volatile )?(f(sub|min|max)|u?nand)", text):
        return "an atomic operation that is none of PTX"
    return ""


def _call_objection(text: str, own: set[str]) -> str:
    if re.search(r"\basm\b", text.partition("(")[0]):
        return ""
    found = _CALLED.search(text)
    if found is None:
        return "a call through a pointer"
    name = found.group(1) or found.group(2)
    if name in own:
        return ""
    if not name.startswith("llvm."):
        return f"a call of {name}, which is not defined here"
    return "" if _is_intrinsic(name.removeprefix("llvm."), text) else f"intrinsic {name}"


def _is_intrinsic(name: str, text: str) -> bool:
    if name.startswith("nvvm."):
        return name.removeprefix("nvvm.").startswith(_NVVM)
    base, _, suffix = name.partition(".")
    kind = re.sub(r"^v\d+", "", suffix)
    if base in _APPROXIMATE:
        return kind == "f32" and " afn " in text.partition("@")[0]
    return kind in _INTRINSICS.get(base, ())
