"""Broken and malicious ONNX files: one typed error, in bounded time and memory."""

import contextlib
import os
import tracemalloc

import numpy as np
import onnx
import pytest
from bounds import ends
from onnx import TensorProto, helper
from onnx_models import make_model, node, small_network

import weft
from weft.base.errors import Error, FormatError, Unsupported
from weft.frontend import from_onnx

SHAPE = {"x": (1, 3, 8, 8)}


def relu(**kwargs):
    return make_model([node("Relu", "x", "y")], {"x": [2]}, ["y"], **kwargs)


def test_every_truncation_is_an_error_or_a_model(rng):
    data = small_network(rng).SerializeToString()
    errors = 0
    for end in range(0, len(data), 7):
        try:
            from_onnx(data[:end], SHAPE)
        except Error:
            errors += 1
    assert errors > 0.9 * len(range(0, len(data), 7))


def test_flipped_bytes_never_escape(rng):
    data = small_network(rng).SerializeToString()
    outcomes = set()
    for _ in range(1500):
        broken = bytearray(data)
        for place in rng.integers(len(data), size=rng.integers(1, 4)):
            broken[place] = rng.choice([0, 255, rng.integers(256)])
        try:
            from_onnx(bytes(broken), SHAPE)
            outcomes.add("model")
        except Error as error:
            outcomes.add(type(error).__name__)
    assert {"model", "FormatError", "Unsupported"} <= outcomes


def tensor(dims, data_type=TensorProto.FLOAT, **fields):
    made = TensorProto(name="w", data_type=data_type, dims=dims, **fields)
    model = make_model([node("Add", "x w", "y")], {"x": [2]}, ["y"])
    model.graph.initializer.append(made)
    return model


@pytest.mark.parametrize("dims", [[2**40, 2**40], [2**62], [-1], [3], [0, 2**62], [1] * 100], ids=str)
def test_claimed_sizes_are_checked_before_memory_is_taken(dims):
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            from_onnx(tensor(dims, raw_data=b"\0" * 8))
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()


def test_typed_data_of_the_wrong_length():
    with pytest.raises(FormatError, match="holds 3 elements"):
        from_onnx(tensor([2], float_data=[1.0, 2.0, 3.0]))


def test_element_types_that_are_not_there():
    with pytest.raises(FormatError, match="element type"):
        from_onnx(tensor([1], 999, raw_data=b"\0"))


def test_text_stands_in_a_field_of_its_own_and_is_utf_8():
    with pytest.raises(FormatError, match="holds 0 elements"):
        from_onnx(tensor([1], TensorProto.STRING, raw_data=b"\0"))
    with pytest.raises(FormatError, match="not UTF-8"):
        from_onnx(tensor([1], TensorProto.STRING, string_data=[b"\xff"]))


def test_cycle():
    model = make_model([node("Add", "x b", "a"), node("Relu", "a", "b")], {"x": [2]}, ["b"])
    with pytest.raises(FormatError, match="cycle"):
        from_onnx(model)


def test_missing_tensor():
    with pytest.raises(FormatError, match="nothing makes 'z'"):
        from_onnx(make_model([node("Add", "x z", "y", name="sum")], {"x": [2]}, ["y"]))
    with pytest.raises(FormatError, match="graph output 'q'"):
        from_onnx(make_model([node("Relu", "x", "y")], {"x": [2]}, ["q"]))


def test_names_made_twice():
    twice = make_model([node("Relu", "x", "y"), node("Neg", "x", "y")], {"x": [2]}, ["y"])
    with pytest.raises(FormatError, match="'y' is made twice"):
        from_onnx(twice)
    model = relu(initializers={"w": np.ones(2, np.float32)})
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(FormatError, match="same name"):
        from_onnx(model)


def _nested(depth):
    """A model whose only node holds a graph that holds a node that holds a graph, and so on."""

    def field(number, payload):
        size, length = b"", len(payload)
        while True:
            size += bytes([length & 127 | (128 if length > 127 else 0)])
            length >>= 7
            if not length:
                return bytes([number << 3 | 2]) + size + payload

    payload = b""
    for _ in range(depth):
        attribute = field(1, b"body") + field(6, payload)  # AttributeProto.name, .g
        payload = field(1, field(4, b"Loop") + field(5, attribute))  # GraphProto.node
    return field(7, payload)  # ModelProto.graph


@pytest.mark.parametrize("depth", [10, 1000, 3000])
def test_deep_nesting(depth):
    with pytest.raises(Error):
        from_onnx(_nested(depth))


