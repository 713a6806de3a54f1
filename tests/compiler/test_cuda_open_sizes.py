"""Models of open sizes for GPUs: a program for each class of sizes, whatever sizes those are. A driver of Python checks
every call, kernels run as what they mean in the interpreter, and values are PyTorch's."""

import gc
from collections import Counter

import numpy as np
import pytest
from oracles import oracle
from runtime.interpreted_cuda import Recording, interpreted
from runtime.test_cuda_executor import fake  # noqa: F401

import weft
from weft.runtime.executor import KEPT_SIZES
from weft.te.loops import WholeKernel

torch, F = oracle("torch"), oracle("torch.nn.functional")
sym = weft.symbol
rng = np.random.default_rng(17)
FEW = 8  # rows of products that are not for tensor cores
FEW_HALVES = 4  # of 16 bits, where warpgroups multiply them
BOUND = {"fp32": 2e-5, "tf32": 5e-3, "fp16": 5e-3, "bf16": 4e-2}


@pytest.fixture
def gpu(fake):  # noqa: F811
    with interpreted(fake):
        yield fake
    gc.collect()


@pytest.fixture
def threads(fake):  # noqa: F811
    """The same, but that kernels of single warps run as PTX, thread by thread."""
    with interpreted(fake, by_threads=True):
        yield fake
    gc.collect()


def templates(model):
    """The kinds of statements that kernels of tensor cores have, in the order of a program's steps."""
    bodies = [Recording.kernels[step.kernel][-1][0].body for step in model.program.plan.steps]
    return [type(body).__name__ for body in bodies if isinstance(body, WholeKernel)]


def drawn(*shape):
    return rng.standard_normal(shape).astype("float32")


def perceptron(x, into, b1, back, b2, gamma, beta):
    hidden = sym.gelu(sym.dense(sym.layer_norm(x, gamma, beta, axis=-1), into, b1, units=32))
    return sym.dense(hidden, back, b2, units=16) + x


def check_rows(arch, precision, shapes):
    params = {"into": drawn(32, 16), "b1": drawn(32), "back": drawn(16, 32), "b2": drawn(16)}
    params |= {"gamma": drawn(16), "beta": drawn(16)}
    symbol = perceptron(*map(sym.Variable, ("x", *params)))
    target = f"cuda -arch={arch}"
    model = weft.compile((symbol, params), shape={"x": ("n", "s", 16)}, target=target, precision=precision)
    wide = {name: torch.tensor(value).double() for name, value in params.items()}
    for shape in shapes:
        x = drawn(*shape, 16)
        t = torch.tensor(x).double()
        normal = F.layer_norm(t, (16,), wide["gamma"], wide["beta"])
        wanted = F.linear(F.gelu(F.linear(normal, wide["into"], wide["b1"])), wide["back"], wide["b2"]) + t
        (found,) = model.run({"x": x})
        np.testing.assert_allclose(found, wanted.numpy(), atol=BOUND[precision] * np.abs(wanted.numpy()).max())
    few = FEW_HALVES if (arch, precision) == ("sm_90a", "fp16") else FEW
    assert model.compilations == len({n * s <= few for n, s in shapes})


def encoder(x, mask, *weights):
    """Attention of two heads of 8, added to what came in, over products for queries, keys and values, as they are
    written in files; a mask says which keys count."""
    *into, out = weights
    split = [sym.reshape(sym.dense(x, w, units=16, use_bias=False), shape=(0, 0, 2, 8)) for w in into]
    q, k, v = (sym.transpose(part, axes=(0, 2, 1, 3)) for part in split)
    scores = sym.batch_matmul(q, sym.transpose(k, axes=(0, 1, 3, 2))) * 8**-0.5
    mixed = sym.batch_matmul(sym.softmax(sym.broadcast_add(scores, mask), axis=-1), v)
    joined = sym.reshape(sym.transpose(mixed, axes=(0, 2, 1, 3)), shape=(0, 0, -1))
    return sym.dense(joined, out, units=16, use_bias=False) + x


def encoded(x, mask, *weights):
    x, mask, *into, out = (torch.tensor(value).double() for value in (x, mask, *weights))
    q, k, v = (F.linear(x, w).unflatten(-1, (2, 8)).transpose(1, 2) for w in into)
    mixed = F.scaled_dot_product_attention(q, k, v, mask)
    return (F.linear(mixed.transpose(1, 2).flatten(2), out) + x).numpy()


def check_attention(arch, precision, shapes):
    params = {name: drawn(16, 16) for name in ("q", "k", "v", "out")}
    model = weft.compile(
        (encoder(*map(sym.Variable, ("x", "mask", *params))), params),
        shape={"x": ("n", "s", 16), "mask": ("n", 1, 1, "s")},
        target=f"cuda -arch={arch}",
        precision=precision,
    )
    for n, s in sorted(shapes):
        x, mask = drawn(n, s, 16), drawn(n, 1, 1, s)
        wanted = encoded(x, mask, *params.values())
        (found,) = model.run({"x": x, "mask": mask})
        np.testing.assert_allclose(found, wanted, atol=BOUND[precision] * np.abs(wanted).max())
    few = FEW_HALVES if (arch, precision) == ("sm_90a", "fp16") else FEW
    assert model.compilations == len({n * s <= few for n, s in shapes})
    by_groups = {"Product": 4, "Attention": 1} if precision == "fp16" else {"Product": 4, "WarpAttention": 1}
    by_warps = {"WarpProduct": 4, "WarpAttention": 1}
    assert Counter(templates(model)) == (by_groups if arch == "sm_90a" else by_warps)


