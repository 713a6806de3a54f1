"""Random small ONNX graphs: a seed comes in; a graph, its inputs and what ONNX Runtime makes of
every value go out. Many of the numbers are special: infinities, NaN, ends of the integers.

What ONNX Runtime has wrong, by ONNX's text or by numpy, is not drawn: reductions of empty tensors
keep the shape; the product of nothing and a vector is not set; a Gemm over nothing loses beta; Clip
with one bound takes infinities for the largest numbers; Conv multiplies infinities with the zeros
of its padding; sums of integers stop at the largest one; how NaN compares to a maximum depends on
where it stands."""

import random

import numpy as np
from onnx import helper
from onnx_runs import model_of, onnxruntime_run

FLOATS = [np.float32, np.float32, np.float16]
INTEGERS = [np.int32, np.int64, np.uint8]
SHAPES = [
    (),
    (1,),
    (3,),
    (4,),
    (0,),
    (2, 3),
    (3, 1),
    (1, 4),
    (2, 0),
    (2, 1, 3),
    (1, 3, 4),
    (0, 3),
    (2, 3, 4),
    (1, 2, 4, 4),
    (2, 3, 5, 4),
]
SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 100.0, 1e4, 6e4, -7e-6]

ROUNDED = "Abs Neg Floor Ceil Round Sign Relu".split()
SMOOTH = (
    "Exp Log Sqrt Sin Cos Tanh Sigmoid Erf Softplus Softsign Reciprocal Atan Asinh Elu Selu Celu "
    "LeakyRelu HardSigmoid ThresholdedRelu Shrink HardSwish Mish Gelu"
).split()
COMPARED = "Equal Less Greater LessOrEqual GreaterOrEqual".split()
REDUCED = "Sum Mean Max Min Prod L1 L2 SumSquare LogSum LogSumExp".split()