def test_no_opset_and_unknown_opset():
    model = relu()
    del model.opset_import[:]
    with pytest.raises(FormatError, match="opset"):
        from_onnx(model)
    with pytest.raises(Error):
        from_onnx(relu(opset=0))


def test_wrong_attributes():
    for attrs in (
        {"kernel": [2, 2]},
        {"kernel_shape": 2},
        {"kernel_shape": [2]},
        {"kernel_shape": [2, 2], "strides": [0, 0]},
        {"kernel_shape": [2**40, 2]},
        {"kernel_shape": [2, 2], "pads": [-1, 0, 0, 0]},
        {},
    ):
        model = make_model([node("MaxPool", "x", "y", name="pool", **attrs)], {"x": [1, 1, 4, 4]}, ["y"])
        with pytest.raises(Error, match="pool"):
            from_onnx(model)


def test_too_many_inputs():
    with pytest.raises(FormatError, match="2 inputs"):
        from_onnx(make_model([node("Relu", "x x", "y")], {"x": [2]}, ["y"]))


@pytest.mark.parametrize("count", [2**40, 2**62, -5])
def test_huge_requests_end_at_once(count):
    cases = {"Tile": {"r": np.array([count])}, "Expand": {"r": np.array([count, 1])}, "ConstantOfShape": {}}
    for op, extra in cases.items():
        if op == "ConstantOfShape":
            model = make_model([node(op, "r", "y")], {}, ["y"], {"r": np.array([count, 2])})
        else:
            model = make_model([node(op, "x r", "y")], {"x": [1]}, ["y"], extra)
        with ends(), contextlib.suppress(Error):
            from_onnx(model)


def test_long_chains_are_linear():
    nodes = [node("Relu", f"t{i}", f"t{i + 1}") for i in range(3000)]
    symbol, _ = from_onnx(make_model(nodes, {"t0": [2]}, ["t3000"]))
    assert len(symbol.get_internals()) == 3001


def test_many_nodes_of_one_name_are_linear():
    nodes = [node("Relu", f"t{i}", f"t{i + 1}", name="same") for i in range(3000)]
    symbol, _ = from_onnx(make_model(nodes, {"t0": [2]}, ["t3000"]))
    names = [s.attr("name") for s in symbol.get_internals()]
    assert len(set(names)) == 3001


# External data.


@pytest.fixture
def external(rng, tmp_path):
    """A model with its weights in another file, as a function of what to change in it."""

    def make(**changes):
        weight = rng.standard_normal((64, 2)).astype(np.float32)
        model = make_model([node("MatMul", "x w", "y")], {"x": [3, 64]}, ["y"], {"w": weight})
        path = tmp_path / "model.onnx"
        onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
        stored = onnx.load(path, load_external_data=False)
        entries = {e.key: e.value for e in stored.graph.initializer[0].external_data} | changes
        helper_entries = stored.graph.initializer[0].external_data
        del helper_entries[:]
        for key, value in entries.items():
            helper_entries.add(key=key, value=value)
        path.write_bytes(stored.SerializeToString())
        return path, weight

    return make


def test_external_data_is_read(external):
    path, weight = external()
    _, params = from_onnx(path)
    np.testing.assert_array_equal(params["w"].numpy(), weight)


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../w.bin", "a/../../w.bin", "", "C:\\w.bin", "a\0b", "missing.bin"]
)
def test_external_data_outside_the_folder(external, location):
    path, _ = external(location=location)
    with pytest.raises(FormatError):
        from_onnx(path)


def test_external_data_through_links(external, tmp_path):
    path, _ = external(location="link.bin")
    os.symlink(tmp_path / "w.bin", tmp_path / "link.bin")
    with pytest.raises(FormatError, match="link"):
        from_onnx(path)
    path, weight = external(location="folder/w.bin")
    os.symlink(tmp_path, tmp_path / "folder")
    with pytest.raises(FormatError, match="links=True"):
        from_onnx(path)
    np.testing.assert_array_equal(from_onnx(path, links=True)[1]["w"].numpy(), weight)


def test_external_data_with_a_second_name(external, tmp_path):
    """A hard link brings a file from elsewhere into the folder."""
    path, weight = external(location="linked.bin")
    os.link(tmp_path / "w.bin", tmp_path / "linked.bin")
    with pytest.raises(FormatError, match="links=True"):
        from_onnx(path)
    np.testing.assert_array_equal(from_onnx(path, links=True)[1]["w"].numpy(), weight)
    (tmp_path / "w.bin").unlink()
    np.testing.assert_array_equal(from_onnx(path)[1]["w"].numpy(), weight)


