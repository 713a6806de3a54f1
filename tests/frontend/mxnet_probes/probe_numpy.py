"""Probes of what mx.np and mx.npx make."""

import mxnet as mx
import numpy as np
from probing import floats, ints, probe, var


def numpy_ops():
    """What mx.np and mx.npx make; shapes may be () there."""
    mx.npx.set_np()
    try:
        numpy_arithmetic(mx.sym.np, mx.sym.npx)
        numpy_reductions(mx.sym.np)
        numpy_shapes(mx.sym.np, mx.sym.npx)
    finally:
        mx.npx.reset_np()


def np_var(name, dtype=None):
    return var(name, dtype).as_np_ndarray()


def numpy_arithmetic(np_, npx):
    x, y = np_var("x"), np_var("y")
    names = (
        "absolute negative reciprocal sign ceil floor trunc fix square sqrt cbrt exp log log10 "
        "log2 log1p expm1 sin cos tan arctan sinh cosh tanh arcsinh degrees radians rint"
    ).split()
    for name in names:
        probe(f"np_{name}", getattr(np_, name)(x), x=floats(3, 4, low=0.1))
    for name in "arcsin arccos arctanh".split():
        probe(f"np_{name}", getattr(np_, name)(x), x=floats(5, low=-0.9, high=0.9))
    probe("np_arccosh", np_.arccosh(x), x=floats(5, low=1.1, high=4))
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.3, -0.7], "float32")
    probe("np_rint_halves", np_.rint(x), x=halves)
    probe("np_around", np_.around(x, 1), x=floats(7))
    probe("np_around_whole", np_.around(x), x=halves)
    probe("npx_relu", npx.relu(x), x=floats(3, 4))
    probe("npx_sigmoid", npx.sigmoid(x), x=floats(3, 4))
    probe("np_copy", np_.copy(x), x=floats(3))
    for name in "add subtract multiply power true_divide mod".split():
        made = getattr(np_, name)(x, y)
        probe(f"np_{name}", made, x=floats(2, 3, 4, low=0.1), y=floats(3, 1, low=0.5))
    wide = {"x": np.arange(-3, 3, dtype="int32"), "y": floats(6, low=0.5)}
    probe("np_divide_whole", np_var("x", "int32") / 4, x=wide["x"])
    probe("np_add_mixed", np_.add(np_var("x", "int32"), y), **wide)
    for name, made in {
        "add": x + 1.5,
        "subtract": x - 1.5,
        "rsubtract": 1.5 - x,
        "multiply": x * 1.5,
        "divide": x / 1.5,
        "rdivide": 1.5 / x,
        "power": x**1.5,
        "rpower": 1.5**x,
        "mod": x % 1.5,
        "rmod": 1.5 % x,
    }.items():
        probe(f"np_{name}_number", made, x=floats(7, low=0.1))
    for name in "equal not_equal greater greater_equal less less_equal".split():
        probe(f"np_{name}", getattr(np_, name)(x, y), x=ints(3, 2, 4), y=ints(3, 4))
        probe(f"np_{name}_number", getattr(np_, name)(x, 1), x=ints(3, 2, 4))
    probe("np_logical_not", np_.logical_not(x), x=ints(2, 5))
    odd = np.array([np.nan, np.inf, -np.inf, 0, 1.5], "float32")
    for name in "isnan isinf isfinite".split():
        probe(f"np_{name}", getattr(np_, name)(x), x=odd)
    arrays = {"x": ints(2, 3, 1), "y": floats(4), "z": floats(3, 4)}
    probe("np_where", np_.where(x, y, np_var("z")), **arrays)
    probe("np_where_left", np_.where(x, 2.0, y), x=ints(2, 3, 1), y=floats(4))
    probe("np_where_right", np_.where(x, y, 2.0), x=ints(2, 3, 1), y=floats(4))
    probe("np_where_numbers", np_.where(x, 2.0, 3.0), x=ints(2, 3, 1))


