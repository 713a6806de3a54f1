"""DynamicQuantizeLSTM against ONNX Runtime with one thread; with more it makes levels of parts of a batch."""

import numpy as np
import pytest
from microsoft_nodes import one_node, weft_run
from onnx import helper
from onnx_runs import model_of, onnxruntime_run

CONSTANTS = (1, 2, 3, 7, 8, 9, 10, 11)
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


def random_layer(seed, steps=7, batch=3, features=5, size=4, dtype=np.int8, each=False, direction="forward", extras=()):
    """Arrays of all inputs, and attributes."""
    rng = np.random.default_rng(seed)
    count, wide, limits = DIRECTIONS[direction], 4 * size, np.iinfo(dtype)

    def floats(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    def weight(depth):
        shape = (count, wide) if each else (count,)
        point = rng.integers(limits.min, limits.max + 1, count)
        if each:  # ONNX Runtime has one zero point for all then, which is 0 if it has a sign
            point = np.full(shape, 0 if limits.min else point[0])
        levels = rng.integers(limits.min, limits.max + 1, (count, depth, wide)).astype(dtype)
        return levels, rng.uniform(0.002, 0.006, shape).astype(np.float32), point.astype(dtype)

    of_data, of_state = weight(features), weight(size)
    bias = floats(count, 2 * wide) if "bias" in extras else None
    lengths = rng.integers(1, steps, batch).astype(np.int32) if "lengths" in extras else None
    states = [floats(count, batch, size) if "states" in extras else None for _ in range(2)]
    peepholes = floats(count, 3 * size) if "peepholes" in extras else None
    arrays = [3 * floats(steps, batch, features), of_data[0], of_state[0], bias, lengths, *states, peepholes]
    attrs = {"direction": direction, "hidden_size": size}
    attrs |= {"clip": 0.7} if "clip" in extras else {}
    attrs |= {"input_forget": 1} if "input_forget" in extras else {}
    attrs |= {"activations": ["HardSigmoid", "Softsign", "Relu"] * count} if "activations" in extras else {}
    return [*arrays, *of_data[1:], *of_state[1:]], attrs


def differences(arrays, attrs):
    """The largest of each output between weft and ONNX Runtime."""
    model, inputs = one_node("DynamicQuantizeLSTM", *arrays, constants=CONSTANTS, outputs=3, **attrs)
    pairs = zip(weft_run(model, inputs), onnxruntime_run(model, inputs), strict=True)
    return [abs(ours - theirs).max() for ours, theirs in pairs]


def in_float32(arrays):
    """The layer without levels of data and states: (weights as numbers, transposed) of an LSTM."""
    numbers = []
    for weight, scale, point in ((arrays[1], *arrays[8:10]), (arrays[2], *arrays[10:12])):
        scale, point = (x.reshape(len(weight), 1, -1) for x in (scale, point.astype(np.float32)))
        numbers.append(np.ascontiguousarray(((weight - point) * scale).transpose(0, 2, 1)))
    return [arrays[0], *numbers, *arrays[3:8]]


# Where no level is on an edge both round alike, and only the last bits of sums and activations differ. A level more or
# less of one number would be a hundred times that, and levels left out altogether ten thousand times.
CLOSE = 2e-6


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_weights(seed, dtype, each, direction):
    arrays, attrs = random_layer(seed, dtype=dtype, each=each, direction=direction, extras=("bias",))
    assert max(differences(arrays, attrs)) < CLOSE


@pytest.mark.parametrize("extra", ["bias", "lengths", "states", "peepholes", "clip", "input_forget", "activations"])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_options(extra, direction):
    for seed in range(3):
        assert max(differences(*random_layer(seed, direction=direction, extras=(extra, "states")))) < CLOSE
        assert max(differences(*random_layer(seed, direction=direction, extras=(extra, "lengths", "bias")))) < CLOSE


@pytest.mark.parametrize(
    ("steps", "batch", "features", "size"), [(1, 1, 1, 1), (3, 1, 64, 48), (5, 8, 20, 33), (2, 17, 130, 64)]
)
def test_sizes(steps, batch, features, size):
    sizes = {"steps": steps, "batch": batch, "features": features, "size": size}
    assert max(differences(*random_layer(5, **sizes, extras=("bias", "states")))) < CLOSE


def test_zero_points_of_cells():
    """ONNX Runtime has none, so it gets the differences."""
    rng = np.random.default_rng(3)
    arrays, attrs = random_layer(3, each=True, direction="bidirectional", extras=("bias",))
    theirs = list(arrays)
    for weight, point in ((1, 9), (2, 11)):
        theirs[weight] = arrays[weight] // 2
        arrays[point] = rng.integers(-60, 60, arrays[point].shape).astype(np.int8)
        arrays[weight] = theirs[weight] + arrays[point][:, None]
    ours, expected = (
        one_node("DynamicQuantizeLSTM", *given, constants=CONSTANTS, **attrs) for given in (arrays, theirs)
    )
    assert abs(weft_run(*ours)[0] - onnxruntime_run(*expected)[0]).max() < CLOSE


def test_data_of_zeros():
    arrays, attrs = random_layer(2, extras=("bias",))
    arrays[0] = np.zeros_like(arrays[0])
    assert max(differences(arrays, attrs)) < CLOSE


def test_levels_make_a_difference():
    """What the other tests allow is far less than what a computation in float32 is off."""
    arrays, attrs = random_layer(0, extras=("bias", "states"))
    model, inputs = one_node("DynamicQuantizeLSTM", *arrays, constants=CONSTANTS, **attrs)
    given = {f"x{i}": x for i, x in enumerate(in_float32(arrays)) if x is not None}
    names = [f"x{i}" if f"x{i}" in given else "" for i in range(8)]
    exact = model_of([helper.make_node("LSTM", names, ["y0"], **attrs)], given, ["y0"], {}, opset=17)
    assert abs(weft_run(model, inputs)[0] - weft_run(exact, given)[0]).max() > 100 * CLOSE
