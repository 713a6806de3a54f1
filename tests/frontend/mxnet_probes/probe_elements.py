"""Probes of element-wise operators, reductions and what ends a network."""

import mxnet as mx
import numpy as np
from probing import S, floats, ints, probe, var


def unary():
    shape = (3, 4)
    plain = (
        "abs ceil cos cosh erf exp expm1 floor negative relu sigmoid sign sin sinh softsign tan "
        "tanh trunc fix arctan arcsinh rint round square cbrt degrees radians ones_like zeros_like "
        "logical_not hard_sigmoid softmin BlockGrad identity"
    ).split()
    for name in plain:
        probe(name, getattr(S, name)(var("x")), x=floats(*shape))
    for name in "log log1p log2 log10 sqrt rsqrt rcbrt reciprocal".split():
        probe(name, getattr(S, name)(var("x")), x=floats(*shape, low=0.1))
    for name in "arccos arcsin arctanh".split():
        probe(name, getattr(S, name)(var("x")), x=floats(*shape, low=-0.9, high=0.9))
    probe("arccosh", S.arccosh(var("x")), x=floats(*shape, low=1.1, high=4))
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.3, -0.7], "float32")
    probe("rint_halves", S.rint(var("x")), x=halves)
    probe("round_halves", S.round(var("x")), x=halves)
    probe("smooth_l1", S.smooth_l1(var("x"), scalar=2.0), x=floats(*shape))
    probe("clip", S.clip(var("x"), a_min=-1, a_max=0.5), x=floats(*shape))
    for dtype in "float64 int32 int64 int8 uint8 float16".split():
        probe(f"cast_{dtype}", S.cast(var("x"), dtype=dtype), x=floats(*shape, low=0, high=9))
    probe("cast_negative", S.cast(var("x"), dtype="int32"), x=floats(*shape))


def scalars():
    for name in (
        "_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar _rdiv_scalar "
        "_mod_scalar _rmod_scalar _maximum_scalar _minimum_scalar _equal_scalar _not_equal_scalar "
        "_greater_scalar _greater_equal_scalar _lesser_scalar _lesser_equal_scalar "
        "_logical_and_scalar _logical_or_scalar _logical_xor_scalar _hypot_scalar"
    ).split():
        data = np.concatenate([floats(7), [1.5, 0.0, -1.5]]).astype("float32")
        probe(name[1:], getattr(mx.sym._internal, name)(var("x"), scalar=1.5), x=data)
    probe("power_scalar", var("x") ** 1.5, x=floats(5, low=0.1))
    probe("rpower_scalar", 1.5 ** var("x"), x=floats(5))
    probe("int_plus", var("x", "int32") + 3, x=np.arange(4, dtype="int32"))
    probe("int_mul", var("x", "int32") * 3, x=np.arange(4, dtype="int32"))
    signed = np.array([-7, -3, 0, 5, 8], "int32")
    probe("int_div", var("x", "int32") / 3, x=signed)
    other = np.array([2, -2, 3, -3, 5], "int32")
    probe("int_div_two", S.broadcast_div(var("x", "int32"), var("y", "int32")), x=signed, y=other)
    probe("int_mod", S.broadcast_mod(var("x", "int32"), var("y", "int32")), x=signed, y=other)
    probe("int_greater", var("x", "int32") > 2, x=np.arange(4, dtype="int32"))


def binary():
    for name in "elemwise_add elemwise_sub elemwise_mul elemwise_div _power _maximum _minimum _mod".split():
        make = getattr(S, name, None) or getattr(mx.sym._internal, name)
        low = 0.1 if name in ("_power", "elemwise_div") else -2.0
        probe(f"two_{name}", make(var("x"), var("y")), x=floats(3, 4, low=low), y=floats(3, 4))
    for name in (
        "add sub mul div mod power maximum minimum hypot equal not_equal greater greater_equal "
        "lesser lesser_equal logical_and logical_or logical_xor"
    ).split():
        x, y = floats(2, 3, 4, low=0.1), floats(1, 3, 1)
        if "equal" in name or "logical" in name:
            x, y = ints(2, 2, 3, 4), ints(2, 1, 3, 1)
        probe(f"broadcast_{name}", getattr(S, f"broadcast_{name}")(var("x"), var("y")), x=x, y=y)
    y = np.array([[0.0, 1.0, -1.5]], "float32")
    probe("mod_by_zero", S.broadcast_mod(var("x"), var("y")), x=floats(2, 3), y=y)
    probe("add_n", S.add_n(var("x"), var("y"), var("z")), x=floats(2, 3), y=floats(2, 3), z=floats(2, 3))
    probe("where", S.where(var("x"), var("y"), var("z")), x=ints(2, 3, 4), y=floats(3, 4), z=floats(3, 4))
    probe("where_rows", S.where(var("x"), var("y"), var("z")), x=ints(2, 3), y=floats(3, 4), z=floats(3, 4))
    probe("hypot_two", mx.sym._internal._hypot(var("x"), var("y")), x=floats(4), y=floats(4))


