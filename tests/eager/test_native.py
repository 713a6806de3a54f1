"""Eager calls by native code: results of the references (which others are checked with), by kernels
that serve all sizes, chosen by sizes alone, with the same bits for any number of threads."""

from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from codegen.guard import guarded
from native_cases import CASES, as_list
from oracles import oracle

import weft
from weft.base.cpu_facts import ThreadFacts
from weft.base.kept import Kept
from weft.compiler.open import programs as open_programs
from weft.core.op import Op, list_op_names
from weft.eager.autograd.derivative import params_of
from weft.eager.dispatch import kernel_of
from weft.eager.native import attention as native_attention
from weft.eager.native import calls as native_calls
from weft.eager.native import generic as native_generic
from weft.eager.native import norm as native_norm
from weft.eager.native import pool as native_pool
from weft.eager.native import product as native_product
from weft.eager.native.calls import Declined
from weft.ops._families import F
from weft.runtime.cpu import open_program

CONTRACT = 5e-5  # of the output's largest magnitude

named = pytest.mark.parametrize("case", CASES, ids=[f"{number}-{case.name}" for number, case in enumerate(CASES)])


def agrees(found, expected):
    assert len(found) == len(expected)
    for got, wanted in zip(found, expected):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        scale = max(float(np.abs(wanted).max(initial=0)), 1e-3)
        assert float(np.abs(got.astype("float64") - wanted).max(initial=0)) <= CONTRACT * scale


@pytest.fixture
def two_threads():
    before = weft.get_num_threads()
    yield
    weft.set_num_threads(before)


@pytest.fixture
def no_programs(monkeypatch):
    """Nothing is compiled yet; what is then, by what it serves."""
    monkeypatch.setattr(native_generic, "_calls", Kept(native_generic.KEPT))
    monkeypatch.setattr(open_programs, "_programs", {})
    return open_programs._programs


def test_every_operator_of_the_tables_has_cases():
    families = {f"weft.eager.native.{family}" for family in ("attention", "norm", "pool", "reduce", "scan")}
    names = {name for name, row in native_calls._rows.items() if row.run.__module__ in families}
    names |= {op.name for op in map(Op.get, list_op_names()) if Op.joined_axes.contains(op)}
    assert len(names) > 40
    assert {case.name for case in CASES} >= {"lrn", "_window_sum", *names}


@named
def test_results_are_those_of_the_reference(case):
    for sizes in (*case.sizes, *case.others):
        arrays = case.arrays(sizes)
        agrees(case.native(arrays), case.reference(arrays))


@named
def test_few_kernels_serve_all_sizes(case, no_programs):
    """One, and another for rows of a few elements where those are reduced side by side."""
    for sizes in case.sizes:
        case.native(case.arrays(sizes))
    assert all(len(programs) <= 2 for programs in no_programs.values())


@named
def test_of_double_precision(case):
    arrays = case.arrays(case.sizes[0], "float64")
    agrees(case.native(arrays), case.reference(arrays))


@named
def test_bits_do_not_depend_on_threads(case, two_threads, monkeypatch):
    monkeypatch.setattr(open_program, "THREADS", ThreadFacts(wake=0.0))
    arrays = case.arrays(tuple(extent * 2 for extent in case.sizes[0]))
    results = []
    for threads in (1, 2):
        weft.set_num_threads(threads)
        results.append(case.native(arrays))
    for one, two in zip(*results):
        np.testing.assert_array_equal(one, two)


@named
def test_views_are_read_where_they_are(case):
    arrays = case.arrays(case.sizes[-1])
    swapped = [np.ascontiguousarray(a.swapaxes(0, -1)).swapaxes(0, -1) for a in arrays]
    spread = [np.repeat(a, 2, axis=-1)[..., ::2] for a in arrays]
    expected = case.reference(arrays)
    run = kernel_of(case.op).native
    for views in (swapped, spread):
        with suppress(Declined):
            agrees(as_list(run(params_of(case.op, case.attrs), views)), expected)


