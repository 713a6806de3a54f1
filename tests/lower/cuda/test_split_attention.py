"""Attention that splits keys into chunks: the interpreter's answers against numpy's in float64, what ptxas makes of the
kernels, and when the template is chosen."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import ml_dtypes
import numpy as np
import pytest
from codegen.cuda.ptx_text import loads_at_once
from codegen.cuda.ptxas import assembled
from lower.cuda.group_runs import interpreted

import weft.ops  # noqa: F401
from weft.base.cuda_target import CudaTarget
from weft.codegen.cuda.compile import CODEGEN
from weft.core.op import Op
from weft.core.symbol import Variable
from weft.te.interpret import run_kernel
from weft.te.loops import WholeKernel
from weft.testing.kernel_cases import check_case, run_case
from weft.testing.split_attention import SplitCase, split_cases

rng = np.random.default_rng(13)
TARGET = CudaTarget()
NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def drawn(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(NUMPY[dtype])


def ran(case, arrays, seed=0, target=TARGET):
    return run_case(case, target, arrays, lambda kernel, given: run_kernel(kernel, given, seed=seed))


@pytest.mark.parametrize(
    "case",
    [
        SplitCase(1, 1, 1, 70, 16, 8),  # two chunks, the last one short
        SplitCase(1, 1, 2, 66, 24, 40, "bfloat16", 2),  # heads that share keys; threads without a column
        SplitCase(2, 1, 3, 20, 7, 5, "float32"),  # one chunk, columns one by one
        SplitCase(1, 1, 9, 12, 8, 8, "float32"),  # more queries than a block has
        SplitCase(1, 1, 1, 1, 1, 1, "float32"),
        SplitCase(1, 1, 1, 130, 4, 4, "float32", masked=True),
        SplitCase(1, 2, 4, 70, 4, 4, "float32", causal=True),  # keys that no query sees are not read
        SplitCase(1, 1, 18, 18, 4, 4, "float32", causal=True),
    ],
    ids=str,
)
def test_attention(case):
    arrays = case.arrays(3)
    check_case(ran(case, arrays), case.wanted(arrays), case.dtype)


def test_several_tiles_of_a_chunk_scale_what_came_before(monkeypatch):
    monkeypatch.setattr("weft.lower.cuda.mixing.TILE", 32)
    monkeypatch.setattr("weft.lower.cuda.mixing.BLOCKS", 2)
    case = SplitCase(1, 1, 2, 150, 4, 4, "float32")
    arrays = case.arrays()
    arrays["key"][0, 0] *= np.linspace(0.1, 9, 150)[:, None]  # largest scores grow from tile to tile
    check_case(ran(case, arrays), case.wanted(arrays), "float32")


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [2, 10])
def test_tiles_that_no_query_of_a_block_sees_are_left_out(monkeypatch, blocks):
    monkeypatch.setattr("weft.lower.cuda.mixing.TILE", 32)
    monkeypatch.setattr("weft.lower.cuda.mixing.BLOCKS", blocks)
    monkeypatch.setattr("weft.lower.cuda.mixing.LEAST_KEYS", 32)
    case = SplitCase(1, 1, 38, 40, 2, 2, "float32", causal=True)
    arrays = case.arrays()
    check_case(ran(case, arrays), case.wanted(arrays), "float32")
    arrays["value"][0, 0, 33:] = np.nan  # what no query before 33 reads
    got = ran(case, arrays)
    assert np.isnan(got[0, 0, 0, 33:]).all()
    check_case(got[..., :32, :], case.wanted(case.arrays())[..., :32, :], "float32")


def test_sums_repeat_to_the_bit():
    """Blocks and threads run in another order each time; a chunk is the same on a smaller GPU."""
    case = SplitCase(1, 1, 1, 100, 8, 8, "float32")
    arrays = case.arrays()
    results = [ran(case, arrays, seed) for seed in range(2)] + [ran(case, arrays, 5, TARGET.changed(sms=7))]
    np.testing.assert_array_equal(results[1:], [results[0]] * 2)


@pytest.mark.parametrize("unseen", ["nan", "zero", "clean"])
@pytest.mark.parametrize("keys", [40, 70])
def test_queries_that_see_no_key(unseen, keys):
    case = SplitCase(2, 1, 1, keys, 4, 4, "float32", masked=True, unseen=unseen)
    arrays = case.arrays()
    arrays["mask"][1] = -np.inf
    arrays["mask"][0, : keys // 2 + 30] = -np.inf  # a whole chunk of it
    arrays["mask"][0, -1] = 0
    wanted = case.wanted(arrays)
    assert np.isnan(wanted[1]).all() == (unseen == "nan")
    check_case(ran(case, arrays), wanted, "float32")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("unseen", ["nan", "zero", "clean"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["key", "value", "query"])
def test_what_is_not_finite(where, value, unseen):
    case = SplitCase(1, 1, 2, 66, 4, 4, "float32", unseen=unseen)
    arrays = case.arrays()
    row = {"query": (0, 0, 0, 1, 2), "key": (0, 0, 65, 2), "value": (0, 0, 65, 1)}[where]
    arrays[where][row] = value
    with np.errstate(invalid="ignore"):
        wanted = case.wanted(arrays)
    got = ran(case, arrays)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(wanted))
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(got[finite], wanted[finite], atol=1e-6)


# Operators


def attended(q, k, v, scale, seen=None, mask=0.0):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * scale + mask
    scores = scores if seen is None else np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ v


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("mask", ["none", "boolean", "additive"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_masks_of_the_operator(mask, dtype, arch):
    q, k, v = drawn(1, 2, 2, 6, dtype=dtype), drawn(1, 2, 9, 6, dtype=dtype), drawn(1, 2, 9, 6, dtype=dtype)
    given, seen, added = {"q": q, "k": k, "v": v}, None, 0.0
    if mask == "boolean":
        given["m"] = rng.random((1, 1, 2, 9)) > 0.4
        given["m"][0, 0, 1] = False
        seen = given["m"]
    elif mask == "additive":
        given["m"] = drawn(9, dtype=dtype)
        added = given["m"].astype(np.float64)
    made = Op.get("scaled_dot_product_attention")(*map(Variable, given), mask=mask)
    got, kernels = interpreted(made, TARGET.changed(arch=arch), given)
    assert [kernel.resident > 0 for kernel in kernels] == [True]
    check_case(got, attended(q, k, v, 6**-0.5, seen, added), dtype)


def strided(x, mask, shared, replaces=False):
    """Two tokens' heads in a packed projection, (batch, tokens, heads + 2 * shared, 8), with a mask for all keys."""
    batch, tokens, every, width = x.shape
    group = (every - 2 * shared) // shared
    line, step = every * width, width
    query = (0, tokens * line, group * step, step, line, 1)
    key, value = ((first * step, tokens * line, step, 0, line, 1) for first in (every - 2 * shared, every - shared))
    names = [Variable("x")] * 3 + [Variable("m")]
    return Op.get("_strided_attention")(
        *names, batch=(batch, shared, group), queries=tokens, keys=tokens, width=width, values=width, query=query,
        key=key, value=value, out_axes=(0, 3, 1, 2, 4), scale=0.4, masked=True, replaces=replaces, unseen="clean",
    )  # fmt: skip


