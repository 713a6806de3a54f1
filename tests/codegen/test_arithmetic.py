"""Operators, comparisons, intrinsics and casts of every dtype against numpy, scalar and vector."""

from __future__ import annotations

import operator
from itertools import product

import numpy as np
import pytest
from codegen.native import ISAS, elementwise

from weft import te
from weft.base.dtype import DTYPES
from weft.base.errors import DTypeError, Unsupported
from weft.te.expr import binary, call, cast, compare, const, select

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
MODES = [("sse", 1), ("sse", 4), ("avx2", 1), ("avx2", 8), ("avx512", 16)]
SIZE = 203
rng = np.random.default_rng(0)


def integers(dtype: str, size: int = SIZE) -> np.ndarray:
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, size, dtype, endpoint=True)
    edges = [0, 1, info.max, info.min, info.max - 1, info.min + 1, 2, 3]
    values[: len(edges)] = np.array(edges, dtype)
    small = rng.integers(0, 5, size) - (2 if info.min < 0 else 0)
    return np.where(rng.random(size) < 0.3, small.astype(dtype), values)


def floats(dtype: str, size: int = SIZE) -> np.ndarray:
    values = (rng.standard_normal(size) * 10.0 ** rng.integers(-3, 4, size)).astype(np.float64)
    values[:8] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5]
    rng.shuffle(values)
    return values.astype(DTYPES[dtype])


def check(got: np.ndarray, wanted: np.ndarray) -> None:
    wanted = np.asarray(wanted).astype(got.dtype)
    if got.dtype == DTYPES["bfloat16"]:
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_array_equal(got, wanted)


