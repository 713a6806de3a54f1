"""Integers at their limits, as machine code: operators that compute with them, each dtype in one
compiled graph, against Python's own integers wrapped to the dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from weft import symbol as sym
from weft.core.interpret import evaluate
from weft.runtime.report import report_of

INTEGERS = "int8 uint8 int16 uint16 int32 uint32 int64 uint64".split()
FLOATS = "float16 bfloat16 float32 float64".split()


def limits(dtype):
    info = np.iinfo(dtype)
    return info.min, info.max, info.bits


def wrapped(value, dtype):
    """An integer modulo 2 ** bits, as the dtype has it."""
    low, _, bits = limits(dtype)
    return (int(value) - low) % 2**bits + low


def edges(dtype):
    low, high, bits = limits(dtype)
    near = [0, 1, 2, 3, 7, bits - 1, bits, high // 2, high - 1, high]
    below = [-1, -2, -7, low, low + 1] if low else [high - 2, 5]
    return near + below


def floor_division(a, b):
    return a // b if b else 0


def remainder(a, b):
    return a % b if b else 0


def power(dtype):
    """Truncated where the exponent is negative."""
    _, _, bits = limits(dtype)

    def run(a, b):
        if b >= 0:
            return pow(a, b, 2**bits)
        return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)

    return run


def shifted_left(dtype):
    _, _, bits = limits(dtype)
    return lambda a, b: a << b if 0 <= b < bits else 0


def shifted_right(dtype):
    _, _, bits = limits(dtype)
    return lambda a, b: a >> (b if 0 <= b < bits else bits - 1) if a < 0 or 0 <= b < bits else 0


def pairs(dtype):
    """(name, what Python says of two integers)"""
    arithmetic = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": floor_division,
        "mod": remainder,
        "pow": power(dtype),
    }
    found = [(f"{kind}_{n}", f) for kind in ("elemwise", "broadcast") for n, f in arithmetic.items()]
    return found + [
        ("broadcast_max", max),
        ("broadcast_min", min),
        ("broadcast_left_shift", shifted_left(dtype)),
        ("broadcast_right_shift", shifted_right(dtype)),
        ("broadcast_greater", lambda a, b: a > b),
        ("broadcast_less", lambda a, b: a < b),
        ("broadcast_equal", lambda a, b: a == b),
        ("broadcast_not_equal", lambda a, b: a != b),
        ("broadcast_greater_equal", lambda a, b: a >= b),
        ("broadcast_less_equal", lambda a, b: a <= b),
        ("greater", lambda a, b: a > b),
        ("less", lambda a, b: a < b),
        ("logical_and", lambda a, b: bool(a) and bool(b)),
        ("logical_or", lambda a, b: bool(a) or bool(b)),
    ]


UNARY = {
    "abs": abs,
    "negative": lambda a: -a,
    "relu": lambda a: max(a, 0),
    "copy": int,
    "floor": int,
    "ceil": int,
    "trunc": int,
    "round": int,
    "sign": lambda a: (a > 0) - (a < 0),
    "logical_not": lambda a: not a,
    "zeros_like": lambda a: 0,
    "ones_like": lambda a: 1,
}


def with_numbers(dtype):
    """(name, scalar, what Python says of an integer)"""
    low, _, bits = limits(dtype)
    numbers = [0, 1, 3, 100] + ([-1, -3] if low else [])
    made = []
    says = {
        "__add_scalar__": lambda a, s: a + s,
        "__sub_scalar__": lambda a, s: a - s,
        "__rsub_scalar__": lambda a, s: s - a,
        "__mul_scalar__": lambda a, s: a * s,
        "__div_scalar__": floor_division,
        "__rdiv_scalar__": lambda a, s: floor_division(s, a),
        "__pow_scalar__": power(dtype),
    }
    for s in numbers:
        made += [(name, s, lambda a, s=s, call=call: call(a, s)) for name, call in says.items()]
    for s in (0, 1, bits - 1, bits, 100):
        made += [
            ("__lshift_scalar__", s, lambda a, s=s: shifted_left(dtype)(a, s)),
            ("__rshift_scalar__", s, lambda a, s=s: shifted_right(dtype)(a, s)),
        ]
    return made


def run(outputs, **values):
    """The outputs of a graph as machine code, none of them by a host step."""
    group = sym.Group(outputs)
    names = set(group.list_input_names())
    given = {name: value for name, value in values.items() if name in names}
    shapes = {name: value.shape for name, value in given.items()}
    dtypes = {name: str(value.dtype) for name, value in given.items()}
    graph, library, _ = weft.compiler.build(group, "llvm", shapes, dtypes)
    module = weft.runtime.create(graph, library)
    assert report_of([library.program]).host_steps == ()
    module.run(**given)
    return [module.get_output(i).asnumpy() for i in range(module.get_num_outputs())]


def check(name, found, expected, *inputs):
    wrong = [
        (place, got, want)
        for place, got, want in zip(zip(*inputs), found.reshape(-1).tolist(), expected)
        if int(got) != want
    ]
    assert not wrong, f"operator {name} of {found.dtype}: {wrong[:3]}"


@pytest.fixture(params=INTEGERS)
def dtype(request):
    return request.param


def test_pairs(dtype):
    some = np.array(edges(dtype), object)
    a, b = (x.reshape(-1).astype(dtype) for x in np.meshgrid(some, some))
    x, y = sym.Variable("a"), sym.Variable("b")
    rows = pairs(dtype)
    outputs = run([getattr(sym, name)(x, y) for name, _ in rows], a=a, b=b)
    for (name, says), found in zip(rows, outputs, strict=True):
        expected = [wrapped(says(p, q), dtype) for p, q in zip(a.tolist(), b.tolist())]
        check(name, found, expected, a.tolist(), b.tolist())


def test_single_numbers(dtype):
    a = np.array(edges(dtype), object).astype(dtype)
    x = sym.Variable("a")
    rows = [(name, {}, says) for name, says in UNARY.items()]
    rows += [(name, {"scalar": s}, says) for name, s, says in with_numbers(dtype)]
    outputs = run([getattr(sym, name)(x, **attrs) for name, attrs, _ in rows], a=a)
    for (name, attrs, says), found in zip(rows, outputs, strict=True):
        assert found.dtype == dtype, name
        check((name, attrs), found, [wrapped(says(v), dtype) for v in a.tolist()], a.tolist())


def test_reductions(dtype):
    a = np.array([edges(dtype), edges(dtype)[::-1]], object).astype(dtype)
    x = sym.Variable("a")
    rows = [
        ("sum", sum),
        ("prod", math.prod),
        ("max", max),
        ("min", min),
        ("argmax", lambda row: row.index(max(row))),
        ("argmin", lambda row: row.index(min(row))),
    ]
    outputs = run([getattr(sym, name)(x, axis=1) for name, _ in rows], a=a)
    for (name, says), found in zip(rows, outputs, strict=True):
        kind = "int32" if name.startswith("arg") else dtype
        expected = [wrapped(says(row), kind) for row in a.tolist()]
        check(name, found, expected, a.tolist())


def test_casts_of_integers(dtype):
    a = np.array(edges(dtype), object).astype(dtype)
    kinds = [*INTEGERS, "bool", *FLOATS]
    outputs = run([sym.cast(sym.Variable("a"), dtype=kind) for kind in kinds], a=a)
    for kind, found in zip(kinds, outputs, strict=True):
        if kind in INTEGERS:
            expected = [wrapped(v, kind) for v in a.tolist()]
            check(f"cast to {kind}", found, expected, a.tolist())
        elif kind == "bool":
            assert found.tolist() == [v != 0 for v in a.tolist()]
        else:
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(found, a.astype(found.dtype), err_msg=kind)


@pytest.mark.parametrize("kind", FLOATS)
def test_casts_of_floats_are_defined_everywhere(kind, dtype):
    """Towards zero where the result fits; elsewhere what the reference says, and no trap."""
    low, high, bits = limits(dtype)
    edge = [0.0, -0.0, 0.5, -0.5, 1.9, -1.9, 127.5, -128.5, 1e30, -1e30, np.inf, -np.inf, np.nan]
    a = np.array([*edge, low, high, 2.0**bits, -(2.0**bits), 2.0 ** (bits - 1)])
    with np.errstate(over="ignore"):
        a = a.astype(np.dtype(kind) if kind != "bfloat16" else weft.base.dtype.as_dtype(kind))
    made = sym.cast(sym.Variable("a"), dtype=dtype)
    (found,) = run([made], a=a)
    (said,) = evaluate(made, {"a": a})
    np.testing.assert_array_equal(found, said)
    for value, result in zip(a.astype("float64").tolist(), found.tolist()):
        if math.isfinite(value) and low <= math.trunc(value) <= high:
            assert result == math.trunc(value)


def test_booleans():
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    rows = {
        "logical_and": np.logical_and,
        "logical_or": np.logical_or,
        "broadcast_equal": np.equal,
        "broadcast_max": np.maximum,
        "broadcast_min": np.minimum,
        "broadcast_greater": np.greater,
        "broadcast_less_equal": np.less_equal,
    }
    x, y = sym.Variable("a"), sym.Variable("b")
    outputs = run([getattr(sym, name)(x, y) for name in rows], a=a, b=b)
    for (name, call), found in zip(rows.items(), outputs, strict=True):
        np.testing.assert_array_equal(found, call(a, b), err_msg=name)