@pytest.mark.parametrize("replaces", [False, True])
def test_heads_that_share_keys_are_read_where_they_lie(replaces):
    batch, tokens, shared, group, width = 2, 2, 2, 3, 8
    x = drawn(batch, tokens, shared * group + 2 * shared, width, dtype="float16")
    mask = drawn(batch, 1, 1, tokens, tokens, dtype="float16")
    mask[0, 0, 0, 1] = 0
    got, kernels = interpreted(strided(x, mask, shared, replaces), TARGET, {"x": x, "m": mask})
    assert [kernel.resident > 0 for kernel in kernels] == [True]
    heads = x.transpose(0, 2, 1, 3)
    q = heads[:, : shared * group].reshape(batch, shared, group, tokens, width)
    k, v = (heads[:, first : first + shared, None] for first in (shared * group, shared * group + shared))
    wide = mask.astype(np.float64).swapaxes(-1, -2)
    if replaces:
        scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) * 0.4
        weights = np.exp(np.where(wide == 0, scores, wide))
        wanted = weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64)
    else:
        wanted = attended(q, k, v, 0.4, mask=wide)
    check_case(got, wanted.transpose(0, 3, 1, 2, 4), "float16")


# When it is chosen


@pytest.mark.parametrize(
    ("queries", "dtype", "arch", "whole"),
    [
        (1, "float16", "sm_90a", False),
        (8, "float16", "sm_90a", False),
        (9, "float16", "sm_90a", True),
        (8, "float32", "sm_80", False),
        (9, "float32", "sm_90a", True),  # by single warps
        (9, "float32", "sm_80", True),
    ],
)
def test_few_queries_do_not_go_by_tensor_cores(queries, dtype, arch, whole):
    given = {name: drawn(1, 1, n, 8, dtype=dtype) for name, n in (("q", queries), ("k", 10), ("v", 10))}
    made = Op.get("scaled_dot_product_attention")(*map(Variable, given))
    got, kernels = interpreted(made, TARGET.changed(arch=arch), given)
    assert [isinstance(kernel.body, WholeKernel) for kernel in kernels] == [whole]
    check_case(got, attended(*given.values(), 8**-0.5), dtype)