WRAPPING = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "floormod": np.remainder,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(("isa", "lanes"), [("sse", 1), ("avx2", 8), ("avx512", 16)])
def test_integer_operators_wrap_and_never_trap(dtype, isa, lanes):
    x, y = integers(dtype), rng.permutation(integers(dtype))
    for op, oracle in WRAPPING.items():
        got = elementwise(lambda a, b, op=op: binary(op, a, b), [x, y], dtype, isa, lanes)
        with np.errstate(all="ignore"):
            check(got, oracle(x, y))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_by_constants(dtype):
    x = integers(dtype)
    divisors = [1, 2, 3, 7, 8, 100] + ([-1, -2, -3, -8] if dtype[0] == "i" else [])
    for divisor, lanes in product(divisors, (1, 8)):
        number = const(divisor, dtype)
        with np.errstate(all="ignore"):
            got = elementwise(lambda a, n=number: a // n.value, [x], dtype, "avx2", lanes)
            check(got, x // np.array(divisor, dtype))
            got = elementwise(lambda a, n=number: a % n.value, [x], dtype, "avx2", lanes)
            check(got, x % np.array(divisor, dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_truncating_division(dtype):
    x, y = integers(dtype), rng.permutation(integers(dtype))
    got = elementwise(operator.truediv, [x, y], dtype, "avx2", 1)
    exact = [
        0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(x.tolist(), y.tolist())
    ]
    bits = 8 * np.dtype(dtype).itemsize
    assert [int(v) % 2**bits for v in got] == [v % 2**bits for v in exact]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("isa", "lanes"), MODES)
def test_float_operators_keep_nan_and_infinity(dtype, isa, lanes):
    x, y = floats(dtype), floats(dtype)
    oracles = {k: WRAPPING[k] for k in ("add", "sub", "mul", "min", "max", "floormod")}
    oracles["div"] = np.true_divide
    for op, oracle in oracles.items():
        got = elementwise(lambda a, b, op=op: binary(op, a, b), [x, y], dtype, isa, lanes)
        with np.errstate(all="ignore"):
            check(got, oracle(x, y))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("isa", "lanes"), MODES)
def test_16_bit_float_operators(dtype, isa, lanes):
    x, y = floats(dtype), floats(dtype)
    for op in ("add", "sub", "mul", "min", "max", "div"):
        oracle = {**WRAPPING, "div": np.true_divide}[op]
        got = elementwise(lambda a, b, op=op: binary(op, a, b), [x, y], DTYPES[dtype], isa, lanes)
        with np.errstate(all="ignore"):
            check(got, oracle(x.astype(np.float32), y.astype(np.float32)))


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_comparisons(dtype):
    make = floats if dtype in FLOATS else integers
    x, y = make(dtype), make(dtype)
    y = np.where(rng.random(SIZE) < 0.3, x, y)
    for op, (isa, lanes) in product(("lt", "le", "gt", "ge", "eq", "ne"), MODES):
        got = elementwise(lambda a, b, op=op: compare(op, a, b), [x, y], "bool", isa, lanes)
        with np.errstate(all="ignore"):
            check(got, getattr(operator, op)(x, y))


def test_bool_logic():
    x, y = rng.random(SIZE) < 0.5, rng.random(SIZE) < 0.5
    oracles = {"and": x & y, "or": x | y, "xor": x ^ y, "min": x & y, "max": x | y, "add": x | y}
    for (op, wanted), (isa, lanes) in product(oracles.items(), MODES):
        got = elementwise(lambda a, b, op=op: binary(op, a, b), [x, y], "bool", isa, lanes)
        check(got, wanted)
    check(elementwise(operator.invert, [x], "bool", "avx2", 8), ~x)
    with pytest.raises(DTypeError):
        elementwise(operator.sub, [x, y], "bool", "avx2", 8)


def test_select_and_negation():
    x, y = floats("float32"), integers("int16")
    got = elementwise(lambda a: select(a < 0.0, -a, a), [x], "float32", "avx512", 16)
    check(got, np.where(x < 0, -x, x))
    check(elementwise(operator.neg, [y], "int16", "avx2", 8), -y)
    check(elementwise(operator.invert, [y], "int16", "avx2", 8), ~y)


def in_range(values: np.ndarray, source: str, target: str) -> np.ndarray:
    """Values whose conversion C defines."""
    if source in FLOATS and target in INTEGERS:
        info = np.iinfo(target)
        wide = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=1.0, neginf=0.0)
        return np.clip(wide, info.min / 2, info.max / 2).astype(DTYPES[source])
    return values


@pytest.mark.parametrize("source", ["bool", *INTEGERS, *FLOATS])
@pytest.mark.parametrize(("isa", "lanes"), MODES)
def test_casts(source, isa, lanes):
    if source == "bool":
        values = rng.random(SIZE) < 0.5
    else:
        values = (floats if source in FLOATS else integers)(source)
    for target in ["bool", *INTEGERS, *FLOATS]:
        x = in_range(values, source, target)
        got = elementwise(lambda a, t=target: cast(a, t), [x], DTYPES[target], isa, lanes)
        with np.errstate(all="ignore"):
            check(got, x.astype(DTYPES[target]))


def test_float_to_integer_out_of_range_gives_what_x86_gives():
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e30, 2147483648.0, -2147483648.0])
    smallest = np.iinfo(np.int32).min
    got = elementwise(lambda a: cast(a, "int32"), [x], "int32", "avx2", 8)
    assert got.tolist() == [smallest] * 8
    got = elementwise(lambda a: cast(a, "int64"), [x[[0, 1, 2, 5]]], "int64", "avx2", 1)
    assert got.tolist() == [np.iinfo(np.int64).min] * 4
    signed = np.array([-1.0, -200.0, 300.0], np.float32)
    got = elementwise(lambda a: cast(a, "uint8"), [signed], "uint8", "avx2", 4)
    assert got.tolist() == [255, 56, 44]
    edge = np.array([-2147483648.9, 2147483647.9])
    got = elementwise(lambda a: cast(a, "int32"), [edge], "int32", "avx2", 2)
    assert got.tolist() == [-2147483648, 2147483647]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_pattern_survives_and_rounding_is_to_even(isa, dtype):
    kind = DTYPES[dtype]
    every = np.arange(2**16, dtype=np.uint16).view(kind)
    wide = elementwise(lambda a: cast(a, "float32"), [every], "float32", isa, 16)
    check(wide, every.astype(np.float32))
    with np.errstate(all="ignore"):
        ordered = np.unique(every[np.isfinite(every)].astype(np.float64))
        middles = (ordered[1:] + ordered[:-1]) / 2
        nudged = np.concatenate([middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), ordered])
        nudged = np.concatenate([nudged, [65519.99, 65520.0, 3.4e38, -1e39, 1e-30, np.inf]])
        single = nudged.astype(np.float32)
        got = elementwise(lambda a: cast(a, dtype), [single], kind, isa, 16)
        check(got.astype(np.float32), single.astype(kind).astype(np.float32))
        got = elementwise(lambda a: cast(a, dtype), [nudged], kind, isa, 8)
    if dtype == "float16":
        with np.errstate(all="ignore"):
            check(got, nudged.astype(np.float16))
    else:
        check(got[: middles.size], _nearest_even(middles, ordered, kind))


