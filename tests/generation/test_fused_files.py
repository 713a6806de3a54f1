"""Decoders whose files have attention over caches as one operator, ONNX's own and those of ONNX Runtime, which has the
scores: caches stay where they are."""

import numpy as np
import pytest

import weft
from weft.generation import Generator

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

WORDS, WIDTH, HEADS, SIZE = 61, 24, 4, 16
MICROSOFT = "com.microsoft"


def attention(shared):
    settings = {"q_num_heads": HEADS, "kv_num_heads": shared, "is_causal": 1}
    return [helper.make_node("Attention", ["q", "k", "v", "", "past0", "past1"], ["y", "now0", "now1"], **settings)]


def multi_head(shared):
    inputs = ["q", "k", "v", "", "", "", "past0", "past1"]
    settings = {"num_heads": HEADS, "unidirectional": 1, "domain": MICROSOFT}
    return [helper.make_node("MultiHeadAttention", inputs, ["y", "now0", "now1"], **settings)]


def grouped(shared, *tables, window=-1):
    """How many tokens there are follows from a mask, as ONNX Runtime's exporter writes it."""
    inputs = ["q", "k", "v", "past0", "past1", "last", "total", *tables]
    settings = {"num_heads": HEADS, "kv_num_heads": shared, "do_rotary": len(tables) // 2, "domain": MICROSOFT}
    settings["local_window_size"] = window
    return [
        helper.make_node("ReduceSum", ["attention_mask", "one"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "one"], ["before_last"]),
        helper.make_node("Cast", ["before_last"], ["last"], to=TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["extents"], start=1, end=2),
        helper.make_node("Squeeze", ["extents"], ["extent"]),
        helper.make_node("Cast", ["extent"], ["total"], to=TensorProto.INT32),
        helper.make_node("GroupQueryAttention", inputs, ["y", "now0", "now1"], **settings),
    ]


def rotated(shared):
    return grouped(shared, "cosines", "sines")


def windowed(shared):
    return grouped(shared, window=7)


def written(path, nodes, shared, kind="float32"):
    random = np.random.default_rng(1)
    shapes = {
        "words": (WORDS, WIDTH),
        "wq": (WIDTH, HEADS * SIZE),
        "wk": (WIDTH, shared * SIZE),
        "wv": (WIDTH, shared * SIZE),
        "wo": (HEADS * SIZE, WIDTH),
        "head": (WIDTH, WORDS),
    }
    angles = np.arange(128)[:, None] * 0.7 ** np.arange(SIZE // 2)
    values = {name: random.normal(0, 0.4, shape) for name, shape in shapes.items()}
    values |= {"cosines": np.cos(angles), "sines": np.sin(angles)}
    read = {name for node in nodes for name in node.input}
    constants = [
        numpy_helper.from_array(value.astype(kind), name)
        for name, value in values.items()
        if name in read or name in shapes
    ]
    tensor, float_kind = helper.make_tensor_value_info, helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    cache = lambda name, extent: tensor(name, float_kind, [1, shared, extent, SIZE])
    inputs = [tensor("ids", TensorProto.INT64, [1, "length"])]
    if "attention_mask" in read:
        inputs.append(tensor("attention_mask", TensorProto.INT64, [1, "all"]))
        constants.append(numpy_helper.from_array(np.array([1]), "one"))
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["words", "ids"], ["x"]),
            *(helper.make_node("MatMul", ["x", f"w{part}"], [part]) for part in "qkv"),
            *nodes,
            helper.make_node("MatMul", ["y", "wo"], ["o"]),
            helper.make_node("Add", ["o", "x"], ["sum_of_both"]),
            helper.make_node("MatMul", ["sum_of_both", "head"], ["scores"]),
        ],
        "decoder",
        [*inputs, cache("past0", "past"), cache("past1", "past")],
        [tensor("scores", float_kind, [1, "length", WORDS]), cache("now0", "now"), cache("now1", "now")],
        constants,
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


KINDS = [(attention, 4), (attention, 2), (multi_head, 4), (grouped, 4), (grouped, 2), (rotated, 2), (windowed, 2)]


@pytest.mark.parametrize(("nodes", "shared"), KINDS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_one_operator(nodes, shared, tmp_path):
    path = tmp_path / "decoder.onnx"
    written(path, nodes(shared), shared)
    check_steps(path, shared, np.float32, 1e-4)


@pytest.mark.parametrize("shared", [4, 2])
def test_files_of_half_floats(shared, tmp_path):
    """Scores differ by roundings of half floats; the operator is a softmax in steps here."""
    path = tmp_path / "decoder.onnx"
    written(path, attention(shared), shared, "float16")
    check_steps(path, shared, np.float16, 1e-2)


def check_steps(path, shared, kind, tolerance):
    generator = Generator(path, context=80)
    assert generator.copies is None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    masked = any(spec.name == "attention_mask" for spec in session.get_inputs())
    past, told = {f"past{n}": np.zeros((1, shared, 0, SIZE), kind) for n in (0, 1)}, []
    for count in (5, 1, 1, 33, 1, 20):
        some = np.random.default_rng(len(told)).integers(0, WORDS, count)
        told += some.tolist()
        mask = {"attention_mask": np.ones((1, len(told)), np.int64)} if masked else {}
        scores, *kept = session.run(None, {"ids": some[None], **mask, **past})
        past = dict(zip(past, kept))
        np.testing.assert_allclose(generator.feed(some.tolist()), scores[0, -1], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("nodes", [grouped, rotated, windowed])
def test_programs_of_open_lengths(nodes, tmp_path):
    """One serves all behind a cache, and texts that end before their row does: of a first prompt, what is there."""
    path, random = tmp_path / "decoder.onnx", np.random.default_rng(5)
    written(path, nodes(2), 2)
    shapes = {"ids": (1, "length"), "attention_mask": (1, "past + length")}
    model = weft.compile(path, shape={**shapes, "past0": (1, 2, "past", SIZE), "past1": (1, 2, "past", SIZE)})
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for past, length, there in ((4, 1, 5), (4, 3, 7), (9, 1, 10), (0, 5, 5), (0, 5, 3)):
        inputs = {
            "ids": random.integers(0, WORDS, (1, length)),
            "attention_mask": np.zeros((1, past + length), np.int64),
        }
        inputs["attention_mask"][:, :there] = 1
        inputs |= {f"past{n}": random.standard_normal((1, 2, past, SIZE)).astype("float32") for n in (0, 1)}
        found, wanted = model.run(inputs), session.run(None, inputs)
        for part, expected in zip(found[1:], wanted[1:]):
            np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-5)
        seen = there - past
        np.testing.assert_allclose(found[0][:, :seen], wanted[0][:, :seen], rtol=1e-4, atol=1e-4)
        assert model.compilations == (1 if past else 2)
