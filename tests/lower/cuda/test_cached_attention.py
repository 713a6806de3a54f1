"""Attention over a cache on GPUs: the interpreter's answers against numpy's in float64, for any number of tokens that
the cache has, and what ptxas makes of the kernels."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np
import pytest
from codegen.cuda.ptxas import assembled
from lower.cuda.group_runs import interpreted

import weft.ops  # noqa: F401
from weft.base.cuda_target import CudaTarget
from weft.base.dtype import as_dtype
from weft.codegen.cuda.compile import CODEGEN
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.op import Op
from weft.core.symbol import Variable
from weft.lower.cuda.dispatch import LOWERING
from weft.passes.fuse import fusible_groups
from weft.te.interpret import run_kernel
from weft.testing.kernel_cases import check_case

TARGET = CudaTarget()
NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
NAMES = ("query", "key", "value", "keys", "values", "past", "layer")


def given(rows, shared, repeat, width, blocks, past, *, layers=2, layer=1, dtype="float32", cache=None, seed=0):
    """Random inputs; what the cache has behind its tokens, and of other layers, is NaN."""
    rng = np.random.default_rng(seed)
    drawn = lambda kind, *shape: (1.5 * rng.standard_normal(shape)).astype(NUMPY[kind])
    arrays = [drawn(dtype, rows, n * width) for n in (shared * repeat, shared, shared)]
    held = cache or dtype
    keys, values = drawn(held, blocks, layers, shared, width, 16), drawn(held, blocks, layers, shared, 16, width)
    there = min(past, blocks * 16)
    for number in range(there, blocks * 16):
        keys[number // 16, :, :, :, number % 16] = values[number // 16, :, :, number % 16] = np.nan
    for other in range(layers):
        if other != min(max(layer, 0), layers - 1):
            keys[:, other] = values[:, other] = np.nan
    numbers = [np.array([past], np.int64), np.array([layer], np.int64)]
    return dict(zip(NAMES, [*arrays, keys, values, *numbers]))


def wanted(arrays, scale=None):
    """Token by token, head by head."""
    q, k, v, keys, values = (arrays[name].astype(np.float64) for name in NAMES[:5])
    blocks, layers, shared, width, _ = keys.shape
    past, layer = min(max(int(arrays["past"][0]), 0), blocks * 16), min(max(int(arrays["layer"][0]), 0), layers - 1)
    made = np.empty(q.shape)
    repeat = q.shape[1] // (shared * width)
    for head in range(shared * repeat):
        own = head // repeat
        columns = slice(own * width, (own + 1) * width)
        old_k = [keys[t // 16, layer, own, :, t % 16] for t in range(past)]
        old_v = [values[t // 16, layer, own, t % 16] for t in range(past)]
        for row in range(len(q)):
            seen_k = np.array(old_k + list(k[: row + 1, columns]))
            seen_v = np.array(old_v + list(v[: row + 1, columns]))
            scores = seen_k @ q[row, head * width : (head + 1) * width] * (scale or width**-0.5)
            e = np.exp(scores - scores.max())
            made[row, head * width : (head + 1) * width] = e @ seen_v / e.sum()
    return made


def attention(**attrs):
    return Op.get("cached_attention")(*map(Variable, NAMES), **attrs)


def unset(buffer):
    """What kernels pass on, before."""
    return np.full(int(buffer.shape[0].value), np.nan if buffer.dtype.kind == "f" else -1, buffer.dtype)


def kernels_of(arrays, target):
    graph = Graph(attention().outputs)
    dtypes = {name: as_dtype(array.dtype) for name, array in arrays.items()}
    graph = infer(graph, {name: array.shape for name, array in arrays.items()}, dtypes)
    (group,) = fusible_groups(graph, dense=LOWERING.dense)
    return [lowered.kernel for lowered in LOWERING.lower(group, graph.fact, target)]


# rows, heads with keys, heads for each, columns, blocks of the cache, tokens in it
SLOW = pytest.mark.slow
CASES = [
    pytest.param((1, 1, 1, 8, 9, 77), {}, marks=SLOW),  # several chunks, the last one short
    ((1, 1, 1, 64, 2, 32), {}),  # full; columns in several turns
    ((1, 1, 3, 12, 3, 0), {}),  # nothing yet; threads without a column
    pytest.param((1, 2, 2, 7, 5, 65), {}, marks=SLOW),  # no vectors of values
    pytest.param((3, 1, 2, 4, 9, 140), {}, marks=SLOW),  # heads that share keys, several tokens
    pytest.param((11, 1, 1, 4, 2, 5), {"dtype": "float16"}, marks=SLOW),  # more lines than a block has
    pytest.param((2, 1, 2, 16, 6, 81), {"dtype": "bfloat16"}, marks=SLOW),
    ((1, 1, 2, 8, 3, 33), {"cache": "float16"}),  # of other floats than what is new
    pytest.param((2, 1, 1, 8, 3, 33), {"dtype": "float16", "cache": "float32"}, marks=SLOW),
    pytest.param((1, 1, 9, 4, 2, 17), {"dtype": "float16"}, marks=SLOW),  # two blocks for the heads of a key
    ((1, 1, 1, 4, 1, 99), {"layer": 7}),  # numbers beyond what there is
    ((1, 1, 1, 4, 1, -3), {"layer": -7}),
]


@pytest.mark.parametrize(("sizes", "more"), CASES)
def test_attention(sizes, more):
    arrays = given(*sizes, **more)
    got, kernels = interpreted(attention(), TARGET, arrays)
    assert [kernel.resident > 0 for kernel in kernels] == [True, True]
    check_case(got, wanted(arrays), more.get("dtype", "float32"))


def test_a_factor_that_is_given():
    arrays = given(2, 1, 1, 4, 2, 20)
    check_case(interpreted(attention(scale=0.7), TARGET, arrays)[0], wanted(arrays, 0.7), "float32")


@pytest.mark.slow
@pytest.mark.parametrize("past", [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 159, 160])
def test_one_program_serves_every_length(past):
    """The same kernels, by a number that they read; tiles of a chunk, chunks and blocks of the cache end anywhere."""
    arrays = given(2, 1, 2, 8, 10, past, seed=past)
    check_case(interpreted(attention(), TARGET, arrays)[0], wanted(arrays), "float32")


@pytest.mark.slow
def test_several_tiles_of_a_chunk(monkeypatch):
    monkeypatch.setattr("weft.lower.cuda.mixing.TILE", 32)
    monkeypatch.setattr("weft.lower.cuda.mixing.BLOCKS", 2)
    for past in (40, 100):
        arrays = given(2, 1, 1, 4, 7, past)
        arrays["keys"] *= np.linspace(0.1, 4, 7, dtype="float32")[:, None, None, None, None]  # largest scores grow
        check_case(interpreted(attention(), TARGET, arrays)[0], wanted(arrays), "float32")


@pytest.mark.slow
def test_new_tokens_of_several_chunks(monkeypatch):
    monkeypatch.setattr("weft.lower.cuda.mixing.LEAST_KEYS", 32)
    arrays = given(37, 1, 1, 2, 3, 20)
    check_case(interpreted(attention(), TARGET, arrays)[0], wanted(arrays), "float32")


@pytest.mark.slow
def test_sums_repeat_to_the_bit():
    """Blocks and threads run in another order each time; a chunk is the same on a smaller GPU."""
    arrays, found = given(1, 1, 2, 8, 9, 130), []
    for seed, target in ((0, TARGET), (1, TARGET), (5, TARGET.changed(sms=7))):
        memory = {name: arrays[name].reshape(-1) for name in NAMES}
        places = dict(zip([f"b{n}" for n in range(8)], [*memory.values(), np.empty(16, np.float32)]))
        for kernel in kernels_of(arrays, target):
            for each in kernel.buffers:
                places.setdefault(each.name, unset(each))
            run_kernel(kernel, [places[each.name] for each in kernel.buffers], seed=seed)
        found.append(places["b7"])
    np.testing.assert_array_equal(found[1:], [found[0]] * 2)
    np.testing.assert_allclose(found[0], wanted(arrays).reshape(-1), rtol=1e-5, atol=1e-6)


def test_blocks_behind_the_tokens_do_nothing():
    """They write nothing, and the second kernel reads nothing of theirs."""
    arrays = given(1, 1, 1, 4, 12, 10)
    chunks, whole = kernels_of(arrays, TARGET)
    passed = {}
    for kernel in (chunks, whole):
        memory = dict(zip([f"b{n}" for n in range(8)], [*(a.reshape(-1) for a in arrays.values()), np.zeros(4, "f4")]))
        for each in kernel.buffers:
            passed.setdefault(each.name, memory.get(each.name, unset(each)))
        run_kernel(kernel, [passed[each.name] for each in kernel.buffers])
    assert np.isfinite(passed["tops"]).tolist() == [True, True, False, False]  # the new token, 64 tokens, 64, 64
    np.testing.assert_allclose(passed["b7"], wanted(arrays)[0], rtol=1e-5)


def test_a_grid_fills_a_gpu():
    """Blocks for every head and chunk of the room, and one for the new token; heads that share keys share blocks."""
    blocks = lambda arrays: CODEGEN.code(k := kernels_of(arrays, TARGET)[0], assembly(k, TARGET)).launch.blocks[0]
    assert blocks(given(1, 12, 1, 64, 64, 0, layers=1)) == 12 * 17
    assert blocks(given(1, 8, 4, 16, 256, 0, layers=1)) == 8 * 65
    assert blocks(given(1, 2, 16, 16, 4, 0, layers=1)) == 2 * 2 * 2


def test_no_rows_and_wide_heads_have_kernels():
    arrays = given(1, 1, 1, 260, 1, 3)
    got, kernels = interpreted(attention(), TARGET, arrays)
    assert [kernel.resident for kernel in kernels] == [0, 0]
    check_case(got, wanted(arrays), "float32")


def assembly(kernel, target):
    return CODEGEN.assemble(CODEGEN.emit(kernel, target), target)


SIZES = [
    (1, 12, 1, 64, 64),  # gpt2
    (32, 12, 1, 64, 64),
    (1, 8, 4, 128, 256),  # llama
    (128, 8, 4, 128, 256),
    (1, 2, 8, 256, 8),
    (5, 2, 3, 33, 8),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_ptx(sizes, dtype, tmp_path):
    arrays = given(*sizes[:4], 1, past=0, layers=1, dtype=dtype)
    room = {name: np.broadcast_to(arrays[name], (sizes[4], *arrays[name].shape[1:])) for name in NAMES[3:5]}
    for arch in ("sm_80", "sm_90a"):
        target = TARGET.changed(arch=arch)
        for kernel in kernels_of({**arrays, **room}, target):
            code = CODEGEN.code(kernel, assembly(kernel, target))
            text = code.code.decode()
            vectors = text.count(".v4.b32") + text.count(".v4.f32") + text.count(".v2.b64") + text.count(".v8.b16")
            assert ".local" not in text, "a stack"
            assert vectors or sizes[3] % 8
            made = assembled(code.code, target.arch, tmp_path)
            assert made.spilled == 0, made.log
            assert made.stack == 0, made.log
            assert made.registers * prod(code.launch.threads) * kernel.resident <= target.registers