def pictures(x, stem, first, second, apart, out):
    """A convolution that takes squares for pixels, a pool, two with a residual, one of channels apart, a mean."""
    net = sym.conv2d(x, stem, channels=8, kernel_size=(3, 3), strides=(2, 2), padding=(1, 1), use_bias=False)
    net = sym.max_pool2d(sym.relu(net), pool_size=(2, 2), strides=(1, 1))
    attrs = {"kernel_size": (3, 3), "padding": (1, 1), "use_bias": False}
    inner = sym.relu(sym.conv2d(net, first, channels=16, **attrs))
    net = sym.relu(sym.conv2d(inner, second, channels=8, **attrs) + net)
    net = sym.relu(sym.conv2d(net, apart, channels=8, groups=8, **attrs))
    return sym.dense(sym.flatten(sym.global_avg_pool2d(net)), out, units=10, use_bias=False)


def seen(x, stem, first, second, apart, out):
    x, stem, first, second, apart, out = (torch.tensor(v).double() for v in (x, stem, first, second, apart, out))
    net = F.max_pool2d(F.conv2d(x, stem, stride=2, padding=1).relu(), 2, 1)
    net = (F.conv2d(F.conv2d(net, first, padding=1).relu(), second, padding=1) + net).relu()
    return F.linear(F.conv2d(net, apart, padding=1, groups=8).relu().mean((2, 3)), out).numpy()


def check_pictures(arch, precision, shapes):
    weights = {"stem": (8, 3, 3, 3), "first": (16, 8, 3, 3), "second": (8, 16, 3, 3), "apart": (8, 1, 3, 3)}
    params = {name: drawn(*shape) for name, shape in (weights | {"out": (10, 8)}).items()}
    symbol = pictures(*map(sym.Variable, ("x", *params)))
    target = f"cuda -arch={arch}"
    model = weft.compile((symbol, params), shape={"x": ("n", 3, *shapes[0][1:])}, target=target, precision=precision)
    for n, *sides in shapes:
        x = drawn(n, 3, *sides)
        wanted = seen(x, *params.values())
        np.testing.assert_allclose(model.run({"x": x})[0], wanted, atol=BOUND[precision] * np.abs(wanted).max())
    assert model.compilations == 1
    assert Counter(templates(model)) == {"Product" if arch == "sm_90a" else "WarpProduct": 3}


def check_matrices(arch, precision, shapes):
    """Products of which no size is known, of operands in both orders."""
    names = [sym.Variable(name) for name in "abc"]
    left = sym.batch_matmul(names[0], names[1])
    symbol = sym.batch_matmul(left, names[2], transpose_a=True, transpose_b=True)
    given = {"a": ("n", "m", "k"), "b": ("n", "k", "j"), "c": ("n", "i", "m")}
    model = weft.compile(
        (symbol, {}),
        shape=given,
        dtype=dict.fromkeys("abc", "float32"),
        target=f"cuda -arch={arch}",
        precision=precision,
    )
    for n, m, k, j, i in shapes:
        a, b, c = drawn(n, m, k), drawn(n, k, j), drawn(n, i, m)
        wanted = (a.astype(float) @ b).swapaxes(1, 2) @ c.swapaxes(1, 2)
        (found,) = model.run({"a": a, "b": b, "c": c})
        np.testing.assert_allclose(found, wanted, atol=2 * BOUND[precision] * np.abs(wanted).max())
    assert not model._whole._open.bound_names


CHECKS = {
    "rows": (check_rows, [(2, 5), (1, 1), (1, 4), (8, 3), (3, 8), (2, 5)], [(2, 5), (1, 1), (1, 7)]),
    "attention": (check_attention, [(2, 5), (1, 1), (3, 8)], [(2, 5), (1, 1)]),
    "pictures": (check_pictures, [(2, 7, 6), (1, 7, 6), (3, 7, 6)], [(2, 5, 3), (1, 5, 3)]),
    "matrices": (
        check_matrices,
        [(2, 5, 3, 7, 2), (1, 1, 1, 1, 1), (2, 16, 40, 8, 24)],
        [(1, 3, 5, 1, 2), (1, 8, 8, 8, 8)],
    ),
}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("kind", list(CHECKS))
def test_threads_of_single_warps(threads, kind, precision):
    check, shapes, _ = CHECKS[kind]
    check("sm_80", precision, shapes)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("kind", list(CHECKS))
def test_what_warpgroups_mean(gpu, kind, precision):
    check, _, shapes = CHECKS[kind]
    check("sm_90a", precision, shapes)


