"""Probes of layers: convolutions, pools, images, attention, recurrence."""

import numpy as np
from probing import S, floats, ints, probe, var


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
        probe(f"conv_volume_{name}", made, x=floats(2, 4, 5, 6, 7), c_weight=floats(*shape), c_bias=floats(4))
    for name, attrs in {
        "plain": {"kernel": (3, 3)},
        "strided": {"kernel": (4, 4), "stride": (2, 2), "pad": (1, 1)},
        "adjusted": {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "adj": (1, 1)},
        "grouped": {"kernel": (2, 2), "stride": (2, 2), "num_group": 2},
    }.items():
        made = S.Deconvolution(var("x"), num_filter=6, name="c", **attrs)
        shape = (4, 6 // attrs.get("num_group", 1), *attrs["kernel"])
        probe(f"deconv_{name}", made, x=image, c_weight=floats(*shape))
    made = S.Deconvolution(var("x"), kernel=(3,), stride=(2,), num_filter=5, no_bias=False, name="c")
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
        probe(
            f"batch_norm_{name}",
            made,
            x=floats(2, 3, 4, 5),
            b_gamma=floats(c),
            b_beta=floats(c),
            b_moving_mean=floats(c),
            b_moving_var=floats(c, low=0.5),
        )
    made = S.contrib.BatchNormWithReLU(var("x"), name="b", fix_gamma=False)
    moments = {"b_moving_mean": floats(3), "b_moving_var": floats(3, low=0.5)}
    probe("batch_norm_relu", made, x=floats(2, 3, 4, 5), b_gamma=floats(3), b_beta=floats(3), **moments)
    for axis in (-1, 1):
        made = S.LayerNorm(var("x"), axis=axis, name="n")
        size = 4 if axis == -1 else 3
        probe(f"layer_norm_{axis}", made, x=floats(2, 3, 4), n_gamma=floats(size), n_beta=floats(size))
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
    made = S.Deconvolution(var("x"), kernel=(4, 3), stride=(2, 2), target_shape=(14, 15), num_filter=6, name="c")
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
    made = S.Pooling(
        var("x"),
        pool_type="avg",
        kernel=(3, 3),
        stride=(2, 2),
        pad=(1, 1),
        pooling_convention="full",
        count_include_pad=False,
    )
    probe("pool_avg_inside", made, x=floats(1, 2, 6, 9))
    made = S.Pooling(var("x"), pool_type="lp", p_value=2, kernel=(2, 2), stride=(2, 2))
    probe("pool_lp", made, x=floats(1, 2, 6, 8))
    for kind in ("max", "avg", "sum"):
        made = S.Pooling(var("x"), pool_type=kind, global_pool=True, kernel=(1, 1))
        probe(f"pool_global_{kind}", made, x=floats(2, 3, 4, 5))
    probe("pool_line", S.Pooling(var("x"), kernel=(3,), stride=(2,), pool_type="max"), x=floats(2, 3, 9))
    for kind in ("max", "avg"):
        made = S.Pooling(var("x"), pool_type=kind, kernel=(2, 3, 2), stride=(2, 2, 1), pad=(1, 1, 0))
        probe(f"pool_volume_{kind}", made, x=floats(1, 2, 5, 6, 7))
        made = S.Pooling(var("x"), pool_type=kind, global_pool=True, kernel=(1, 1, 1))
        probe(f"pool_volume_global_{kind}", made, x=floats(1, 2, 3, 4, 5))
    made = S.contrib.AdaptiveAvgPooling2D(var("x"), output_size=(3, 2))
    probe("adaptive_pool", made, x=floats(1, 2, 7, 5))
    probe("adaptive_pool_one", S.contrib.AdaptiveAvgPooling2D(var("x"), output_size=1), x=floats(1, 2, 7, 5))


def images():
    probe("upsampling", S.UpSampling(var("x"), scale=2, sample_type="nearest"), x=floats(1, 2, 3, 4))
    for mode in ("concat", "sum"):
        made = S.UpSampling(var("x"), var("y"), scale=2, sample_type="nearest", multi_input_mode=mode, num_args=2)
        probe(f"upsampling_{mode}", made, x=floats(1, 2, 2, 3), y=floats(1, 2, 4, 6))
    made = S.UpSampling(var("x"), var("w_weight"), scale=3, sample_type="bilinear", num_filter=2, num_args=2)
    probe("upsampling_learned", made, x=floats(1, 2, 3, 4), w_weight=floats(2, 1, 5, 5))
    B = S.contrib.BilinearResize2D
    probe("resize", B(var("x"), height=7, width=5), x=floats(1, 2, 4, 3))
    probe("resize_down", B(var("x"), height=3, width=2), x=floats(1, 2, 7, 6))
    probe("resize_centres", B(var("x"), height=7, width=5, align_corners=False), x=floats(1, 2, 4, 3))
    probe("resize_shrink_centres", B(var("x"), height=3, width=4, align_corners=False), x=floats(1, 2, 7, 9))
    probe("resize_one", B(var("x"), height=1, width=1), x=floats(1, 2, 4, 3))
    probe("resize_like", B(var("x"), var("y"), mode="like"), x=floats(1, 2, 4, 3), y=floats(1, 1, 6, 5))
    for size in (4, 5):
        made = B(var("x"), scale_height=2.0, scale_width=0.5, mode="odd_scale")
        probe(f"resize_odd_scale_{size}", made, x=floats(1, 2, size, size))
        for mode in ("to_even_down", "to_even_up", "to_odd_down", "to_odd_up"):
            probe(f"resize_{mode}_{size}", B(var("x"), mode=mode), x=floats(1, 1, size, size))
    probe("resize_scale", B(var("x"), scale_height=2.0, scale_width=1.5, mode="size"), x=floats(1, 2, 4, 3))


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
            arrays = {"p_parameters": floats(count, low=-0.5, high=0.5), "y": floats(layers * d, 2, h)}
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


def losses():
    data = floats(7, 3, 5)
    ends = {"l": ints(7, 3, low=5), "m": np.array([2, 0, 3], "float32")}
    for blank, label in {
        "first": [[1, 2, 2, 0], [4, 0, 0, 0], [3, 3, 3, 3]],
        "last": [[0, 2, 2, -1], [-1, -1, -1, -1], [3, 0, 3, 0]],
    }.items():
        for used in ("", "l", "m", "lm"):
            lengths = {
                name: var(key) for key, name in {"l": "data_lengths", "m": "label_lengths"}.items() if key in used
            }
            made = S.CTCLoss(
                data=var("x"),
                label=var("y"),
                use_data_lengths="l" in used,
                use_label_lengths="m" in used,
                blank_label=blank,
                **lengths,
            )
            given = {key: ends[key] for key in used}
            labels = np.array(label, "float32")
            probe(f"ctc_{blank}_{used or 'plain'}", made, x=data, y=labels, **given)
    short = np.array([[3, 3, 3, 3]], "float32")  # more than the steps have room for
    probe("ctc_unreachable", S.CTCLoss(data=var("x"), label=var("y")), x=data[:5, :1], y=short)