class Graph:
    """A graph that grows by nodes which ONNX Runtime runs."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.rng = np.random.default_rng(self.draw.randrange(2**32))
        self.inputs, self.constants, self.nodes = {}, {}, []
        self.values = {}  # what is known of each name: inputs, constants and results

    def array(self, shape, dtype):
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return self.rng.random(shape) < 0.5
        if dtype.kind in "iu":
            made = self.rng.integers(-4 if dtype.kind == "i" else 0, 6, shape)
            ends = self.rng.choice([np.iinfo(dtype).min, np.iinfo(dtype).max], shape)
            far = self.rng.random(shape) < 0.1
            return np.asarray(np.where(far, ends.astype(dtype), made.astype(dtype)), dtype)
        made = self.rng.standard_normal(shape) * 2
        chosen = self.rng.choice(SPECIAL, shape)
        rate = self.draw.choice([0.0, 0.0, 0.3])
        with np.errstate(over="ignore"):
            return np.asarray(np.where(self.rng.random(shape) < rate, chosen, made)).astype(dtype)

    def new(self, array, constant=False):
        """The name of a new input, or constant, of the graph."""
        name = f"v{len(self.values)}"
        (self.constants if constant else self.inputs)[name] = array
        self.values[name] = array
        return name

    def value(self, dtypes, shapes=SHAPES, rank=None):
        """A name with a value of one of the dtypes: one there is, or a new one."""
        found = [
            name
            for name, x in self.values.items()
            if x.dtype in [np.dtype(d) for d in dtypes] and (rank is None or x.ndim in rank)
        ]
        if found and self.draw.random() < 0.6:
            return self.draw.choice(found)
        fitting = [shape for shape in shapes if rank is None or len(shape) in rank]
        array = self.array(self.draw.choice(fitting), self.draw.choice(dtypes))
        return self.new(array, self.draw.random() < 0.15)

    def beside(self, name, dtype=None):
        """A value that broadcasts with another: of its shape with some axes of 1 or gone."""
        shape = [1 if self.draw.random() < 0.3 else dim for dim in self.values[name].shape]
        shape = shape[self.draw.choice([0, 0, 1]) :]
        array = self.array(tuple(shape), dtype or self.values[name].dtype)
        return self.new(array, self.draw.random() < 0.3)

    def ints(self, *numbers):
        return self.new(np.array(numbers, np.int64).reshape(-1), constant=True)

    def axis(self, name):
        rank = self.values[name].ndim
        return self.draw.randrange(-rank, rank)

    def add(self, op_type, *names, outputs=1, **attrs):
        """Adds a node, unless ONNX Runtime has no such one; whether it did."""
        results = [f"r{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op_type, list(names), results, **attrs)
        model = model_of([*self.nodes, node], self.inputs, results, self.constants)
        try:
            made = onnxruntime_run(model, self.inputs)
        except Exception:  # whatever its own reason is
            return False
        self.nodes.append(node)
        self.values.update(zip(results, map(np.asarray, made)))
        return True

    def model(self):
        outputs = [name for node in self.nodes for name in node.output]
        model = model_of(self.nodes, self.inputs, outputs, self.constants)
        return model, {name: self.values[name] for name in outputs}


def unary(g):
    op_type = g.draw.choice([*ROUNDED, *SMOOTH])
    g.add(op_type, g.value([*FLOATS, *(INTEGERS if op_type in ROUNDED else [])]))


def arithmetic(g):
    name = g.value([*FLOATS, *INTEGERS])
    op_type = g.draw.choice("Add Sub Mul Div Max Min Mod Pow PRelu".split())
    dtype = g.values[name].dtype
    other = g.beside(name)
    attrs = {"fmod": int(dtype.kind == "f" or g.draw.random() < 0.5)} if op_type == "Mod" else {}
    if dtype.kind in "iu" and op_type in ("Div", "Mod"):  # a trap to ONNX Runtime, which ends it
        safe = g.values[other].copy()
        safe[(safe == 0) | (safe == np.array(-1).astype(dtype))] = 3
        other = g.new(safe)
    if op_type == "Pow" and dtype.kind in "iu":
        return
    if op_type == "Mod" and dtype.kind == "f" and not {name, other} <= {*g.inputs, *g.constants}:
        return  # how a value between was rounded decides about all of its remainder
    turned = op_type in ("Add", "Sub", "Mul", "Max", "Min") and g.draw.random() < 0.3
    g.add(op_type, *((other, name) if turned else (name, other)), **attrs)


def comparison(g):
    name = g.value([*FLOATS, *INTEGERS])
    g.add(g.draw.choice(COMPARED), name, g.beside(name))


def logic(g):
    name = g.value([bool])
    kind = g.draw.choice(["And", "Or", "Xor", "Not"])
    g.add(kind, *([name] if kind == "Not" else [name, g.beside(name)]))


def predicate(g):
    g.add(g.draw.choice(["IsNaN", "IsInf"]), g.value(FLOATS))


def where(g):
    name = g.value([*FLOATS, *INTEGERS])
    g.add("Where", g.beside(name, bool), name, g.beside(name))


def clip(g):
    name = g.value([*FLOATS, *INTEGERS])
    dtype = g.values[name].dtype
    low, high = ("" if g.draw.random() < 0.3 else g.new(g.array((), dtype), g.draw.random() < 0.7) for _ in range(2))
    if any(n and np.isnan(g.values[n]) for n in (low, high) if dtype.kind == "f"):
        return
    if not (low and high) and dtype.kind == "f" and np.isinf(g.values[name]).any():
        return
    if low and high and g.values[low] > g.values[high]:
        low, high = high, low
    g.add("Clip", name, low, high)


def cast(g):
    """Where all values fit: what becomes of the others, ONNX leaves open."""
    name = g.value([*FLOATS, *INTEGERS, bool])
    target = np.dtype(g.draw.choice([*FLOATS, *INTEGERS, bool]))
    x = g.values[name]
    if target.kind in "iu" and x.dtype.kind == "f":
        limits = np.iinfo(target)
        wide = x.astype(np.float64)
        if not np.all(np.isfinite(wide) & (wide > limits.min - 0.5) & (wide < limits.max / 2)):
            return
    g.add("Cast", name, to=helper.np_dtype_to_tensor_dtype(target))


def has_nan(x):
    """Of what is largest, ONNX does not say how NaN compares; here it is the largest, to ONNX
    Runtime it depends on its place."""
    return x.dtype.kind == "f" and bool(np.isnan(x).any())


def reduction(g):
    kind = g.draw.choice(REDUCED)
    name = g.value([*FLOATS, np.int32, np.int64])
    x = g.values[name]
    if x.dtype.kind == "i" and (
        kind in ("L2", "LogSum", "LogSumExp", "Prod", "Mean") or np.abs(x.astype(np.float64)).max(initial=0) > 1e4
    ):
        return
    if kind in ("Max", "Min") and has_nan(x):
        return
    attrs = {"keepdims": g.draw.randrange(2)}
    axes = g.draw.sample(range(x.ndim), g.draw.randint(0, x.ndim))
    axes = [axis - x.ndim * g.draw.randrange(2) for axis in axes]
    if not x.size:
        return
    extra = [g.ints(*axes)] if axes else []
    g.add(f"Reduce{kind}", name, *extra, **attrs)


def extreme_place(g):
    name = g.value([*FLOATS, np.int32], rank=(1, 2, 3))
    if has_nan(g.values[name]) or not g.values[name].size:
        return
    g.add(
        g.draw.choice(["ArgMax", "ArgMin"]),
        name,
        axis=g.axis(name),
        keepdims=g.draw.randrange(2),
        select_last_index=g.draw.randrange(2),
    )


def softmax(g):
    name = g.value(FLOATS, rank=(1, 2, 3))
    kinds = ["Softmax", "LogSoftmax", *([] if has_nan(g.values[name]) else ["Hardmax"])]
    g.add(g.draw.choice(kinds), name, axis=g.axis(name))


def running_sum(g):
    name = g.value([np.float32, np.int32, np.int64], rank=(1, 2, 3))
    axis = g.new(np.array(g.axis(name), np.int64), constant=True)
    g.add("CumSum", name, axis, exclusive=g.draw.randrange(2), reverse=g.draw.randrange(2))


ANY = [*FLOATS, *INTEGERS, bool]


def transpose(g):
    name = g.value(ANY, rank=(1, 2, 3, 4))
    g.add("Transpose", name, perm=g.draw.sample(range(g.values[name].ndim), g.values[name].ndim))


def reshape(g):
    name = g.value(ANY, rank=(1, 2, 3, 4))
    shape = list(g.values[name].shape)
    kind = g.draw.choice(["keep", "flat", "split", "Flatten", "Squeeze", "Unsqueeze"])
    if kind == "Flatten":
        return g.add("Flatten", name, axis=g.draw.randint(-len(shape), len(shape)))
    if kind == "Unsqueeze":
        return g.add("Unsqueeze", name, g.ints(g.draw.randrange(-len(shape) - 1, len(shape) + 1)))
    if kind == "Squeeze":
        return g.add("Squeeze", name)
    wanted = {"keep": [0] * len(shape), "flat": [-1], "split": [*shape[::-1][:-1], -1]}[kind]
    return g.add("Reshape", name, g.ints(*wanted))


def stretched(g):
    name = g.value(ANY)
    shape = g.values[name].shape
    if g.draw.random() < 0.5:
        return g.add("Expand", name, g.ints(2, *(3 if dim == 1 else dim for dim in shape)))
    return g.add("Tile", name, g.ints(*(g.draw.randint(0, 2) for _ in shape)))


def concatenated(g):
    name = g.value(ANY, rank=(1, 2, 3))
    x, axis = g.values[name], g.axis(name)
    parts = []
    for _ in range(g.draw.randint(0, 3)):
        shape = list(x.shape)
        shape[axis] = g.draw.choice([0, 1, 3])
        parts.append(g.new(g.array(tuple(shape), x.dtype)))
    g.add("Concat", *g.draw.sample([name, *parts], len(parts) + 1), axis=axis)


def parts(g):
    name = g.value(ANY, rank=(1, 2, 3))
    axis = g.axis(name)
    total = g.values[name].shape[axis]
    first = g.draw.randint(0, total)
    g.add("Split", name, g.ints(first, total - first), outputs=2, axis=axis)


def sliced(g):
    name = g.value(ANY, rank=(1, 2, 3, 4))
    rank = g.values[name].ndim
    axes = g.draw.sample(range(rank), g.draw.randint(1, rank))
    bounds = [[g.draw.choice([-(2**40), -5, -2, -1, 0, 1, 2, 3, 2**40]) for _ in axes] for _ in range(2)]
    steps = [g.draw.choice([-2, -1, 1, 1, 2]) for _ in axes]
    axes = [axis - rank * g.draw.randrange(2) for axis in axes]
    g.add("Slice", name, *(g.ints(*row) for row in (*bounds, axes, steps)))


def gathered(g):
    name = g.value(ANY, rank=(1, 2, 3))
    x, axis = g.values[name], g.axis(name)
    extent = x.shape[axis]
    if not extent:
        return
    draw = lambda shape: g.rng.integers(-extent, extent, shape)
    known = g.draw.random() < 0.5
    if g.draw.random() < 0.5:
        shape = g.draw.choice([(), (1,), (3,), (2, 2), (0,)])
        g.add("Gather", name, g.new(np.asarray(draw(shape)), known), axis=axis)
    else:
        g.add("GatherElements", name, g.new(draw(x.shape), known), axis=axis)


def padded(g):
    name = g.value([*FLOATS, *INTEGERS], rank=(1, 2, 3, 4))
    widths = [g.draw.choice([0, 0, 1, 2]) for _ in range(2 * g.values[name].ndim)]
    fill = g.new(g.array((), g.values[name].dtype), constant=True)
    g.add("Pad", name, g.ints(*widths), fill)


def product(g):
    name = g.value([np.float32, np.int32], rank=(1, 2, 3))
    x = g.values[name]
    columns = g.draw.choice([(), (0,), (1,), (5,)])
    other = g.new(g.array((x.shape[-1], *columns), x.dtype), g.draw.random() < 0.3)
    if x.shape[-1] or columns:
        g.add("MatMul", name, other)


def dense(g):
    name = g.value(FLOATS, rank=(2,))
    rows, inner = g.values[name].shape
    units, dtype = g.draw.choice([1, 3, 5]), g.values[name].dtype
    turned = g.draw.randrange(2)
    weight = g.new(g.array((units, inner) if turned else (inner, units), dtype), True)
    bias = g.new(g.array(g.draw.choice([(units,), (1, units), (rows, units), ()]), dtype), True)
    g.add(
        "Gemm",
        name,
        weight,
        bias,
        transB=turned,
        alpha=g.draw.choice([1.0, 0.5]),
        beta=g.draw.choice([1.0, 2.0]) if inner else 1.0,
    )


def windowed(g):
    name = g.value([np.float32], rank=(4,))
    channels = g.values[name].shape[1]
    kind = g.draw.choice(["Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"])
    attrs = {"strides": [g.draw.randint(1, 2)] * 2, "pads": [g.draw.randrange(2) for _ in range(4)]}
    if "Max" in kind and has_nan(g.values[name]):
        return False
    if kind == "Conv" and not np.isfinite(g.values[name]).all():
        return False
    if kind == "Conv":
        weight = g.new(g.rng.standard_normal((3, channels, 2, 2)).astype(np.float32), True)
        return g.add("Conv", name, weight, **attrs)
    return g.add(kind, name, **({} if "Global" in kind else {"kernel_shape": [2, 2], **attrs}))


def normalised(g):
    name = g.value(FLOATS, rank=(3, 4))
    x = g.values[name]
    if not np.isfinite(x).all() or not x.size:
        return
    scale, bias = (g.new(g.array(x.shape[-1:], x.dtype), True) for _ in range(2))
    g.add("LayerNormalization", name, scale, bias)


GROWTH = [
    unary,
    unary,
    arithmetic,
    arithmetic,
    arithmetic,
    comparison,
    logic,
    predicate,
    where,
    clip,
    cast,
    reduction,
    reduction,
    extreme_place,
    softmax,
    running_sum,
    transpose,
    reshape,
    stretched,
    concatenated,
    parts,
    sliced,
    gathered,
    padded,
    product,
    dense,
    windowed,
    normalised,
]


def random_graph(seed, most=4):
    """A graph of one node or a few."""
    graph = Graph(seed)
    wanted = graph.draw.randint(1, most)
    for _ in range(3 * most):
        if len(graph.nodes) >= wanted:
            break
        graph.draw.choice(GROWTH)(graph)
    return graph
