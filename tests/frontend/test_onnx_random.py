"""Random operators of ONNX: their numbers are of the stream of a seed, which PyTorch draws too."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx_models import make_model, node
from oracles import oracle
from scipy import stats

import weft
from weft.base.errors import Error, OutOfMemory, Unsupported
from weft.core.interpret import evaluate, final_values
from weft.frontend import from_onnx
from weft.runtime.report import report_of

FLOAT, DOUBLE, INT32 = (getattr(onnx.TensorProto, t) for t in ("FLOAT", "DOUBLE", "INT32"))


def compiled(symbol, params, shapes=None):
    values = {name: value.numpy() for name, value in params.items()}
    dtypes = {name: value.dtype for name, value in values.items()}
    graph, library, _ = weft.compiler.build(
        symbol, "llvm", {**{n: v.shape for n, v in values.items()}, **(shapes or {})}, dtypes
    )
    assert report_of([library.program]).host_steps == ()
    module = weft.runtime.create(graph, library)
    module.set_input(**values)
    return module


def runs(model, inputs=None, count=2):
    """What the interpreter and machine code give, run after run."""
    inputs = inputs or {}
    symbol, params = from_onnx(model, {name: value.shape for name, value in inputs.items()})
    module = compiled(symbol, params, {name: value.shape for name, value in inputs.items()})
    values = {**{name: value.numpy() for name, value in params.items()}, **inputs}
    for _ in range(count):
        module.run(**inputs)
        wanted = evaluate(symbol, values)
        values.update(final_values(symbol, values))
        found = [module.get_output(i).asnumpy() for i in range(len(wanted))]
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        yield found


def test_numbers_of_a_shape():
    torch = oracle("torch")
    model = make_model(
        [
            node("RandomUniform", "", "u", shape=[3, 50], low=-1.0, high=3.0, seed=7.0),
            node("RandomNormal", "", "n", shape=[7], mean=1.0, scale=2.0, seed=9.0, dtype=DOUBLE),
        ],
        {},
        ["u", "n"],
    )
    u, n = torch.Generator().manual_seed(7), torch.Generator().manual_seed(9)
    for uniform, normal in runs(model):
        assert uniform.tolist() == torch.empty(3, 50).uniform_(-1, 3, generator=u).tolist()
        wanted = torch.empty(7, dtype=torch.float64).normal_(1, 2, generator=n)
        np.testing.assert_allclose(normal, wanted.numpy(), rtol=1e-12)


def test_numbers_like_others(rng):
    torch = oracle("torch")
    model = make_model(
        [
            node("RandomUniformLike", "x", "u", seed=7.0, dtype=DOUBLE),
            node("RandomNormalLike", "x", "n", seed=8.0),
            node("Relu", "x", "r"),
        ],
        {"x": (4, 9)},
        ["u", "n", "r"],
    )
    u, n = torch.Generator().manual_seed(7), torch.Generator().manual_seed(8)
    x = rng.standard_normal((4, 9)).astype(np.float32)
    for uniform, normal, _ in runs(model, {"x": x}):
        wanted = torch.rand(4, 9, dtype=torch.float64, generator=u)
        assert (uniform.dtype, uniform.tolist()) == (np.float64, wanted.tolist())
        wanted = torch.randn(4, 9, generator=n).numpy()
        assert normal.dtype == np.float32
        np.testing.assert_allclose(normal, wanted, rtol=1e-6, atol=1e-6)


def test_choices(rng):
    torch = oracle("torch")
    model = make_model([node("Bernoulli", "x", "y", seed=3.0, dtype=INT32)], {"x": (300,)}, ["y"])
    generator = torch.Generator().manual_seed(3)
    chance = rng.random(300).astype(np.float32)
    for (found,) in runs(model, {"x": chance}):
        wanted = torch.bernoulli(torch.from_numpy(chance), generator=generator)
        assert (found.dtype, found.tolist()) == (np.int32, wanted.int().tolist())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_samples_of_classes(rng, dtype):
    """As often as their weights say, and never one of weight 0; logits have no zero of their own."""
    weights = rng.uniform(0.05, 1, (3, 6))
    weights[:, [0, 3, 5]] *= [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    with np.errstate(divide="ignore"):
        logits = (np.log(weights) + 30).astype(dtype)
    made = node("Multinomial", "x", "y", sample_size=4000, dtype=onnx.TensorProto.INT64, seed=5.0)
    model = make_model([made], {"x": (3, 6)}, ["y"], elem_type=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    first, second = runs(model, {"x": logits})
    assert (first[0].shape, first[0].dtype) == ((3, 4000), np.int64)
    assert (first[0] != second[0]).any()
    shares = np.exp(logits.astype(np.float64) - 30)
    for drawn, share in zip(np.concatenate([first[0], second[0]], 1), shares):
        counts, possible = np.bincount(drawn, minlength=6), share > 0
        assert not counts[~possible].any()
        wanted = 8000 * share[possible] / share.sum()
        assert stats.chisquare(counts[possible], wanted).pvalue > 1e-4


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
def test_dtypes_of_numbers(name):
    code = getattr(onnx.TensorProto, {"float64": "DOUBLE"}.get(name, name.upper()))
    nodes = [
        node("RandomUniform", "", "u", shape=[800], low=-1.0, high=3.0, seed=7.0, dtype=code),
        node("RandomNormalLike", "u", "n", mean=1.0, scale=2.0, seed=9.0),
        node("Bernoulli", "p", "b", seed=2.0, dtype=code),
    ]
    half = np.full(800, 0.25, np.float32)
    ((uniform, normal, chosen),) = runs(make_model(nodes, {"p": (800,)}, ["u", "n", "b"]), {"p": half}, 1)
    assert {str(drawn.dtype) for drawn in (uniform, normal, chosen)} == {name}
    assert stats.kstest(uniform.astype(np.float64), "uniform", (-1, 4)).pvalue > 1e-4
    assert stats.kstest(normal.astype(np.float64), "norm", (1, 2)).pvalue > 1e-4
    assert stats.binomtest(int(chosen.astype(int).sum()), 800, 0.25).pvalue > 1e-4


def noisy(dims):
    nodes = [node("RandomUniformLike", "x", "u", seed=7.0), node("Add", "x u", "y")]
    return make_model(nodes, {"x": dims}, ["y"])


@pytest.mark.parametrize("dims", [(4, 9), ("n", 9), ("n", "m")])
def test_a_compiled_model_goes_on_with_its_stream(dims):
    """Whatever is known of the shapes; all code of a model draws from one generator."""
    torch = oracle("torch")
    generator = torch.Generator().manual_seed(7)
    model = weft.compile(noisy(dims))
    for rows in (4, 4, 4) if dims == (4, 9) else (4, 2, 4, 5):
        x = np.full((rows, 9), 3, np.float32)
        wanted = 3 + torch.rand(rows, 9, generator=generator)
        assert model.run({"x": x})[0].tolist() == wanted.tolist()


def test_threads_draw_from_one_stream():
    model = weft.compile(noisy((500,)))
    with ThreadPoolExecutor(4) as pool:
        found = np.concatenate([y for (y,) in pool.map(model.run, [{"x": np.zeros(500, np.float32)}] * 20)])
    torch = oracle("torch")
    wanted = torch.rand(10_000, generator=torch.Generator().manual_seed(7)).numpy()
    assert sorted(found.tolist()) == sorted(wanted.tolist())


def test_a_program_keeps_no_stream(tmp_path):
    with pytest.raises(Unsupported, match="random"):
        weft.compile(noisy((4,))).save(tmp_path / "model.weft")


@pytest.mark.parametrize("shape", [[1 << 40], [1 << 20, 1 << 20], [1 << 50]])
def test_more_numbers_than_memory(shape):
    model = make_model([node("RandomNormal", "", "y", shape=shape)], {}, ["y"])
    with pytest.raises(OutOfMemory):
        compiled(*from_onnx(model))


def dropout_model(outputs, ratio=0.25, **attrs):
    made = node("Dropout", "x ratio mode", " ".join(outputs), **attrs)
    given = {"ratio": np.float32(ratio), "mode": np.bool_(True)}
    return make_model([made], {"x": (6, 40)}, outputs, given)


@pytest.mark.parametrize("outputs", [["y"], ["y", "mask"]])
def test_dropout_in_training(rng, outputs):
    torch = oracle("torch")
    x = rng.standard_normal((6, 40)).astype(np.float32)
    with torch.random.fork_rng():
        torch.manual_seed(12)
        for found in runs(dropout_model(outputs, seed=12), {"x": x}):
            wanted = torch.nn.functional.dropout(torch.from_numpy(x), 0.25).numpy()
            np.testing.assert_allclose(found[0], wanted, rtol=1e-6)
            assert all((mask == (wanted != 0)).all() for mask in found[1:])


@pytest.mark.parametrize("opset", [1, 6])
def test_dropout_of_the_first_opsets(rng, opset):
    """It drops unless it is told that this is a test; the mask is of numbers, and says what was dropped."""
    x = rng.uniform(1, 2, (40, 50)).astype(np.float32)
    for_tests = {"is_test": 1, **({"consumed_inputs": [0]} if opset == 1 else {})}
    tested, made = (
        make_model([node("Dropout", "x", "y mask", ratio=0.3, **attrs)], {"x": x.shape}, ["y", "mask"], opset=opset)
        for attrs in (for_tests, {})
    )
    ((same, ones),) = runs(tested, {"x": x}, 1)
    assert (same == x).all()
    assert (ones.dtype, set(ones.flat)) == (np.float32, {1})
    ((dropped, mask),) = runs(made, {"x": x}, 1)
    np.testing.assert_allclose(dropped, x * mask / 0.7, rtol=1e-6)
    assert set(np.unique(mask)) == {0, 1}
    assert stats.binomtest(int(mask.sum()), x.size, 0.7).pvalue > 1e-4


def test_nodes_without_a_seed_differ():
    numbers = [node("RandomNormal", "", name, shape=[500], name=name) for name in ("a", "b")]
    symbol, params = from_onnx(make_model(numbers, {}, ["a", "b"]))
    assert sorted(params) == ["a_random_state", "b_random_state"]
    first, second = evaluate(symbol, params)
    for drawn in (first, second):
        assert stats.kstest(drawn, "norm").pvalue > 1e-9
    assert np.intersect1d(first, second).size < 20  # two of 500 floats may be the same


@pytest.mark.parametrize(
    ("op_type", "attrs"),
    [
        ("RandomUniform", {"low": 3.0, "high": 1.0}),
        ("RandomUniform", {"shape": [-2]}),
        ("RandomNormal", {"dtype": INT32}),
        ("RandomNormal", {"seed": float("nan")}),
        ("RandomNormal", {"scale": -1.0}),
        ("RandomNormal", {"dtype": onnx.TensorProto.STRING}),
    ],
)
def test_what_is_refused(op_type, attrs):
    model = make_model([node(op_type, "", "y", **{"shape": [2], **attrs})], {}, ["y"])
    with pytest.raises(Error):
        from_onnx(model)


def test_a_ratio_that_is_none_is_refused():
    for ratio in (1.5, -0.5, 1.0, float("nan")):
        with pytest.raises(Error, match="ratio"):
            from_onnx(dropout_model(["y"], ratio))


def test_runs_of_a_compiled_model_go_on_drawing(rng):
    """Of any shape, whether it was known when the model was compiled or not."""
    torch = oracle("torch")
    model = make_model([node("RandomUniformLike", "x", "y", seed=7.0)], {"x": ["n", 3]}, ["y"])
    for shape in (None, {"x": (2, 3)}):
        compiled_model, peer = weft.compile(model, shape=shape), torch.Generator().manual_seed(7)
        for _ in range(3):
            (drawn,) = compiled_model.run({"x": np.zeros((2, 3), "float32")})
            assert drawn.tolist() == torch.empty(2, 3).uniform_(0, 1, generator=peer).tolist()