@named
def test_nothing_outside_the_arrays_is_touched(case, monkeypatch):
    def empty(shape, dtype=float, order="C"):
        filled = np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 77, dtype)
        return guarded(filled)

    watched = {"empty": empty, "empty_like": lambda x: empty(x.shape, x.dtype)}
    for module in (native_generic, native_attention, native_norm, native_pool, native_product):
        monkeypatch.setattr(module, "np", SimpleNamespace(**{**vars(np), **watched}))
    arrays = case.arrays(case.sizes[1])
    agrees(case.native([guarded(a) for a in arrays]), case.reference(arrays))
    agrees(case.native([guarded(a, front=True) for a in arrays]), case.reference(arrays))


@named
def test_empty_arrays_are_left_to_the_reference(case):
    arrays = case.arrays((0, *case.sizes[0][1:]))
    with pytest.raises(Declined, match="empty"):
        kernel_of(case.op).native(params_of(case.op, case.attrs), arrays)


def test_choice_depends_on_sizes_and_dtypes():
    op = Op.get("softmax")
    kernel = kernel_of(op)
    assert kernel.native_from == op.native_from == 64
    half = np.zeros((256, 256), "float16")
    with pytest.raises(Declined, match="dtype"):
        kernel.native(params_of(op, {"axis": 1}), [half])


def test_infinite_gradients_stay_where_they_are():
    op = Op.get("_resize_grad")
    params = params_of(op, {"size": (9, 12), "coordinate_mode": "half_pixel"})
    rng = np.random.default_rng(4)
    g, x = (rng.standard_normal(s).astype("float32") for s in ((2, 3, 9, 12), (2, 3, 20, 7)))
    g[1, 2, 4, 5] = np.inf
    expected = op.call_with(Op.reference[op], params, g, x)
    (found,) = as_list(kernel_of(op).native(params, [g, x]))
    assert np.isinf(expected).sum() < 9
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_arrays_that_do_not_fit_are_refused():
    x, short = weft.ones(64, 300), weft.ones(299)
    with pytest.raises(weft.Error):
        F.layer_norm(x, gamma=short, beta=short)
    g, image = weft.ones(2, 4, 30, 30), weft.ones(2, 4, 64, 64)
    with pytest.raises(weft.Error):
        F._max_pool2d_grad(g, image, g, pool_size=(2, 2), strides=(2, 2))


def test_running_statistics_are_updated_where_they_are():
    torch = oracle("torch")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((8, 4, 40, 40)) * 2 + 1, rng.random(4) + 1, rng.random(4)]
    results = []
    for library in (weft, torch):
        x, weight, bias = (library.from_numpy(a.astype("float32")) for a in arrays)
        mean, var = library.zeros(4), library.ones(4)
        y = library.nn.functional.batch_norm(x, mean, var, weight, bias, training=True)
        results.append([t.numpy() for t in (y, mean, var)])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)


def test_gradients_agree_with_pytorch():
    torch = oracle("torch")
    rng = np.random.default_rng(1)
    x, scale, shift = (rng.standard_normal(n).astype("float32") for n in ((4, 8, 33, 31), 8, 8))
    results = []
    for library in (weft, torch):
        f = library.nn.functional
        given = [library.from_numpy(a.copy()).requires_grad_() for a in (x, scale, shift)]
        y = f.batch_norm(given[0], None, None, given[1], given[2], training=True)
        y = f.max_pool2d(f.group_norm(y, 4), 3, stride=2, padding=1)
        y = f.avg_pool2d(f.softmax(y, 1), 2).mean((2, 3))
        f.layer_norm(y, (8,)).pow(3).sum().backward()
        results.append([t.grad.numpy() for t in given])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, atol=5e-5 * np.abs(theirs).max())


def test_waits_are_told_under_debug(capfd, monkeypatch, no_programs):
    monkeypatch.setenv("WEFT_DEBUG", "dispatch")
    monkeypatch.setenv("WEFT_CACHE", "0")
    x = np.random.default_rng(2).standard_normal((300, 300)).astype("float32")
    softmax = Op.get("softmax")
    params = params_of(softmax, {"axis": 1})
    native_generic.run_generic(softmax, params, [x])
    assert "compiled softmax for eager calls in" in capfd.readouterr().err
    native_generic.run_generic(softmax, params, [x[1:]])
    assert capfd.readouterr().err == ""