def test_float64_goes_stage_by_stage():
    given = {name: rng.standard_normal((1, 1, 4, 6)) for name in "qkv"}
    got, kernels = interpreted(Op.get("scaled_dot_product_attention")(*map(Variable, given)), TARGET, given)
    assert len(kernels) > 2
    np.testing.assert_allclose(got, attended(*given.values(), 6**-0.5), rtol=1e-12)


def test_chunks_fill_a_gpu_and_read_keys_once():
    """Of one query of each head: blocks for every head and chunk; heads that share keys share blocks."""
    blocks = lambda case: CODEGEN.code(kernel := case.kernels(TARGET)[0], assembly(kernel, TARGET)).launch.blocks[0]
    alone = SplitCase(1, 32, 1, 4096, 128, 128)
    assert blocks(alone) == 512
    assert blocks(replace(alone, heads=8, group=4)) == 512
    assert blocks(replace(alone, keys=64)) == 32
    assert blocks(replace(alone, heads=1, keys=100)) == 2


# What the assembler makes of them


def assembly(kernel, target):
    return CODEGEN.assemble(CODEGEN.emit(kernel, target), target)


@pytest.mark.parametrize("group", [1, 4])
def test_loads_are_under_way_before_the_first_of_them_is_used(group):
    chunks, whole = SplitCase(1, 32 // group, 1, 4096, 128, 128, group=group).kernels(TARGET)
    assert loads_at_once(assembly(chunks, TARGET).decode()) >= 8
    assert loads_at_once(assembly(whole, TARGET).decode()) >= 4


CASES = [(kind, case) for kind, cases in split_cases().items() for case in cases]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "case"), CASES, ids=str)
def test_ptx(kind, case, tmp_path):
    for arch in ("sm_80", "sm_90a") if kind == "decode" else ("sm_90a",):
        target = TARGET.changed(arch=arch)
        for kernel in case.kernels(target):
            code = CODEGEN.code(kernel, assembly(kernel, target))
            text = code.code.decode()
            vectors = text.count(".v4.b32") + text.count(".v4.f32") + text.count(".v2.b64") + text.count(".v8.b16")
            assert ".local" not in text, "a stack"
            assert bool(vectors) or case.width % 8 or case.values % 8
            assert "mma" not in text
            made = assembled(code.code, target.arch, tmp_path)
            assert made.spilled == 0, made.log
            assert made.stack == 0, made.log
            assert made.registers * prod(code.launch.threads) * kernel.resident <= target.registers
