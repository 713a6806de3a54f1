"""Models whose inputs have open dimensions become one typed graph: every shape is of numbers and expressions, and
with numbers for the names it is what an import with these numbers says."""

import io

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx_runs import onnxruntime_run
from oracles import oracle

import weft
from weft.base.errors import ShapeError, Unsupported
from weft.base.extents import bound_names, evaluate
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.symbolic import names_in
from weft.frontend.deferred import has_deferred
from weft.frontend.onnx.importer import from_onnx


def typed(model, shape=None):
    symbol, params = from_onnx(model, shape=shape)
    read = set(symbol.list_input_names())
    known = {name: value.shape for name, value in params.items()} | (shape or {})
    return infer(Graph(symbol.outputs), {name: dims for name, dims in known.items() if name in read})


def inputs_of(graph):
    nodes = [graph.indexed.nodes[number] for number in graph.indexed.variables]
    return {node.name: graph.fact(node.entry()).shape for node in nodes if "__position__" in node.attrs}


def check_types(model, *shapes):
    """One graph without nodes that wait, whose shapes hold for all of these shapes of the inputs."""
    graph = typed(model)
    assert not has_deferred(graph.indexed.nodes)
    facts = {node.name: graph.node_facts(node) for node in graph.indexed.nodes}
    assert all(fact.shape is not None and None not in fact.shape for row in facts.values() for fact in row)
    for given in shapes:
        names = bound_names(p for name, dims in inputs_of(graph).items() for p in zip(dims, given[name]))
        static = typed(model, given)
        for entry, other in zip(graph.outputs, static.outputs):
            assert tuple(evaluate(dim, names) for dim in graph.fact(entry).shape) == static.fact(other).shape
        for node in static.indexed.nodes:  # what has the same name and operator in both
            if node.name in facts and node.op is not None and len(facts[node.name]) == node.num_outputs:
                said = [tuple(evaluate(dim, names) for dim in fact.shape) for fact in facts[node.name]]
                assert said == [fact.shape for fact in static.node_facts(node)], node
    return graph


def check_runs(model, *feeds, rtol=1e-5, atol=1e-6):
    """One compiled model gives what ONNX Runtime gives, for each set of inputs."""
    made = weft.compile(model)
    for feed in feeds:
        for value, expected in zip(made.run(feed), onnxruntime_run(model, feed)):
            assert value.dtype == expected.dtype
            assert value.shape == expected.shape
            np.testing.assert_allclose(value, expected, rtol, atol)


def model_of(text, opset=18):
    imports = [onnx.helper.make_opsetid("", opset)]
    return onnx.helper.make_model(parser.parse_graph(text), opset_imports=imports, ir_version=9)


def exported(module, args, names, axes):
    torch, file = oracle("torch"), io.BytesIO()
    torch.onnx.export(module.eval(), args, file, dynamo=False, input_names=names, dynamic_axes=axes, opset_version=17)
    return onnx.load_from_string(file.getvalue())