def layers(count=2):
    params = {f"w{number}": drawn(16, 16) for number in range(count)}
    net = sym.Variable("x")
    for name in params:
        net = sym.relu(sym.dense(net, sym.Variable(name), units=16, use_bias=False))
    return net, params


def multiplied(x, params):
    net = torch.tensor(x).double()
    for value in params.values():
        net = F.linear(net, torch.tensor(value).double()).relu()
    return net.numpy()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_program_for_each_class_of_sizes(threads, precision):
    """Sizes of a class have the same code, and the same bits whichever of them came first. Programs share what there is
    of constants on the device."""
    symbol, params = layers()
    options = {"shape": {"x": ("n", 16)}, "target": "cuda -arch=sm_80", "precision": precision}
    first, other = (weft.compile((symbol, params), **options) for _ in range(2))
    sizes = [1, 8, 9, 65, 513, 3, 65]
    given = {n: drawn(n, 16) for n in sizes}
    for n in sizes:
        (found,) = first.run({"x": given[n]})
        wanted = multiplied(given[n], params)
        np.testing.assert_allclose(found, wanted, atol=BOUND[precision] * np.abs(wanted).max())
    assert first.compilations == 4
    for n in reversed(sizes):
        np.testing.assert_array_equal(other.run({"x": given[n]})[0], first.run({"x": given[n]})[0])
    assert first.compilations == other.compilations == 4
    places = {executor.loaded.places for executor in first._whole.executors.values()}
    assert len(places) == 1
    assert len(next(iter(places))) == 2


def test_memory_of_many_sizes_is_that_of_the_largest(gpu):
    symbol, params = layers()
    model = weft.compile((symbol, params), shape={"x": ("n", 16)}, target="cuda -arch=sm_90a")
    model.run({"x": drawn(20, 16)})
    taken = gpu.taken
    for n in (19, 11, 9, 19):
        model.run({"x": drawn(n, 16)})
    assert gpu.taken == taken
    model.run({"x": drawn(8, 16)})  # another program, without constants of its own
    assert gpu.taken == taken
    assert model.compilations == 2


def test_graphs_of_sizes_that_were_seen_are_kept(fake):  # noqa: F811
    """As many as an executor keeps, though fewer are at hand by the shapes of inputs."""
    fake.kernels = Nothing()
    symbol, params = layers()
    model = weft.compile((symbol, params), shape={"x": ("n", 16)}, target="cuda -arch=sm_90a")
    sizes = [*range(9, 9 + 20), *range(9, 9 + 20)]
    for n in sizes:
        model.run({"x": drawn(n, 16)})
    assert fake.calls.count("cuGraphInstantiateWithFlags") == 20
    assert fake.calls.count("cuGraphLaunch") == 40
    assert model.compilations == 1
    for n in range(100, 100 + KEPT_SIZES + 5):
        model.run({"x": drawn(n, 16)})
    made = sum(kind == "graph" for kind, _, _ in fake.alive.values())
    assert made <= 20 + KEPT_SIZES + 1


class Nothing(dict):
    """Kernels that do nothing."""

    def __missing__(self, name):
        return lambda driver, launched: None


@pytest.mark.parametrize("shape", [(1, 9), (2, 5), (8, 8)])
def test_grids_and_tensor_maps_of_a_size(gpu, shape):
    """Of a product by warpgroups: what its maps show, and as many blocks as tiles, or as a GPU runs at once."""
    params = {"w": drawn(24, 16)}
    symbol = sym.dense(sym.Variable("x"), sym.Variable("w"), units=24, use_bias=False)
    model = weft.compile((symbol, params), shape={"x": ("n", "s", 16)}, target="cuda -arch=sm_90a", precision="tf32")
    model.run({"x": drawn(*shape, 16)})
    (step,) = model.program.plan.steps
    (launched,) = model._whole.last.latest.plan.steps
    tile, rows = Recording.kernels[step.kernel][-1][0].body.tile, shape[0] * shape[1]
    assert [(found.dims, found.strides) for found in launched.maps] == [
        ((16, rows, 1), (64, rows * 64)),
        ((16, 24, 1), (64, 24 * 64)),
    ]
    tiles = -(-rows // tile.rows) * -(-24 // tile.width)
    assert launched.launch.blocks == (min(tiles, 132) if tile.split == 1 else tiles * tile.split, 1, 1)


def test_a_saved_program_serves_its_class_of_sizes(gpu, tmp_path):
    symbol, params = layers()
    model = weft.compile((symbol, params), shape={"x": ("n", 16)}, target="cuda -arch=sm_90a")
    given = {n: drawn(n, 16) for n in (9, 12, 20)}
    wanted = {n: model.run({"x": x})[0] for n, x in given.items()}
    model.save(tmp_path / "model.weft")
    loaded = weft.runtime.load(tmp_path / "model.weft")
    for n in (12, 9, 20):
        np.testing.assert_array_equal(loaded.run({"x": given[n]})[0], wanted[n])
    with pytest.raises(weft.Error, match=r"sizes where x.shape\[0\] > 8"):
        loaded.run({"x": drawn(8, 16)})
