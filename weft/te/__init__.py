"""Tensor expressions and the loop IR they become. Knows nothing of graphs, operators or LLVM.

An operator's body is written with the names exported here:

    te.compute(x.shape, lambda *i: te.max(x[i], 0))

Names load when they are first used: operators are known before one of them is compiled.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "build": "KernelBuilder",
    "expr": "Const Expr ExprLike ReduceAxis Var all_of as_expr binary call cast compare const maximum minimum select",
    "extents": "greater is_open is_same lesser stays_open",
    "intrinsics": (
        "abs acos acosh asin asinh atan atan2 atanh ceil cos cosh dot_bytes dot_pairs erf exp exp2 expm1 "
        "floor fma fmod isfinite isinf isnan log log1p log2 log10 logical_not max min pow round rsqrt "
        "sigmoid sin sinh sqrt tan tanh tf32_rest trunc"
    ),
    "loops": "Buffer Kernel Stmt buffer",
    "printer": "show",
    "reducers": "all any max_of min_of prod reduce sum",
    "tensor": "Tensor compute placeholder read_or reduce_axis",
    "visit": "masked_load same",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'weft.te' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
