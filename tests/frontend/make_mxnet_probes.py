"""Writes mxnet_probes.npz: small graphs with inputs, and the outputs of the real MXNet 1.9.1.

Run it with a Python that has mxnet==1.9.1 and numpy==1.23.5:

    python tests/frontend/make_mxnet_probes.py

Each probe NAME has NAME/json, an input or parameter NAME/in/VARIABLE each, and NAME/out/0, 1...
Variables x, y, z are inputs of the imported model; all others are parameters.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import mxnet as mx
import numpy as np

S = mx.sym
RNG = np.random.RandomState(11)
PROBES = {}


def floats(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype("float32")


def ints(high, *shape, low=0):
    return RNG.randint(low, high, shape).astype("float32")


def probe(name, symbol, **arrays):
    """Runs the graph and keeps everything."""
    assert name not in PROBES, name
    names = symbol.list_arguments()
    args = {key: mx.nd.array(arrays[key], dtype=arrays[key].dtype) for key in names}
    aux = {key: mx.nd.array(arrays[key]) for key in symbol.list_auxiliary_states()}
    made = symbol.bind(mx.cpu(), args, aux_states=aux).forward(is_train=False)
    row = {f"in/{key}": arrays[key] for key in (*names, *symbol.list_auxiliary_states())}
    row.update({f"out/{i}": item.asnumpy() for i, item in enumerate(made)})
    PROBES[name] = {"json": np.array(symbol.tojson()), **row}


def var(name, dtype=None):
    return S.Variable(name, dtype=dtype)


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
    for name in (
        "elemwise_add elemwise_sub elemwise_mul elemwise_div _power _maximum _minimum _mod".split()
    ):
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
    probe(
        "add_n",
        S.add_n(var("x"), var("y"), var("z")),
        x=floats(2, 3),
        y=floats(2, 3),
        z=floats(2, 3),
    )
    probe(
        "where",
        S.where(var("x"), var("y"), var("z")),
        x=ints(2, 3, 4),
        y=floats(3, 4),
        z=floats(3, 4),
    )
    probe(
        "where_rows",
        S.where(var("x"), var("y"), var("z")),
        x=ints(2, 3),
        y=floats(3, 4),
        z=floats(3, 4),
    )
    probe("hypot_two", mx.sym._internal._hypot(var("x"), var("y")), x=floats(4), y=floats(4))


def shapes():
    x = floats(2, 3, 4)
    for codes, shape in {
        (0, -1): (2, 3, 4), (-1,): (2, 3, 4), (-2,): (2, 3, 4), (-3, 0): (2, 3, 4),
        (-4, 1, 2, -2): (2, 3, 4), (0, -4, -1, 3, 0): (2, 6, 4), (0, 0, 0, 1): (2, 3, 4),
        (4, -1, 0): (2, 6, 4), (-3, -3): (2, 3, 4, 5), (6, -1): (2, 3, 4), (-2, 1, 1): (2, 3, 4),
    }.items():  # fmt: skip
        name = "reshape_" + "_".join(map(str, codes)).replace("-", "m")
        probe(name, S.reshape(var("x"), shape=codes), x=floats(*shape))
    for codes in ((-1, 0), (0, -3), (-1, 0, 0), (-1, 4)):
        name = "reshape_back_" + "_".join(map(str, codes)).replace("-", "m")
        probe(name, S.reshape(var("x"), shape=codes, reverse=True), x=floats(10, 5, 4))
    made = S.reshape(var("x"), shape=(2, -1, -4, 0), reverse=True)
    probe("reshape_back_split", made, x=floats(8, 3))
    probe("reshape_like", S.reshape_like(var("x"), var("y")), x=floats(2, 6), y=floats(3, 4))
    probe(
        "reshape_like_part",
        S.reshape_like(var("x"), var("y"), lhs_begin=1, lhs_end=2, rhs_begin=0, rhs_end=2),
        x=floats(2, 6), y=floats(3, 2, 5),
    )  # fmt: skip
    probe("flatten", S.flatten(var("x")), x=x)
    probe("expand_dims", S.expand_dims(var("x"), axis=-1), x=x)
    probe("squeeze", S.squeeze(var("x")), x=floats(1, 3, 1))
    probe("squeeze_axis", S.squeeze(var("x"), axis=(0,)), x=floats(1, 3, 1))
    probe("transpose", S.transpose(var("x")), x=x)
    probe("transpose_axes", S.transpose(var("x"), axes=(1, 0, 2)), x=x)
    probe("swap_axes", S.swapaxes(var("x"), dim1=0, dim2=2), x=x)
    probe("tile", S.tile(var("x"), reps=(2, 1, 3)), x=x)
    probe("repeat", S.repeat(var("x"), repeats=2, axis=1), x=x)
    probe("repeat_flat", S.repeat(var("x"), repeats=2), x=x)
    probe("reverse", S.reverse(var("x"), axis=(0, 2)), x=x)
    probe("broadcast_to", S.broadcast_to(var("x"), shape=(0, 3, 4)), x=floats(2, 1, 1))
    probe("broadcast_axis", S.broadcast_axis(var("x"), axis=(1,), size=(5,)), x=floats(2, 1, 3))
    probe("broadcast_like", S.broadcast_like(var("x"), var("y")), x=floats(2, 1), y=floats(2, 3))
    probe(
        "broadcast_like_axes",
        S.broadcast_like(var("x"), var("y"), lhs_axes=(1,), rhs_axes=(2,)),
        x=floats(2, 1, 3), y=floats(5, 6, 7),
    )  # fmt: skip
    probe("concat", S.concat(var("x"), var("y"), dim=-1), x=floats(2, 3), y=floats(2, 4))
    probe("stack", S.stack(var("x"), var("y"), axis=1), x=floats(2, 3), y=floats(2, 3))
    probe("split", S.split(var("x"), num_outputs=2, axis=2), x=x)
    probe("split_squeezed", S.split(var("x"), num_outputs=3, axis=1, squeeze_axis=True), x=x)
    probe("split_v2", S.split_v2(var("x"), (1, 3), axis=2), x=x)
    probe("split_v2_equal", S.split_v2(var("x"), 2, axis=2), x=x)
    probe("slice", S.slice(var("x"), begin=(None, 1), end=(None, 3)), x=x)
    probe(
        "slice_back",
        S.slice(var("x"), begin=(1, None, 3), end=(None, None, 0), step=(None, -1, -2)),
        x=x,
    )
    probe("slice_axis", S.slice_axis(var("x"), axis=-1, begin=-3, end=None), x=x)
    probe("slice_like", S.slice_like(var("x"), var("y")), x=floats(4, 5), y=floats(2, 3))
    probe(
        "slice_like_axes",
        S.slice_like(var("x"), var("y"), axes=(-1,)),
        x=floats(4, 5),
        y=floats(2, 3),
    )
    probe(
        "crop_like",
        S.Crop(var("x"), var("y"), offset=(1, 2)),
        x=floats(1, 2, 6, 7),
        y=floats(1, 1, 3, 4),
    )
    probe("crop_center", S.Crop(var("x"), h_w=(3, 4), center_crop=True), x=floats(1, 2, 6, 7))
    for mode in ("constant", "edge", "reflect"):
        made = S.pad(var("x"), mode=mode, pad_width=(0, 0, 0, 0, 1, 2, 2, 1), constant_value=3)
        probe(f"pad_{mode}", made, x=floats(1, 2, 4, 5))
    probe("depth_to_space", S.depth_to_space(var("x"), block_size=2), x=floats(1, 8, 2, 3))
    probe("space_to_depth", S.space_to_depth(var("x"), block_size=2), x=floats(1, 2, 4, 6))
    probe("diag", S.diag(var("x"), k=1), x=floats(3, 5))
    probe("arange_like", S.contrib.arange_like(var("x"), axis=1, start=2, step=3), x=x)
    probe("arange_like_all", S.contrib.arange_like(var("x"), repeat=2), x=floats(2, 6))
    probe("shape_array", S.shape_array(var("x")), x=x)
    probe("size_array", S.size_array(var("x")), x=x)
    probe("arange", S.broadcast_add(var("x"), S.arange(1, 7, 2, repeat=2)), x=floats(6))
    probe("eye", S.broadcast_add(var("x"), S.eye(3, 4, k=1)), x=floats(3, 4))
    probe("full", S.broadcast_add(var("x"), S.full((3,), 2.5)), x=floats(3))


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
    probe(
        "dot_turned",
        S.dot(var("x"), var("y"), transpose_a=True, transpose_b=True),
        x=floats(3, 2),
        y=floats(4, 3),
    )
    probe("dot_vectors", S.dot(var("x"), var("y")), x=floats(3), y=floats(3))
    probe(
        "batch_dot",
        S.batch_dot(var("x"), var("y"), transpose_b=True),
        x=floats(2, 3, 4),
        y=floats(2, 5, 4),
    )
    probe(
        "gemm2", S.linalg_gemm2(var("x"), var("y"), alpha=0.5), x=floats(2, 3, 4), y=floats(2, 4, 5)
    )
    probe("softmax", S.softmax(var("x"), axis=1, temperature=2.0), x=floats(2, 3, 4))
    probe("log_softmax", S.log_softmax(var("x")), x=floats(2, 3, 4))
    length = np.array([[1, 3], [2, 3]], "int32")
    probe(
        "softmax_length",
        S.softmax(var("x"), var("y", "int32"), axis=1, use_length=True),
        x=floats(2, 3, 2),
        y=length,
    )
    probe("softmax_activation", S.SoftmaxActivation(var("x")), x=floats(2, 3))
    probe("softmax_activation_deep", S.SoftmaxActivation(var("x")), x=floats(2, 3, 4))
    probe("softmax_activation_image", S.SoftmaxActivation(var("x")), x=floats(2, 3, 4, 2))
    probe("softmax_channel", S.SoftmaxActivation(var("x"), mode="channel"), x=floats(2, 3, 4, 2))
    probe("topk", S.topk(var("x"), k=2, axis=-1), x=floats(3, 6))
    probe(
        "topk_both", S.topk(var("x"), k=3, axis=0, ret_typ="both", is_ascend=True), x=floats(5, 4)
    )
    probe("topk_value", S.topk(var("x"), k=2, ret_typ="value"), x=floats(3, 6))
    probe("topk_mask", S.topk(var("x"), k=2, ret_typ="mask"), x=floats(3, 6))
    probe("sort", S.sort(var("x"), axis=0), x=floats(5, 4))
    probe("sort_down", S.sort(var("x"), is_ascend=False), x=floats(5, 4))
    probe("argsort", S.argsort(var("x"), axis=1), x=floats(3, 6))
    probe("argsort_down", S.argsort(var("x"), is_ascend=False, dtype="int32"), x=floats(3, 6))


def outputs():
    for multi in (False, True):
        made = S.SoftmaxOutput(var("x"), var("softmax_label"), multi_output=multi)
        probe(
            f"softmax_output_{int(multi)}",
            made,
            x=floats(2, 3, 4),
            softmax_label=ints(3, 2, 4 if multi else 3),
        )
    image = S.SoftmaxOutput(var("x"), var("softmax_label"))
    probe("softmax_output_image", image, x=floats(2, 3, 4, 2), softmax_label=ints(2, 2, 3, 4))
    kept = S.SoftmaxOutput(var("x"), var("softmax_label"), preserve_shape=True)
    probe("softmax_output_kept", kept, x=floats(2, 3, 4), softmax_label=ints(2, 2, 3))
    volume = S.SoftmaxOutput(var("x"), var("softmax_label"))
    probe(
        "softmax_output_volume", volume, x=floats(2, 3, 2, 3, 2), softmax_label=ints(2, 2, 3, 2, 3)
    )
    for name in ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"):
        made = getattr(S, name)(var("x"), var("label"))
        probe(name, made, x=floats(2, 3), label=floats(2, 3))
    probe("make_loss", S.MakeLoss(var("x"), grad_scale=2.0), x=floats(2, 3))
    probe("dropout", S.Dropout(var("x"), p=0.9), x=floats(2, 3))


def layers():
    image = floats(2, 4, 7, 8)
    for name, attrs in {
        "plain": {"kernel": (3, 3)},
        "strided": {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 2)},
        "dilated": {"kernel": (3, 3), "dilate": (2, 1), "pad": (2, 0)},
        "grouped": {"kernel": (3, 3), "num_group": 2},
        "bare": {"kernel": (1, 1), "no_bias": True},
    }.items():
        made = S.Convolution(var("x"), num_filter=6, name="c", **attrs)
        shape = (6, 4 // attrs.get("num_group", 1), *attrs["kernel"])
        bias = {} if attrs.get("no_bias") else {"c_bias": floats(6)}
        probe(f"conv_{name}", made, x=image, c_weight=floats(*shape), **bias)
    made = S.Convolution(var("x"), kernel=(3,), num_filter=5, stride=(2,), pad=(1,), name="c")
    probe("conv_line", made, x=floats(2, 4, 9), c_weight=floats(5, 4, 3), c_bias=floats(5))
    for name, attrs in {
        "plain": {"kernel": (2, 3, 3)},
        "strided": {"kernel": (3, 3, 2), "stride": (2, 2, 1), "pad": (1, 1, 0)},
        "dilated": {"kernel": (2, 2, 2), "dilate": (2, 1, 1), "num_group": 2},
    }.items():
        made = S.Convolution(var("x"), num_filter=4, name="c", **attrs)
        shape = (4, 4 // attrs.get("num_group", 1), *attrs["kernel"])
        probe(
            f"conv_volume_{name}",
            made,
            x=floats(2, 4, 5, 6, 7),
            c_weight=floats(*shape),
            c_bias=floats(4),
        )
    for name, attrs in {
        "plain": {"kernel": (3, 3)},
        "strided": {"kernel": (4, 4), "stride": (2, 2), "pad": (1, 1)},
        "adjusted": {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "adj": (1, 1)},
        "grouped": {"kernel": (2, 2), "stride": (2, 2), "num_group": 2},
    }.items():
        made = S.Deconvolution(var("x"), num_filter=6, name="c", **attrs)
        shape = (4, 6 // attrs.get("num_group", 1), *attrs["kernel"])
        probe(f"deconv_{name}", made, x=image, c_weight=floats(*shape))
    made = S.Deconvolution(
        var("x"), kernel=(3,), stride=(2,), num_filter=5, no_bias=False, name="c"
    )
    probe("deconv_line", made, x=floats(2, 4, 6), c_weight=floats(4, 5, 3), c_bias=floats(5))
    for flat in (True, False):
        made = S.FullyConnected(var("x"), num_hidden=5, flatten=flat, name="f")
        weight = floats(5, 12 if flat else 4)
        probe(f"dense_{int(flat)}", made, x=floats(2, 3, 4), f_weight=weight, f_bias=floats(5))
    for name, attrs in {
        "default": {},
        "free": {"fix_gamma": False, "eps": 1e-5},
        "last": {"axis": -1, "fix_gamma": False},
    }.items():
        c = 5 if name == "last" else 3
        made = S.BatchNorm(var("x"), name="b", **attrs)
        probe(f"batch_norm_{name}", made, x=floats(2, 3, 4, 5), b_gamma=floats(c), b_beta=floats(c),
              b_moving_mean=floats(c), b_moving_var=floats(c, low=0.5))  # fmt: skip
    made = S.contrib.BatchNormWithReLU(var("x"), name="b", fix_gamma=False)
    moments = {"b_moving_mean": floats(3), "b_moving_var": floats(3, low=0.5)}
    probe(
        "batch_norm_relu",
        made,
        x=floats(2, 3, 4, 5),
        b_gamma=floats(3),
        b_beta=floats(3),
        **moments,
    )
    for axis in (-1, 1):
        made = S.LayerNorm(var("x"), axis=axis, name="n")
        size = 4 if axis == -1 else 3
        probe(
            f"layer_norm_{axis}", made, x=floats(2, 3, 4), n_gamma=floats(size), n_beta=floats(size)
        )
    made = S.InstanceNorm(var("x"), name="n")
    probe("instance_norm", made, x=floats(2, 3, 4, 5), n_gamma=floats(3), n_beta=floats(3))
    made = S.GroupNorm(var("x"), num_groups=2, name="n")
    probe("group_norm", made, x=floats(2, 4, 3, 5), n_gamma=floats(2), n_beta=floats(2))
    for mode in ("instance", "channel", "spatial"):
        probe(f"l2_{mode}", S.L2Normalization(var("x"), mode=mode), x=floats(2, 3, 4, 5))
    probe("lrn", S.LRN(var("x"), nsize=3, alpha=0.1), x=floats(2, 5, 3, 4))
    for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
        probe(f"act_{kind}", S.Activation(var("x"), act_type=kind), x=floats(3, 4, high=4))
    for kind in ("leaky", "elu", "selu", "gelu", "rrelu"):
        probe(f"leaky_{kind}", S.LeakyReLU(var("x"), act_type=kind)[0], x=floats(3, 4))
    made = S.LeakyReLU(var("x"), act_type="prelu", name="p")
    probe("prelu", made, x=floats(2, 3, 4), p_gamma=floats(3))
    probe("prelu_one", made, x=floats(2, 3, 4), p_gamma=floats(1))


def target_shape():
    made = S.Deconvolution(
        var("x"), kernel=(4, 3), stride=(2, 2), target_shape=(14, 15), num_filter=6, name="c"
    )
    probe("deconv_target", made, x=floats(2, 4, 7, 8), c_weight=floats(4, 6, 4, 3))


def pools():
    for kind in ("max", "avg", "sum"):
        for convention in ("valid", "full"):
            for name, attrs in {
                "plain": {"kernel": (3, 3), "stride": (2, 2)},
                "padded": {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)},
                "slow": {"kernel": (2, 3)},
            }.items():
                made = S.Pooling(var("x"), pool_type=kind, pooling_convention=convention, **attrs)
                probe(f"pool_{kind}_{convention}_{name}", made, x=floats(1, 2, 6, 9))
    made = S.Pooling(var("x"), pool_type="avg", kernel=(3, 3), stride=(2, 2), pad=(1, 1),
                     pooling_convention="full", count_include_pad=False)  # fmt: skip
    probe("pool_avg_inside", made, x=floats(1, 2, 6, 9))
    made = S.Pooling(var("x"), pool_type="lp", p_value=2, kernel=(2, 2), stride=(2, 2))
    probe("pool_lp", made, x=floats(1, 2, 6, 8))
    for kind in ("max", "avg", "sum"):
        made = S.Pooling(var("x"), pool_type=kind, global_pool=True, kernel=(1, 1))
        probe(f"pool_global_{kind}", made, x=floats(2, 3, 4, 5))
    probe(
        "pool_line",
        S.Pooling(var("x"), kernel=(3,), stride=(2,), pool_type="max"),
        x=floats(2, 3, 9),
    )
    for kind in ("max", "avg"):
        made = S.Pooling(
            var("x"), pool_type=kind, kernel=(2, 3, 2), stride=(2, 2, 1), pad=(1, 1, 0)
        )
        probe(f"pool_volume_{kind}", made, x=floats(1, 2, 5, 6, 7))
        made = S.Pooling(var("x"), pool_type=kind, global_pool=True, kernel=(1, 1, 1))
        probe(f"pool_volume_global_{kind}", made, x=floats(1, 2, 3, 4, 5))
    made = S.contrib.AdaptiveAvgPooling2D(var("x"), output_size=(3, 2))
    probe("adaptive_pool", made, x=floats(1, 2, 7, 5))
    probe(
        "adaptive_pool_one",
        S.contrib.AdaptiveAvgPooling2D(var("x"), output_size=1),
        x=floats(1, 2, 7, 5),
    )


def images():
    probe(
        "upsampling", S.UpSampling(var("x"), scale=2, sample_type="nearest"), x=floats(1, 2, 3, 4)
    )
    for mode in ("concat", "sum"):
        made = S.UpSampling(
            var("x"), var("y"), scale=2, sample_type="nearest", multi_input_mode=mode, num_args=2
        )
        probe(f"upsampling_{mode}", made, x=floats(1, 2, 2, 3), y=floats(1, 2, 4, 6))
    made = S.UpSampling(
        var("x"), var("w_weight"), scale=3, sample_type="bilinear", num_filter=2, num_args=2
    )
    probe("upsampling_learned", made, x=floats(1, 2, 3, 4), w_weight=floats(2, 1, 5, 5))
    B = S.contrib.BilinearResize2D
    probe("resize", B(var("x"), height=7, width=5), x=floats(1, 2, 4, 3))
    probe("resize_down", B(var("x"), height=3, width=2), x=floats(1, 2, 7, 6))
    probe(
        "resize_centres", B(var("x"), height=7, width=5, align_corners=False), x=floats(1, 2, 4, 3)
    )
    probe(
        "resize_shrink_centres",
        B(var("x"), height=3, width=4, align_corners=False),
        x=floats(1, 2, 7, 9),
    )
    probe("resize_one", B(var("x"), height=1, width=1), x=floats(1, 2, 4, 3))
    probe(
        "resize_like",
        B(var("x"), var("y"), mode="like"),
        x=floats(1, 2, 4, 3),
        y=floats(1, 1, 6, 5),
    )
    for size in (4, 5):
        made = B(var("x"), scale_height=2.0, scale_width=0.5, mode="odd_scale")
        probe(f"resize_odd_scale_{size}", made, x=floats(1, 2, size, size))
        for mode in ("to_even_down", "to_even_up", "to_odd_down", "to_odd_up"):
            probe(f"resize_{mode}_{size}", B(var("x"), mode=mode), x=floats(1, 1, size, size))
    probe(
        "resize_scale",
        B(var("x"), scale_height=2.0, scale_width=1.5, mode="size"),
        x=floats(1, 2, 4, 3),
    )


def indices():
    made = S.Embedding(var("x"), input_dim=5, output_dim=3, name="e")
    x = np.array([[0, 4, -1], [7, 2.7, 1]], "float32")
    probe("embedding", made, x=x, e_weight=floats(5, 3))
    for mode in ("clip", "wrap"):
        probe(
            f"take_{mode}",
            S.take(var("x"), var("y"), axis=1, mode=mode),
            x=floats(3, 4, 2),
            y=np.array([[0, 5], [-1, 2]], "float32"),
        )
        probe(
            f"pick_{mode}",
            S.pick(var("x"), var("y"), axis=1, mode=mode),
            x=floats(3, 4),
            y=np.array([0, 5, -1], "float32"),
        )
    probe(
        "pick_keep", S.pick(var("x"), var("y"), keepdims=True), x=floats(2, 3, 4), y=ints(4, 2, 3)
    )
    probe(
        "batch_take",
        S.batch_take(var("x"), var("y", "int32")),
        x=floats(3, 4),
        y=np.array([1, 0, 3], "int32"),
    )
    probe(
        "one_hot",
        S.one_hot(var("x"), depth=4, on_value=2, off_value=-1),
        x=np.array([[0, 3], [5, -1]], "float32"),
    )
    probe(
        "gather_nd",
        S.gather_nd(var("x"), var("y")),
        x=floats(3, 4, 2),
        y=np.array([[0, 2, 1], [3, 0, 1]], "float32"),
    )
    data, lengths = floats(4, 3, 2), np.array([1, 4, 2], "float32")
    for axis in (0, 1):
        x = data if axis == 0 else data.transpose(1, 0, 2).copy()
        attrs = {"axis": axis, "use_sequence_length": True}
        probe(
            f"sequence_mask_{axis}",
            S.SequenceMask(var("x"), var("y"), value=-3, **attrs),
            x=x,
            y=lengths,
        )
        probe(f"sequence_last_{axis}", S.SequenceLast(var("x"), var("y"), **attrs), x=x, y=lengths)
    probe(
        "sequence_reverse",
        S.SequenceReverse(var("x"), var("y"), use_sequence_length=True),
        x=data,
        y=lengths,
    )
    probe("sequence_reverse_all", S.SequenceReverse(var("x")), x=data)
    probe("sequence_last_all", S.SequenceLast(var("x")), x=data)
    probe("sequence_mask_none", S.SequenceMask(var("x")), x=data)


def attention():
    qkv = floats(5, 2, 2 * 3 * 4)
    probe("self_qk", S.contrib.interleaved_matmul_selfatt_qk(var("x"), heads=2), x=qkv)
    made = S.contrib.interleaved_matmul_selfatt_valatt(var("x"), var("y"), heads=2)
    probe("self_valatt", made, x=qkv, y=floats(4, 5, 5))
    made = S.contrib.interleaved_matmul_encdec_qk(var("x"), var("y"), heads=2)
    probe("cross_qk", made, x=floats(3, 2, 8), y=floats(5, 2, 16))
    made = S.contrib.interleaved_matmul_encdec_valatt(var("x"), var("y"), heads=2)
    probe("cross_valatt", made, x=floats(5, 2, 16), y=floats(4, 3, 5))
    probe("div_sqrt_dim", S.contrib.div_sqrt_dim(var("x")), x=floats(2, 3))


def recurrent():
    for mode, gates in {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}.items():
        for layers, both in ((1, False), (2, True), (2, False)):
            d, h, f = 1 + both, 3, 4
            count = sum(gates * h * ((f if i == 0 else h * d) + h + 2) for i in range(layers)) * d
            arrays = {
                "p_parameters": floats(count, low=-0.5, high=0.5),
                "y": floats(layers * d, 2, h),
            }
            state = {"state_cell": var("z")} if mode == "lstm" else {}
            arrays.update({"z": floats(layers * d, 2, h)} if mode == "lstm" else {})
            made = S.RNN(
                var("x"),
                var("p_parameters"),
                var("y"),
                mode=mode,
                state_size=h,
                num_layers=layers,
                bidirectional=both,
                state_outputs=True,
                **state,
            )
            probe(f"rnn_{mode}_{layers}_{d}", made, x=floats(5, 2, f), **arrays)


def detection():
    boxes = np.sort(floats(1, 6, 2, 2, low=0, high=1), axis=2).reshape(1, 6, 4)
    for form in ("corner", "center"):
        made = S.contrib.box_decode(
            var("x"), var("y"), format=form, std0=0.1, std1=0.1, std2=0.2, std3=0.2
        )
        probe(f"box_decode_{form}", made, x=floats(2, 6, 4), y=boxes)
    made = S.contrib.box_decode(var("x"), var("y"), format="corner", clip=0.5)
    probe("box_decode_clip", made, x=floats(2, 6, 4), y=boxes)
    probe(
        "box_iou",
        S.contrib.box_iou(var("x"), var("y")),
        x=boxes[0],
        y=boxes[0, :3] + np.float32(0.1),
    )
    corners = np.sort(floats(2, 12, 2, 2, low=0, high=1), axis=2).reshape(2, 12, 4)
    data = np.concatenate([ints(3, 2, 12, 1), floats(2, 12, 1, low=0, high=1), corners], axis=2)
    for name, attrs in {
        "plain": {"overlap_thresh": 0.3, "id_index": 0},
        "forced": {"overlap_thresh": 0.2, "force_suppress": True, "id_index": 0},
        "no_class": {"overlap_thresh": 0.4},
        "valid": {"overlap_thresh": 0.3, "valid_thresh": 0.4, "topk": 5, "id_index": 0},
        "background": {"overlap_thresh": 0.3, "id_index": 0, "background_id": 0},
        "center": {
            "overlap_thresh": 0.3,
            "id_index": 0,
            "in_format": "center",
            "out_format": "corner",
        },
    }.items():
        probe(f"box_nms_{name}", S.contrib.box_nms(var("x"), **attrs), x=data)
    for name, attrs in {
        "plain": {"sizes": (0.5, 0.25), "ratios": (1, 2, 0.5)},
        "steps": {
            "sizes": (0.3,),
            "ratios": (2,),
            "steps": (0.2, 0.4),
            "offsets": (0.3, 0.6),
            "clip": True,
        },
    }.items():
        probe(
            f"multibox_prior_{name}",
            S.contrib.MultiBoxPrior(var("x"), **attrs),
            x=floats(1, 3, 4, 6),
        )
    anchors = np.sort(floats(1, 8, 2, 2, low=0, high=1), axis=2).reshape(1, 8, 4)
    scores = floats(2, 4, 8, low=0, high=1)
    scores /= scores.sum(axis=1, keepdims=True)
    for name, attrs in {
        "plain": {},
        "forced": {"force_suppress": True, "nms_threshold": 0.3},
        "top": {"nms_topk": 4, "threshold": 0.3, "clip": False},
    }.items():
        made = S.contrib.MultiBoxDetection(var("x"), var("y"), var("z"), **attrs)
        probe(
            f"multibox_detection_{name}",
            made,
            x=scores,
            y=floats(2, 32, low=-0.5, high=0.5),
            z=anchors,
        )
    rois = np.array([[0, 0, 0, 4, 4], [1, 1.5, 2.2, 6.1, 7], [0, 3, 3, 3.2, 3.1]], "float32")
    for name, attrs in {
        "plain": {"pooled_size": (2, 2), "spatial_scale": 1.0, "sample_ratio": 2},
        "scaled": {"pooled_size": (3, 2), "spatial_scale": 0.5, "sample_ratio": 2},
        "aligned": {
            "pooled_size": (2, 2),
            "spatial_scale": 1.0,
            "sample_ratio": 2,
            "aligned": True,
        },
    }.items():
        probe(
            f"roi_align_{name}",
            S.contrib.ROIAlign(var("x"), var("y"), **attrs),
            x=floats(2, 3, 8, 9),
            y=rois,
        )


BOXES = np.array(
    [[0, 0, 0, 4, 4], [1, 1.5, 2.5, 6.1, 7], [0, 3, 3, 3.2, 3.1], [1, -3, 5, 2, 30]], "float32"
)


def regions():
    x = floats(2, 8, 9, 10)
    many = np.concatenate([ints(2, 20, 1), floats(20, 4, low=-3, high=14)], 1)
    many[:, 3:] = np.maximum(many[:, 1:3] + 0.3, many[:, 3:])
    outside = np.concatenate([BOXES, [[-1, 0, 0, 3, 3]]]).astype("float32")
    for name, boxes, attrs in (
        ("plain", BOXES, {"pooled_size": (2, 3), "spatial_scale": 1.0}),
        ("scaled", many, {"pooled_size": (3, 3), "spatial_scale": 0.3}),
        ("no_image", outside, {"pooled_size": (7, 7), "spatial_scale": 0.5}),
    ):
        probe(f"roi_pooling_{name}", S.ROIPooling(var("x"), var("y"), **attrs), x=x, y=boxes)
    own = {"pooled_size": (2, 2), "spatial_scale": 0.5, "position_sensitive": True}
    for name, attrs in {
        "adaptive": {"pooled_size": (2, 3), "spatial_scale": 0.5},
        "adaptive_zero": {"pooled_size": (2, 3), "spatial_scale": 0.3, "sample_ratio": 0},
        "adaptive_aligned": {"pooled_size": (2, 2), "spatial_scale": 0.7, "aligned": True},
        "own": {**own, "sample_ratio": 2},
        "adaptive_own": own,
    }.items():
        made = S.contrib.ROIAlign(var("x"), var("y"), **attrs)
        probe(f"roi_align_{name}", made, x=x, y=many)
    for name, attrs in {
        "plain": {"output_dim": 2, "pooled_size": 2, "spatial_scale": 0.5},
        "groups": {"output_dim": 2, "pooled_size": 3, "group_size": 2, "spatial_scale": 0.3},
    }.items():
        made = S.contrib.PSROIPooling(var("x"), var("y"), **attrs)
        probe(f"psroi_{name}", made, x=x, y=many)
    for name, moves, attrs in (
        ("plain", (20, 2, 2, 2), {"pooled_size": 2, "trans_std": 0.1, "part_size": 2}),
        ("parts", (20, 2, 3, 3), {"pooled_size": 4, "trans_std": 0.3, "part_size": 3}),
        ("classes", (20, 4, 2, 2), {"pooled_size": 2, "trans_std": 0.2, "sample_per_part": 4}),
        ("still", (), {"pooled_size": 3, "no_trans": True}),
    ):
        attrs = {"sample_per_part": 2, "spatial_scale": 0.5, "output_dim": 2, **attrs}
        more = [var("z")] if moves else []
        made = S.contrib.DeformablePSROIPooling(var("x"), var("y"), *more, group_size=2, **attrs)
        arrays = {"z": floats(*moves, low=-1, high=1)} if moves else {}
        probe(f"deformable_psroi_{name}", made, x=x, y=many, **arrays)


def proposals():
    one, several = S.contrib.Proposal, S.contrib.MultiProposal
    scores = {"output_score": True}
    best = {"rpn_pre_nms_top_n": 100, "rpn_post_nms_top_n": 20}
    few = {"rpn_pre_nms_top_n": 10, "rpn_post_nms_top_n": 12}
    other = {"scales": (2.5, 4), "ratios": (0.4, 1, 2.1), "feature_stride": 9, "rpn_min_size": 3}
    for name, make, images, attrs in (
        ("plain", one, 1, {**best, "threshold": 0.5, "rpn_min_size": 8}),
        ("few", one, 1, {**few, **scores, "threshold": 0.3}),
        ("sides", one, 1, {**scores, "rpn_post_nms_top_n": 15, "iou_loss": True}),
        ("many", several, 3, {**best, **scores, "threshold": 0.6, "rpn_min_size": 30}),
        ("scales", several, 2, {**few, **other}),
    ):
        many = len(attrs.get("scales", (4, 8, 16, 32))) * len(attrs.get("ratios", (0.5, 1, 2)))
        info = np.array([[70, 90, 1.0], [50, 60, 0.7], [64, 33, 1.5]], "float32")[:images]
        info[:, :2] *= attrs.get("feature_stride", 16) / 16
        made = make(var("x"), var("y"), var("z"), **attrs)
        found = floats(images, 2 * many, 5, 6, low=0, high=1)
        moves = floats(images, 4 * many, 5, 6, low=-0.5, high=0.5)
        probe(f"proposal_{name}", made, x=found, y=moves, z=info)


def control_flow():
    weight, x, y, z = var("p_weight"), var("x"), var("y"), var("z")

    def cell(item, states):
        made = S.tanh(S.FullyConnected(item, weight, num_hidden=3, no_bias=True) + states[0])
        return made * 2, [made]

    out, states = S.contrib.foreach(cell, x, [y])
    arrays = {"p_weight": floats(3, 4), "x": floats(6, 2, 4), "y": floats(2, 3)}
    probe("foreach_cell", S.Group([out, *states]), **arrays)
    out, states = S.contrib.foreach(
        lambda items, states: ([items[0] + items[1], states[1]], [states[1], states[0] + items[0]]),
        [x, y], [z, z + 1],
    )  # fmt: skip
    arrays = {"x": floats(5, 2, 3), "y": floats(5, 2, 3), "z": floats(2, 3)}
    probe("foreach_two", S.Group([*out, *states]), **arrays)

    def nested(item, state):
        inner, last = S.contrib.foreach(lambda a, b: (a * b, a + b), item, state)
        return inner.sum(axis=0), last

    out, states = S.contrib.foreach(nested, x, y)
    probe("foreach_nested", S.Group([out, states]), x=floats(3, 4, 2, low=0), y=floats(2))
    arrays = {
        "x": np.array([1.0], "float32"),
        "y": floats(3, low=0.2, high=1),
        "p_weight": floats(3),
    }
    for name, limit in (("stops", 4.0), ("full", 1e9)):  # what is behind the last turn is anything
        out, states = S.contrib.while_loop(
            lambda i, total, most=limit: S.sum(total) < most,
            lambda i, total: ([total * 2], [i + 1, S.broadcast_add(total, i) + weight * weight]),
            [x, y],
            max_iterations=5,
        )
        first = S.slice_axis(out[0], axis=0, begin=0, end=1)
        probe(f"while_{name}", S.Group([first, *states]), **arrays)
    for name, sign in (("then", 1), ("else", -1)):
        made = S.contrib.cond(S.sum(x) > 0, lambda: y * 2 + weight, lambda: y - weight * weight)
        given = {"x": sign * floats(3, low=0.5), "y": floats(2, 3), "p_weight": floats(2, 3)}
        probe(f"cond_{name}", made, **given)


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
        "add": x + 1.5, "subtract": x - 1.5, "rsubtract": 1.5 - x, "multiply": x * 1.5,
        "divide": x / 1.5, "rdivide": 1.5 / x, "power": x**1.5, "rpower": 1.5**x,
        "mod": x % 1.5, "rmod": 1.5 % x,
    }.items():  # fmt: skip
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
    for i, (codes, shape) in enumerate((
        ((-2, -1), (2, 3, 4)), ((-4,), (2, 3, 4)), ((-5, -2), (2, 3, 4)), ((-3, -4), (1, 3, 4)),
        ((-6, 1, 2, -4), (2, 3, 4)), ((-2, -6, -1, 2, 2), (2, 4, 2)), ((6, -1), (2, 3, 4)),
    )):  # fmt: skip
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
        probe(f"np_concatenate_{axis}", np_.concatenate([x, y], axis=axis), x=floats(2, 3, 4),
              y=floats(2, 3, 4))  # fmt: skip
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
    for i, (a, b) in enumerate((
        ((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)), ((3,), (3,)),
    )):  # fmt: skip
        probe(f"np_matmul_{i}", np_.matmul(x, y), x=floats(*a), y=floats(*b))
    for i, (a, b) in enumerate((((2, 3), (3, 4)), ((3,), (3,)), ((2, 5, 3), (3,)))):
        probe(f"np_dot_{i}", np_.dot(x, y), x=floats(*a), y=floats(*b))
    probe("np_tensordot", np_.tensordot(x, y, 2), x=floats(2, 3, 4), y=floats(3, 4, 5))
    made = np_.tensordot(x, y, ((0, 2), (1, 0)))
    probe("np_tensordot_axes", made, x=floats(2, 3, 4), y=floats(4, 2, 5))


def spatial():
    places = floats(2, 2, 3, 4, low=-1.3, high=1.3)
    image = floats(2, 3, 5, 6)
    probe("bilinear_sampler", S.BilinearSampler(var("x"), var("y")), x=image, y=places)
    maps = floats(2, 6, low=-1, high=1)
    made = S.GridGenerator(var("x"), transform_type="affine", target_shape=(3, 4))
    probe("grid_affine", made, x=maps)
    probe("grid_warp", S.GridGenerator(var("x"), transform_type="warp"), x=floats(2, 2, 3, 4))
    for name, target in (("small", (3, 4)), ("large", (7, 9))):
        made = S.SpatialTransformer(
            var("x"), var("y"), target_shape=target, transform_type="affine",
            sampler_type="bilinear",
        )  # fmt: skip
        probe(f"transformer_{name}", made, x=image, y=maps)
    for i, attrs in enumerate((
        {}, {"max_displacement": 2, "stride2": 2, "pad_size": 2},
        {"kernel_size": 3, "pad_size": 2, "stride1": 2},
        {"max_displacement": 4, "stride2": 2, "pad_size": 4, "is_multiply": False},
    )):  # fmt: skip
        made = S.Correlation(var("x"), var("y"), **attrs)
        probe(f"correlation_{i}", made, x=floats(2, 3, 7, 8), y=floats(2, 3, 7, 8))
    pixels = RNG.randint(0, 256, (5, 6, 3)).astype("uint8")
    probe("image_tensor", S.image.to_tensor(var("x", "uint8")), x=pixels)
    probe("image_tensors", S.image.to_tensor(var("x", "uint8")), x=pixels[None])
    made = S.image.normalize(var("x"), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.1))
    probe("image_normalize", made, x=floats(3, 4, 5))
    probe(
        "image_normalize_one", S.image.normalize(var("x"), mean=0.4, std=0.2), x=floats(2, 3, 4, 5)
    )
    probe("image_crop", S.image.crop(var("x"), x=1, y=2, width=3, height=2), x=floats(5, 6, 3))
    for name in ("flip_left_right", "flip_top_bottom"):  # a row in the middle is left unwritten
        probe(f"image_{name}", getattr(S.image, name)(var("x")), x=floats(4, 6, 3))
    for turn in (False, True):
        made = S.linalg.gemm(var("x"), var("y"), var("z"), transpose_b=turn, alpha=1.5, beta=-0.5)
        y = floats(2, 5, 4) if turn else floats(2, 4, 5)
        probe(f"gemm_{int(turn)}", made, x=floats(2, 3, 4), y=y, z=floats(2, 3, 5))
    probe("gammaln", S.gammaln(var("x")), x=floats(6, low=0.1, high=9))
    probe("erfinv", S.erfinv(var("x")), x=floats(6, low=-0.9, high=0.9))
    probe("sign_ste", S.contrib.sign_ste(var("x")), x=floats(6))
    probe("round_ste", S.contrib.round_ste(var("x")), x=floats(6))


def deformable():
    for name, attrs in {
        "plain": {"kernel": (3, 3), "pad": (1, 1)},
        "strided": {"kernel": (3, 2), "stride": (2, 1), "dilate": (1, 2), "no_bias": True},
        "grouped": {"kernel": (3, 3), "num_group": 2, "num_deformable_group": 2},
    }.items():
        x, taps = floats(2, 4, 7, 8), attrs["kernel"][0] * attrs["kernel"][1]
        groups = attrs.get("num_deformable_group", 1)
        shape = (6, 4 // attrs.get("num_group", 1), *attrs["kernel"])
        plain = S.Convolution(
            var("x"),
            num_filter=1,
            **{k: v for k, v in attrs.items() if k in ("kernel", "pad", "stride", "dilate")},
        )
        places = plain.infer_shape(x=x.shape)[1][0][2:]
        arrays = {"x": x, "y": floats(2, 2 * taps * groups, *places), "c_weight": floats(*shape)}
        arrays.update({} if attrs.get("no_bias") else {"c_bias": floats(6)})
        made = S.contrib.DeformableConvolution(var("x"), var("y"), num_filter=6, name="c", **attrs)
        probe(f"deformable_{name}", made, **arrays)
        make = S.contrib.ModulatedDeformableConvolution
        made = make(var("x"), var("y"), var("z"), num_filter=6, name="c", **attrs)
        probe(f"modulated_{name}", made, z=floats(2, taps * groups, *places), **arrays)


def rarely():
    """Old names, and what hardly any model has."""
    I = mx.sym._internal
    x, y = ints(2, 3, 4), ints(2, 3, 4)
    for name in (
        "_equal _not_equal _greater _greater_equal _lesser _lesser_equal _logical_and _logical_or "
        "_logical_xor _grad_add _identity_with_attr_like_rhs"
    ).split():
        probe(f"plain{name}", getattr(I, name)(var("x"), var("y")), x=x, y=y)
    probe("make_loss_lower", S.make_loss(var("x")), x=floats(2, 3))
    probe("cast_storage", S.cast_storage(var("x"), stype="default"), x=floats(2, 3))
    probe("quadratic", S.contrib.quadratic(var("x"), a=2, b=-1, c=0.5), x=floats(2, 3))
    probe("gradientmultiplier", S.contrib.gradientmultiplier(var("x"), scalar=2), x=floats(2, 3))
    probe(
        "sparse_reg",
        S.IdentityAttachKLSparseReg(var("x"), name="k"),
        x=floats(2, 3, low=0.1, high=0.9),
        k_moving_avg=floats(3),
    )
    probe("svm", S.SVMOutput(var("x"), var("label")), x=floats(2, 3), label=ints(3, 2))
    probe("khatri_rao", S.khatri_rao(var("x"), var("y")), x=floats(2, 3), y=floats(4, 3))
    probe("amp_cast", S.amp_cast(var("x"), dtype="float16"), x=floats(2, 3))
    for narrow in (False, True):
        made = S.amp_multicast(var("x", "float16"), var("y"), num_outputs=2, cast_narrow=narrow)
        probe(
            f"amp_multicast_{int(narrow)}", made, x=floats(2, 3).astype("float16"), y=floats(2, 3)
        )
    probe("zeros_ones", S.broadcast_add(var("x"), S.zeros((2, 3)) - S.ones((2, 3))), x=floats(2, 3))
    made = I._rnn_param_concat(var("x"), var("y"), dim=0, num_args=2)
    probe("param_concat", made, x=floats(6), y=floats(4))
    norm = {"b_gamma": floats(3), "b_beta": floats(3), "b_moving_mean": floats(3)}
    norm |= {"b_moving_var": floats(3, low=0.5)}
    probe("batch_norm_v1", S.BatchNorm_v1(var("x"), name="b"), x=floats(2, 3, 4, 5), **norm)
    made = S.contrib.SyncBatchNorm(var("x"), name="b", key="k", fix_gamma=False)
    probe("batch_norm_sync", made, x=floats(2, 3, 4, 5), **norm)
    made = S.Convolution_v1(var("x"), kernel=(3, 3), num_filter=6, pad=(1, 1), name="c")
    probe("conv_v1", made, x=floats(2, 4, 6, 6), c_weight=floats(6, 4, 3, 3), c_bias=floats(6))
    for kind in ("max", "avg", "sum"):
        for full in ("valid", "full"):
            made = S.Pooling_v1(
                var("x"),
                kernel=(3, 3),
                stride=(2, 2),
                pad=(1, 1),
                pool_type=kind,
                pooling_convention=full,
            )
            probe(f"pool_v1_{kind}_{full}", made, x=floats(1, 2, 6, 9))
    made = S.contrib.SparseEmbedding(var("x"), input_dim=5, output_dim=3, name="e")
    probe("embedding_sparse", made, x=ints(5, 2, 3), e_weight=floats(5, 3))


SECTIONS = {
    "1": "unary scalars binary shapes reductions outputs layers pools images indices attention "
    "recurrent detection deformable regions proposals "
    "control_flow numpy_ops spatial",
    "0": "target_shape rarely",
}


def main():
    """With oneDNN as MXNet is installed, but for what fails with it."""
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for with_onednn, sections in SECTIONS.items():
            path = Path(folder) / f"{with_onednn}.npz"
            env = {**os.environ, "MXNET_MKLDNN_ENABLED": with_onednn}
            subprocess.run(
                [sys.executable, __file__, str(path), *sections.split()], env=env, check=True
            )
            rows.update(np.load(path))
    np.savez_compressed(Path(__file__).with_name("mxnet_probes.npz"), **rows)
    print(len({key.split("/")[0] for key in rows}), "probes")


def write(path, sections):
    for section in sections:
        globals()[section]()
    rows = {f"{name}/{key}": value for name, row in PROBES.items() for key, value in row.items()}
    np.savez(path, **rows)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else main()