def reductions():
    for name in "sum mean prod max min nansum nanprod norm".split():
        make = getattr(S, name)
        probe(f"{name}_all", make(var("x")), x=floats(2, 3, 4))
        probe(f"{name}_axis", make(var("x"), axis=1), x=floats(2, 3, 4))
        probe(f"{name}_keep", make(var("x"), axis=(0, 2), keepdims=True), x=floats(2, 3, 4))
    probe("sum_exclude", S.sum(var("x"), axis=(1,), exclude=True), x=floats(2, 3, 4))
    probe("sum_negative", S.sum(var("x"), axis=-1), x=floats(2, 3, 4))
    probe("norm_one", S.norm(var("x"), ord=1, axis=1), x=floats(2, 3, 4))
    nans = floats(2, 3)
    nans[0, 1] = np.nan
    probe("nansum_nan", S.nansum(var("x"), axis=1), x=nans)
    probe("argmax", S.argmax(var("x"), axis=1), x=ints(3, 3, 5))
    probe("argmin_keep", S.argmin(var("x"), axis=1, keepdims=True), x=ints(3, 3, 5))
    probe("argmax_all", S.argmax(var("x")), x=floats(3, 5))
    probe("argmax_channel", S.argmax_channel(var("x")), x=floats(3, 5))
    probe("moments", S.moments(var("x"), axes=(0, 2)), x=floats(2, 3, 4))
    probe("dot", S.dot(var("x"), var("y")), x=floats(2, 3), y=floats(3, 4))
    probe("dot_deep", S.dot(var("x"), var("y")), x=floats(2, 5, 3), y=floats(3, 4, 2))
    probe("dot_turned", S.dot(var("x"), var("y"), transpose_a=True, transpose_b=True), x=floats(3, 2), y=floats(4, 3))
    probe("dot_vectors", S.dot(var("x"), var("y")), x=floats(3), y=floats(3))
    probe("batch_dot", S.batch_dot(var("x"), var("y"), transpose_b=True), x=floats(2, 3, 4), y=floats(2, 5, 4))
    probe("gemm2", S.linalg_gemm2(var("x"), var("y"), alpha=0.5), x=floats(2, 3, 4), y=floats(2, 4, 5))
    probe("softmax", S.softmax(var("x"), axis=1, temperature=2.0), x=floats(2, 3, 4))
    probe("log_softmax", S.log_softmax(var("x")), x=floats(2, 3, 4))
    length = np.array([[1, 3], [2, 3]], "int32")
    probe(
        "softmax_length", S.softmax(var("x"), var("y", "int32"), axis=1, use_length=True), x=floats(2, 3, 2), y=length
    )
    probe("softmax_activation", S.SoftmaxActivation(var("x")), x=floats(2, 3))
    probe("softmax_activation_deep", S.SoftmaxActivation(var("x")), x=floats(2, 3, 4))
    probe("softmax_activation_image", S.SoftmaxActivation(var("x")), x=floats(2, 3, 4, 2))
    probe("softmax_channel", S.SoftmaxActivation(var("x"), mode="channel"), x=floats(2, 3, 4, 2))
    probe("topk", S.topk(var("x"), k=2, axis=-1), x=floats(3, 6))
    probe("topk_both", S.topk(var("x"), k=3, axis=0, ret_typ="both", is_ascend=True), x=floats(5, 4))
    probe("topk_value", S.topk(var("x"), k=2, ret_typ="value"), x=floats(3, 6))
    probe("topk_mask", S.topk(var("x"), k=2, ret_typ="mask"), x=floats(3, 6))
    probe("sort", S.sort(var("x"), axis=0), x=floats(5, 4))
    probe("sort_down", S.sort(var("x"), is_ascend=False), x=floats(5, 4))
    probe("argsort", S.argsort(var("x"), axis=1), x=floats(3, 6))
    probe("argsort_down", S.argsort(var("x"), is_ascend=False, dtype="int32"), x=floats(3, 6))


def outputs():
    for multi in (False, True):
        made = S.SoftmaxOutput(var("x"), var("softmax_label"), multi_output=multi)
        probe(f"softmax_output_{int(multi)}", made, x=floats(2, 3, 4), softmax_label=ints(3, 2, 4 if multi else 3))
    image = S.SoftmaxOutput(var("x"), var("softmax_label"))
    probe("softmax_output_image", image, x=floats(2, 3, 4, 2), softmax_label=ints(2, 2, 3, 4))
    kept = S.SoftmaxOutput(var("x"), var("softmax_label"), preserve_shape=True)
    probe("softmax_output_kept", kept, x=floats(2, 3, 4), softmax_label=ints(2, 2, 3))
    volume = S.SoftmaxOutput(var("x"), var("softmax_label"))
    probe("softmax_output_volume", volume, x=floats(2, 3, 2, 3, 2), softmax_label=ints(2, 2, 3, 2, 3))
    for name in ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"):
        made = getattr(S, name)(var("x"), var("label"))
        probe(name, made, x=floats(2, 3), label=floats(2, 3))
    probe("make_loss", S.MakeLoss(var("x"), grad_scale=2.0), x=floats(2, 3))
    probe("dropout", S.Dropout(var("x"), p=0.9), x=floats(2, 3))