@pytest.mark.parametrize(
    "changes", [{"offset": "8"}, {"offset": "-1"}, {"length": "4"}, {"offset": "1e3"}, {"offset": "9" * 30}]
)
def test_external_data_of_the_wrong_size(external, changes):
    path, _ = external(**changes)
    with pytest.raises(FormatError):
        from_onnx(path)


def test_external_data_without_a_folder(external):
    path, _ = external()
    with pytest.raises(FormatError, match="another file"):
        from_onnx(path.read_bytes())


@pytest.mark.parametrize("location", ["pipe", "folder", "."])
def test_external_data_that_is_no_file(external, tmp_path, location):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    path, _ = external(location=location)
    with pytest.raises(FormatError):
        from_onnx(path)


def test_operators_of_subgraphs_are_reported():
    inner = helper.make_graph([node("Strange", "x", "z", name="deep")], "inner", [], [])
    model = make_model([node("Loop", "x", "y", body=inner, name="loop")], {"x": [2]}, ["y"])
    with pytest.raises(Unsupported, match=r"Strange .* in 1 nodes: deep"):
        from_onnx(model)


def test_a_loop_whose_states_do_not_fit():
    inner = helper.make_graph([], "inner", [], [])
    model = make_model([node("Loop", "x", "y", body=inner, name="loop")], {"x": [2]}, ["y"])
    with pytest.raises(FormatError, match="do not fit"):
        from_onnx(model)


# Subgraphs


def loop(body: str, count: str = "n") -> onnx.ModelProto:
    graph = f"""m (float[a] x, int64 n) => (float[z] y) {{
        m = Constant <value_int = {2**60}> ()
        y = Loop <body = b (int64 i, bool c, float[p] s) => {body}> ({count}, , x) }}"""
    return helper.make_model(onnx.parser.parse_graph(graph), opset_imports=[helper.make_opsetid("", 17)])


def test_absurdly_many_turns_are_refused():
    body = "(bool d, float[p] t) { d = Identity(c) t = Relu(s) }"
    with pytest.raises(FormatError, match="never ends"):
        from_onnx(loop(body, "m"))


def test_a_circle_in_a_subgraph():
    body = "(bool d, float[p] t) { d = Identity(e) e = Identity(d) t = Relu(s) }"
    with pytest.raises(FormatError, match="nothing makes 'e'"):
        from_onnx(loop(body))


def test_a_name_that_a_subgraph_makes_twice():
    body = "(bool d, float[p] t) { d = Identity(c) t = Relu(s) t = Neg(s) }"
    with pytest.raises(FormatError, match="'t' is made twice"):
        from_onnx(loop(body))


def test_deep_branches(rng):
    """Every one decides by a shape; the deepest is reached."""
    graph = helper.make_graph([node("Relu", "x", "r0")], "g0", [], [helper.make_empty_tensor_value_info("r0")])
    for depth in range(1, 20):
        empty = helper.make_graph(
            [node("Neg", "x", f"n{depth}")], "e", [], [helper.make_empty_tensor_value_info(f"n{depth}")]
        )
        branch = node("If", "c", f"r{depth}", then_branch=graph, else_branch=empty)
        graph = helper.make_graph([branch], f"g{depth}", [], [helper.make_empty_tensor_value_info(f"r{depth}")])
    nodes = [
        node("Size", "x", "size"),
        node("Greater", "size one", "c"),
        node("If", "c", "y", then_branch=graph, else_branch=graph),
    ]
    model = make_model(nodes, {"x": ["n"]}, ["y"], {"one": np.array(1)})
    x = rng.standard_normal(3).astype("float32")
    assert weft.compile(model)(x)[0].tolist() == np.maximum(x, 0).tolist()


@pytest.mark.parametrize("shape", [[2**40], [2**31, 2**31], [-1]])
def test_shapes_that_are_fed_may_be_absurd(shape):
    model = make_model([node("ConstantOfShape", "s", "y")], {"s": [None]}, ["y"], elem_type=TensorProto.INT64)
    compiled = weft.compile(model)
    with pytest.raises(Error):
        compiled(np.array(shape))
    assert compiled(np.array([2, 3]))[0].shape == (2, 3)