def numpy_reductions(np_):
    x = np_var("x")
    for name in "sum prod mean max min".split():
        for axis, keep in ((None, False), (None, True), (1, False), ((0, -1), False), (-1, True)):
            made = getattr(np_, name)(x, axis=axis, keepdims=keep)
            probe(f"np_{name}_{axis}_{int(keep)}", made, x=floats(2, 3, 4, low=0.5))
    for name in "var std".split():
        for axis, ddof in ((None, 0), (1, 1), ((0, 2), 0)):
            made = getattr(np_, name)(x, axis=axis, ddof=ddof)
            probe(f"np_{name}_{axis}", made, x=floats(2, 3, 4))
    for name in "argmax argmin".split():
        for axis in (None, 0, -1):
            probe(f"np_{name}_{axis}", getattr(np_, name)(x, axis=axis), x=floats(3, 4))
    for name in "any all".split():
        for axis in (None, 0):
            probe(f"np_{name}_{axis}", getattr(np_, name)(x, axis=axis), x=ints(2, 3, 4))
    probe("np_cumsum", np_.cumsum(x, axis=1), x=floats(2, 5))
    probe("np_cumsum_all", np_.cumsum(x), x=floats(2, 5))


def numpy_shapes(np_, npx):
    x, y = np_var("x"), np_var("y")
    probe("np_reshape", np_.reshape(x, (3, -1)), x=floats(2, 3, 4))
    probe("np_reshape_scalar", np_.reshape(x, ()), x=floats(1, 1))
    for i, (codes, shape) in enumerate(
        (
            ((-2, -1), (2, 3, 4)),
            ((-4,), (2, 3, 4)),
            ((-5, -2), (2, 3, 4)),
            ((-3, -4), (1, 3, 4)),
            ((-6, 1, 2, -4), (2, 3, 4)),
            ((-2, -6, -1, 2, 2), (2, 4, 2)),
            ((6, -1), (2, 3, 4)),
        )
    ):
        probe(f"npx_reshape_{i}", npx.reshape(x, codes), x=floats(*shape))
    probe("npx_reshape_back", npx.reshape(x, (-1, -2), reverse=True), x=floats(2, 3, 4))
    probe("np_transpose", np_.transpose(x), x=floats(2, 3, 4))
    probe("np_transpose_axes", np_.transpose(x, (1, 0, 2)), x=floats(2, 3, 4))
    probe("np_moveaxis", np_.moveaxis(x, 0, -1), x=floats(2, 3, 4))
    probe("np_moveaxis_two", np_.moveaxis(x, (0, 1), (-1, 0)), x=floats(2, 3, 4))
    probe("np_squeeze", np_.squeeze(x), x=floats(1, 3, 1))
    probe("np_squeeze_axis", np_.squeeze(x, axis=0), x=floats(1, 3, 1))
    probe("np_squeeze_all", np_.squeeze(x), x=floats(1, 1))
    for axis in (0, 1, -1):
        probe(f"np_concatenate_{axis}", np_.concatenate([x, y], axis=axis), x=floats(2, 3, 4), y=floats(2, 3, 4))
        probe(f"np_stack_{axis}", np_.stack([x, y], axis=axis), x=floats(2, 3), y=floats(2, 3))
    for name in ("hstack", "vstack"):
        made = getattr(np_, name)([x, y])
        probe(f"np_{name}", made, x=floats(2, 3), y=floats(2, 3))
        probe(f"np_{name}_vectors", made, x=floats(3), y=floats(3))
    probe("np_broadcast_to", np_.broadcast_to(x, (2, 3, 4)), x=floats(3, 1))
    probe("np_flip", np_.flip(x, (0, 1)), x=floats(2, 3, 4))
    probe("np_roll", np_.roll(x, 2, axis=1), x=floats(2, 5))
    probe("np_roll_all", np_.roll(x, -3), x=floats(2, 5))
    probe("np_tril", np_.tril(x, 1), x=floats(2, 4, 4))
    probe("np_zeros", np_.zeros((2, 3)) + x, x=floats(3))
    probe("np_ones", np_.ones((2, 3)) + x, x=floats(3))
    probe("np_full_like", np_.full_like(x, 2.5) + x, x=floats(3))
    probe("np_arange", np_.arange(1, 7, 2) + x, x=floats(3))
    probe("np_identity", np_.identity(3) + x, x=floats(3))
    for i, (a, b) in enumerate(
        (((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((3,), (3,)))
    ):
        probe(f"np_matmul_{i}", np_.matmul(x, y), x=floats(*a), y=floats(*b))
    for i, (a, b) in enumerate((((2, 3), (3, 4)), ((3,), (3,)), ((2, 5, 3), (3,)))):
        probe(f"np_dot_{i}", np_.dot(x, y), x=floats(*a), y=floats(*b))
    probe("np_tensordot", np_.tensordot(x, y, 2), x=floats(2, 3, 4), y=floats(3, 4, 5))
    made = np_.tensordot(x, y, ((0, 2), (1, 0)))
    probe("np_tensordot_axes", made, x=floats(2, 3, 4), y=floats(4, 2, 5))