def _nearest_even(middles: np.ndarray, ordered: np.ndarray, kind: np.dtype) -> np.ndarray:
    below, above = ordered[:-1].astype(kind), ordered[1:].astype(kind)
    return np.where(below.view(np.uint16) % 2 == 0, below, above)


@pytest.mark.parametrize(("isa", "lanes"), MODES)
def test_bfloat16_keeps_nan_quiet(isa, lanes):
    patterns = np.array([0x7F800001, 0xFFFFFFFF, 0x7FC00000, 0x7FFFFFFF], np.uint32)
    x = np.tile(patterns.view(np.float32), 5)
    got = elementwise(lambda a: cast(a, "bfloat16"), [x], DTYPES["bfloat16"], isa, lanes)
    bits = got.view(np.uint16)
    assert ((bits & 0x7FC0) == 0x7FC0).all()


def test_rounding_and_predicates():
    x = np.concatenate([floats("float32"), np.arange(-4, 4, 0.5, np.float32)])
    oracles = {
        "floor": np.floor,
        "ceil": np.ceil,
        "trunc": np.trunc,
        "round": np.rint,
        "abs": np.abs,
        "sqrt": np.sqrt,
        "isnan": np.isnan,
        "isinf": np.isinf,
        "isfinite": np.isfinite,
    }
    for (name, oracle), (isa, lanes) in product(oracles.items(), MODES):
        kind = "bool" if name.startswith("is") else "float32"
        got = elementwise(lambda a, name=name: call(name, a), [x], kind, isa, lanes)
        with np.errstate(all="ignore"):
            check(got, oracle(x))


def test_products_of_four_bytes():
    """Every form: one instruction, pairs of 16 bits, and four products."""
    rng = np.random.default_rng(3)
    total = rng.integers(-(2**31), 2**31, 99).astype(np.int32)
    x, y = rng.integers(0, 256, (99, 4)).astype(np.uint8), rng.integers(-128, 128, (99, 4)).astype(np.int8)
    x[:4], y[:4] = 255, -128
    wanted = total + (x.astype(np.int32) * y).sum(1, dtype=np.int32)
    arrays = [total, x.view(np.int32)[:, 0], y.view(np.int32)[:, 0]]
    for isa, lanes in (("sse", 1), ("sse", 4), ("avx2", 8), ("avx2", 2), ("avx512", 16), ("avx512", 4)):
        check(elementwise(te.dot_bytes, arrays, "int32", isa, lanes), wanted)


def test_fmod_and_floordiv_of_floats():
    x, y = floats("float32"), floats("float32")
    for dtype, (isa, lanes) in product(("float32", "float64"), (("avx2", 1), ("avx512", 16))):
        a, b = x.astype(dtype), y.astype(dtype)
        with np.errstate(all="ignore"):
            got = elementwise(lambda p, q: call("fmod", p, q), [a, b], dtype, isa, lanes)
            check(got, np.fmod(a, b))
            got = elementwise(operator.floordiv, [a, b], dtype, isa, lanes)
            check(got, np.floor(a / b))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_power_wraps(dtype):
    x, n = integers(dtype), integers(dtype)
    n = np.where(rng.random(SIZE) < 0.7, n & 15, n)
    modulus = 2 ** (8 * np.dtype(dtype).itemsize)
    got = elementwise(lambda a, b: call("pow", a, b), [x, n], dtype, "avx2", 4)
    for value, base, power in zip(got.tolist(), x.tolist(), n.tolist()):
        if power >= 0:
            assert value % modulus == pow(base, power, modulus)
        else:
            assert value == {1: 1, -1: 1 - 2 * (power % 2)}.get(base, 0)


def test_fma_rounds_once_where_the_machine_can():
    x = (1 + rng.random(SIZE)).astype(np.float32)
    y = (1 + rng.random(SIZE)).astype(np.float32)
    z = -(x * y)
    got = elementwise(lambda a, b, c: call("fma", a, b, c), [x, y, z], "float32", "avx2", 8)
    exact = x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)
    check(got, exact.astype(np.float32))


def test_complex_is_refused():
    x = np.zeros(4, np.complex64)
    with pytest.raises(Unsupported, match="complex64"):
        elementwise(lambda a: a, [x], "complex64", "avx2", 1)
