"""Probes of operators that move elements, and of control flow."""

import numpy as np
from probing import S, floats, ints, probe, var


def shapes():
    x = floats(2, 3, 4)
    for codes, shape in {
        (0, -1): (2, 3, 4),
        (-1,): (2, 3, 4),
        (-2,): (2, 3, 4),
        (-3, 0): (2, 3, 4),
        (-4, 1, 2, -2): (2, 3, 4),
        (0, -4, -1, 3, 0): (2, 6, 4),
        (0, 0, 0, 1): (2, 3, 4),
        (4, -1, 0): (2, 6, 4),
        (-3, -3): (2, 3, 4, 5),
        (6, -1): (2, 3, 4),
        (-2, 1, 1): (2, 3, 4),
    }.items():
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
        x=floats(2, 6),
        y=floats(3, 2, 5),
    )
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
        x=floats(2, 1, 3),
        y=floats(5, 6, 7),
    )
    probe("concat", S.concat(var("x"), var("y"), dim=-1), x=floats(2, 3), y=floats(2, 4))
    probe("stack", S.stack(var("x"), var("y"), axis=1), x=floats(2, 3), y=floats(2, 3))
    probe("split", S.split(var("x"), num_outputs=2, axis=2), x=x)
    probe("split_squeezed", S.split(var("x"), num_outputs=3, axis=1, squeeze_axis=True), x=x)
    probe("split_v2", S.split_v2(var("x"), (1, 3), axis=2), x=x)
    probe("split_v2_equal", S.split_v2(var("x"), 2, axis=2), x=x)
    probe("slice", S.slice(var("x"), begin=(None, 1), end=(None, 3)), x=x)
    probe("slice_back", S.slice(var("x"), begin=(1, None, 3), end=(None, None, 0), step=(None, -1, -2)), x=x)
    probe("slice_axis", S.slice_axis(var("x"), axis=-1, begin=-3, end=None), x=x)
    probe("slice_like", S.slice_like(var("x"), var("y")), x=floats(4, 5), y=floats(2, 3))
    probe("slice_like_axes", S.slice_like(var("x"), var("y"), axes=(-1,)), x=floats(4, 5), y=floats(2, 3))
    probe("crop_like", S.Crop(var("x"), var("y"), offset=(1, 2)), x=floats(1, 2, 6, 7), y=floats(1, 1, 3, 4))
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
    probe("pick_keep", S.pick(var("x"), var("y"), keepdims=True), x=floats(2, 3, 4), y=ints(4, 2, 3))
    probe("batch_take", S.batch_take(var("x"), var("y", "int32")), x=floats(3, 4), y=np.array([1, 0, 3], "int32"))
    probe("one_hot", S.one_hot(var("x"), depth=4, on_value=2, off_value=-1), x=np.array([[0, 3], [5, -1]], "float32"))
    probe(
        "gather_nd", S.gather_nd(var("x"), var("y")), x=floats(3, 4, 2), y=np.array([[0, 2, 1], [3, 0, 1]], "float32")
    )
    data, lengths = floats(4, 3, 2), np.array([1, 4, 2], "float32")
    for axis in (0, 1):
        x = data if axis == 0 else data.transpose(1, 0, 2).copy()
        attrs = {"axis": axis, "use_sequence_length": True}
        probe(f"sequence_mask_{axis}", S.SequenceMask(var("x"), var("y"), value=-3, **attrs), x=x, y=lengths)
        probe(f"sequence_last_{axis}", S.SequenceLast(var("x"), var("y"), **attrs), x=x, y=lengths)
    probe("sequence_reverse", S.SequenceReverse(var("x"), var("y"), use_sequence_length=True), x=data, y=lengths)
    probe("sequence_reverse_all", S.SequenceReverse(var("x")), x=data)
    probe("sequence_last_all", S.SequenceLast(var("x")), x=data)
    probe("sequence_mask_none", S.SequenceMask(var("x")), x=data)


def control_flow():
    weight, x, y, z = var("p_weight"), var("x"), var("y"), var("z")

    def cell(item, states):
        made = S.tanh(S.FullyConnected(item, weight, num_hidden=3, no_bias=True) + states[0])
        return made * 2, [made]

    out, states = S.contrib.foreach(cell, x, [y])
    arrays = {"p_weight": floats(3, 4), "x": floats(6, 2, 4), "y": floats(2, 3)}
    probe("foreach_cell", S.Group([out, *states]), **arrays)
    out, states = S.contrib.foreach(
        lambda items, states: ([items[0] + items[1], states[1]], [states[1], states[0] + items[0]]), [x, y], [z, z + 1]
    )
    arrays = {"x": floats(5, 2, 3), "y": floats(5, 2, 3), "z": floats(2, 3)}
    probe("foreach_two", S.Group([*out, *states]), **arrays)

    def nested(item, state):
        inner, last = S.contrib.foreach(lambda a, b: (a * b, a + b), item, state)
        return inner.sum(axis=0), last

    out, states = S.contrib.foreach(nested, x, y)
    probe("foreach_nested", S.Group([out, states]), x=floats(3, 4, 2, low=0), y=floats(2))
    arrays = {"x": np.array([1.0], "float32"), "y": floats(3, low=0.2, high=1), "p_weight": floats(3)}
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