def transformer(torch):
    """Two blocks of a decoder that asks for size() where it reshapes."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.mixed, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
            self.before, self.between = nn.LayerNorm(16), nn.LayerNorm(16)
            self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x, mask):
            batch, steps, width = x.size()
            parts = self.mixed(self.before(x)).split(width, -1)
            q, k, v = (part.view(batch, steps, 4, width // 4).transpose(1, 2) for part in parts)
            scores = (q @ k.transpose(-1, -2) / (width // 4) ** 0.5 + mask).softmax(-1)
            x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, steps, width))
            return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(20, 16), nn.Embedding(32, 16)
            self.blocks, self.last = nn.ModuleList([Block(), Block()]), nn.LayerNorm(16)

        def forward(self, words):
            steps = words.size(1)
            mask = torch.full((steps, steps), -1e9).triu(1)
            x = self.words(words) + self.places(torch.arange(steps).unsqueeze(0))
            for block in self.blocks:
                x = block(x, mask)
            return self.last(x)[:, -1], x

    return Decoder()


def network(torch):
    """Convolutions, pools, a transposed convolution, resizing, and cuts to the size of something else."""
    nn, functional = torch.nn, torch.nn.functional

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 6, 3, padding=1)
            self.norm, self.up, self.last = nn.BatchNorm2d(8), nn.ConvTranspose2d(6, 4, 2, stride=2), nn.Linear(8, 5)
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)

        def forward(self, x):
            x = functional.max_pool2d(functional.relu(self.norm(self.first(x))), 3, 2, 1, ceil_mode=True)
            x = functional.interpolate(self.up(self.second(x)), scale_factor=2.0)
            around = functional.avg_pool2d(x, 2, 1, 1)[:, :, : x.size(2), : x.size(3)]
            both = torch.cat([x, around], 1)
            return self.last(both.mean((2, 3))), both.flatten(2), functional.pad(both, (1, 2))

    return Network()


def test_a_transformer_of_open_batch_and_length():
    torch = oracle("torch")
    torch.manual_seed(1)
    words = torch.randint(0, 20, (2, 7))
    model = exported(transformer(torch), (words,), ["words"], {"words": {0: "batch", 1: "steps"}})
    graph = check_types(model, {"words": (2, 7)}, {"words": (1, 3)}, {"words": (5, 1)})
    assert [graph.fact(entry).shape for entry in graph.outputs] == [("batch", 16), ("batch", "steps", 16)]
    rng = np.random.default_rng(2)
    check_runs(model, *({"words": rng.integers(0, 20, s)} for s in [(2, 7), (1, 3), (5, 1)]), rtol=1e-4, atol=1e-5)


def test_a_network_of_open_batch_height_and_width():
    torch = oracle("torch")
    torch.manual_seed(3)
    model = exported(network(torch), (torch.randn(2, 3, 16, 20),), ["x"], {"x": {0: "batch", 2: "h", 3: "w"}})
    sizes = [(2, 3, 16, 20), (1, 3, 17, 9), (3, 3, 8, 11)]
    graph = check_types(model, *({"x": size} for size in sizes))
    assert graph.fact(graph.outputs[2]).shape == ("batch", 8, "4*((h + 1)//4) + 4", "4*((w + 1)//4) + 7")
    rng = np.random.default_rng(4)
    feeds = ({"x": rng.normal(size=size).astype("float32")} for size in sizes)
    check_runs(model, *feeds, rtol=1e-4, atol=1e-5)


# What exporters compute of shapes, a line each: the text of the nodes, and the shape of the output.
ARITHMETIC = {
    "s = Shape(x) y = Expand(c, s)": ("n", "m", 4),
    "s = Size(x) t = Unsqueeze(s, zero) y = Reshape(x, t)": ("4*m*n",),
    "s = Shape<start=1, end=2>(x) t = Concat<axis=0>(s, minus) y = Reshape(x, t)": ("m", "4*n"),
    "s = Shape<start=0, end=1>(x) t = Mul(s, two) u = Concat<axis=0>(t, minus) y = Reshape(x, u)": ("2*n", "2*m"),
    "s = Shape<end=1>(x) t = Div(s, two) y = Slice(x, zero, t, zero)": ("n//2", "m", 4),
    "s = Shape<end=1>(x) t = Sub(s, one) u = Div(t, two) y = ConstantOfShape(u)": ("(min(1, n) + n)//2 - min(1, n)",),
    "s = Shape<end=1>(x) t = Mod(s, two) y = ConstantOfShape(t)": ("n - 2*(n//2)",),
    "s = Shape(x) t = ReduceProd<keepdims=0>(s) z = Squeeze(zero) y = Range(z, t, o)": ("4*m*n",),
    "s = Shape<end=2>(x) y = Tile(row, s)": ("n", "3*m"),
    "s = Shape(x) m = Equal(s, minus) t = Where(m, s, s) y = Expand(c, t)": ("n", "m", 4),
    "s = Shape<end=2>(x) t = Max(s, two) y = ConstantOfShape(t)": ("-min(2, n) + n + 2", "m - min(2, m) + 2"),
    "s = Shape<end=2>(x) t = Concat<axis=0>(zero, s, zero, zero, one) y = Pad(x, t)": ("n", "m + n", "m + 5"),
    "y = Slice(x, one, ends, one)": ("n", "m - min(1, m)", 4),
    "y = Slice(x, minus, start, one, minus)": ("n", "m", 4),
    "y = Flatten<axis=2>(x)": ("m*n", 4),
    "s = Shape<end=1>(x) y, i = TopK<axis=0>(x, s)": ("n", "m", 4),
    'y = Pad<mode="edge">(x, wide)': ("n", "m + 3", 4),
    'y = MaxPool<kernel_shape=[3], auto_pad="SAME_UPPER">(x)': ("n", "m", 4),
    "s = Shape<end=1>(x) t = Squeeze(s) f = Cast<to=1>(t) y = Range(begin, f, begin)": ("-min(1, n) + n",),
    "s = Shape<start=1, end=2>(x) t = Expand(s, s) y = Cast<to=1>(t)": ("m",),
    "y = Trilu(x)": ("n", "m", 4),
    "s = Gather(x, one) y = ReduceSum<keepdims=0>(s, one)": (1, 4),
    'y = Einsum<equation="abc,abd->acd">(x, x)': ("n", 4, 4),
}


@pytest.mark.parametrize("nodes", ARITHMETIC)
def test_arithmetic_on_shapes(nodes):
    constants = (
        "<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] minus = {-1}, int64 o = {1}, "
        "int64[1] ends = {9223372036854775807}, int64[1] start = {-9223372036854775807}, "
        "float[1, 1, 4] c = {1, 2, 3, 4}, float[1, 3] row = {5, 6, 7}, "
        "int64[6] wide = {0, 1, 0, 0, 2, 0}, float begin = {1}>"
    )
    kind = "int64" if "ReduceProd" in nodes else "float"
    model = model_of(f"m (float[n, m, 4] x) => ({kind}[] y) {constants} {{ {nodes} }}")
    rng = np.random.default_rng(5)
    sizes = [(2, 3, 4), (3, 1, 4), (4, 5, 4)]
    graph = check_types(model, *({"x": size} for size in sizes))
    assert graph.fact(graph.outputs[0]).shape == ARITHMETIC[nodes]
    check_runs(model, *({"x": rng.normal(size=size).astype("float32")} for size in sizes))


def test_extents_are_numbers_to_compute_with():
    """A mean by the number of elements, which exporters write out."""
    text = """m (float[n, m] x) => (float[] y, int64[2] s) {
        s = Shape(x) z = Size(x) f = Cast<to=1>(z) t = ReduceSum<keepdims=0>(x) y = Div(t, f) }"""
    model, rng = model_of(text), np.random.default_rng(6)
    check_types(model, {"x": (2, 3)})
    check_runs(model, *({"x": rng.normal(size=size).astype("float32")} for size in [(2, 3), (5, 1)]))


def test_nothing_at_all():
    """Extents of 0, which mean other things to reshape and broadcast_to."""
    text = """m (float[n, m, 4] x) => (float[] y, float[] z, float[] w) <int64[1] one = {1}, int64[1] four = {4},
        float[1, 1, 1] c = {2}, int64[1] ends = {99}> {
        a = Shape<end=1>(x) b = Shape<start=1>(x) s = Concat<axis=0>(b, a) y = Reshape<allowzero=1>(x, s) t = Shape(x)
        z = Expand(c, t) w = Slice(x, four, ends, one) }"""
    model, rng = model_of(text), np.random.default_rng(7)
    check_types(model, {"x": (2, 3, 4)}, {"x": (0, 3, 4)}, {"x": (3, 0, 4)})
    check_runs(model, *({"x": rng.normal(size=size).astype("float32")} for size in [(0, 3, 4), (2, 6, 4), (3, 0, 4)]))


def test_names_in_a_model_of_several_parts():
    """What follows a value that is read takes its extents from the inputs of the whole."""
    text = """m (float[n, 6] x, float[k] v) => (float[] y) <int64[1] minus = {-1}, int64[1] two = {2}> {
        p = NonZero(v) a = Shape<end=1>(x) h = Div(a, two) s = Concat<axis=0>(h, minus) c = Cast<to=1>(p)
        t = ReduceSum<keepdims=0>(c) r = Reshape(x, s) q = Add(r, t) u = Shape<end=1>(p)
        o = Concat<axis=0>(h, minus, u) y = Reshape(q, o) }"""
    model, rng = model_of(text), np.random.default_rng(8)
    feeds = [
        {"x": rng.normal(size=(n, 6)).astype("float32"), "v": np.array(v, "float32")}
        for n, v in [(4, [0, 1, 2]), (2, [3, 0, 0]), (4, [0, 0, 1])]
    ]
    check_runs(model, *feeds)


def test_inputs_get_names_from_which_extents_follow():
    value = onnx.helper.make_tensor_value_info
    inputs = [
        value("x", 1, ["batch size", None, "past + 1"]),
        value("y", 1, ["batch size", None, "past"]),
        value("z", 1, [1, "a*b", 1]),
    ]
    nodes = [
        onnx.helper.make_node("Concat", ["x", "y"], ["c"], axis=2),
        onnx.helper.make_node("Add", ["c", "z"], ["o"]),
    ]
    graph = onnx.helper.make_graph(nodes, "g", inputs, [value("o", 1, [None] * 3)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    typed_graph = typed(model)
    assert inputs_of(typed_graph) == {
        "x": ("batch_size", "x_1", "past + 1"),
        "y": ("batch_size", "y_1", "past"),
        "z": (1, "a_b", 1),
    }
    made, rng = weft.compile(model), np.random.default_rng(9)
    feed = {"x": (2, 1, 5), "y": (2, 1, 4), "z": (1, 3, 1)}
    arrays = {name: rng.normal(size=size).astype("float32") for name, size in feed.items()}
    (result,) = made.run(arrays)
    np.testing.assert_allclose(result, np.concatenate([arrays["x"], arrays["y"]], 2) + arrays["z"], 1e-6)
    with pytest.raises(ShapeError, match="past = 4"):
        made.run({**arrays, "y": arrays["y"][:, :, 1:]})


def test_names_that_are_given_replace_those_of_the_file():
    model = model_of("m (float[n, 3] x, float[n] y) => (float[] z) { z = Add(x, y) }")
    assert inputs_of(typed(model, {"x": ("batch", 3)})) == {"x": ("batch", 3), "y": ("batch",)}


def test_an_input_of_which_only_the_shape_is_read_names_extents():
    model = model_of("m (float[n, 3] x, float[1] y) => (float[] z) { s = Shape<end=1>(x) z = Expand(y, s) }")
    graph, y = typed(model), np.array([2.5], "float32")
    assert inputs_of(graph) == {"x": ("n", 3), "y": (1,)}
    assert names_in(graph.indexed.nodes) == {"n"}
    check_runs(model, *({"x": np.zeros((n, 3), "float32"), "y": y} for n in (2, 5)))


def test_graphs_with_names_in_attributes_are_not_built_as_they_are():
    symbol, params = from_onnx(model_of("m (float[n, 3] x) => (float[] y) { s = Shape(x) y = ConstantOfShape(s) }"))
    with pytest.raises(Unsupported, match="attributes hold extents by name: n"):
        weft.compiler.build(symbol, "cpu", shape={"x": (2, 3)}, params=params)
