"""The same bits for any number of threads; right on every instruction set and at every level."""

from __future__ import annotations

import numpy as np
import pytest
from codegen.guard import guarded
from compiler.models import LEVELS, agree, branches, convolutional, floats

import weft
from weft import symbol as sym
from weft.base.cpu_target import host
from weft.base.errors import Unsupported

ISAS = ("sse", "avx2", "avx512")


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def target_of(isa):
    try:
        return host().with_isa(isa)
    except Unsupported as error:
        pytest.skip(str(error))


def attention(rng):
    """Products, softmax, layer norm and gelu on (2, 24, 32); (symbol, params)."""
    x = sym.Variable("x", shape=(2, 24, 32))
    scores = sym.softmax(sym.batch_matmul(x, sym.transpose(x, axes=(0, 2, 1))) * 0.2, axis=-1)
    y = sym.elemwise_add(sym.batch_matmul(scores, x), x)
    y = sym.layer_norm(y, sym.Variable("gamma"), sym.Variable("beta"), axis=-1)
    params = {"gamma": floats(rng, (32,)), "beta": floats(rng, (32,))}
    return sym.Group([y, sym.mean(y, axis=(0, 1)), sym.argmax(y, axis=2)]), params


MODELS = {
    "convolutional": (convolutional, (2, 3, 9, 9)),
    "attention": (attention, (2, 24, 32)),
    "branches": (branches, (2, 3, 9, 9)),
    "branches_of_one": (lambda rng: branches(rng, 1, 7), (1, 3, 7, 7)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("level", LEVELS)
def test_threads_do_not_change_a_bit(rng, name, level):
    make, shape = MODELS[name]
    model = make(rng)
    x = floats(rng, shape)
    results = [weft.compile(model, shape={"x": shape}, opt_level=level, threads=threads)(x) for threads in (1, 2, 4)]
    agree(results[0], model[0], {**model[1], "x": x})
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert one.tobytes() == two.tobytes()


def test_large_work_that_threads_really_share(rng):
    x = sym.Variable("x", shape=(300, 400))
    w = sym.Variable("w", shape=(350, 400))
    y = sym.dense(x, w, units=350, use_bias=False)
    symbol = sym.Group([sym.softmax(y), sym.sum(sym.exp(y * 0.01)), sym.tanh(x)])
    values = {"x": floats(rng, (300, 400)), "w": floats(rng, (350, 400))}
    alone = weft.compile(symbol, threads=1).run(values)
    agree(alone, symbol, values, 5e-5)
    for threads in (2, 3, 4):
        for one, two in zip(alone, weft.compile(symbol, threads=threads).run(values)):
            assert one.tobytes() == two.tobytes()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("level", LEVELS)
def test_instruction_sets(rng, isa, name, level):
    make, shape = MODELS[name]
    symbol, params = make(rng)
    x = floats(rng, shape)
    model = weft.compile((symbol, params), shape={"x": shape}, target=target_of(isa), opt_level=level)
    assert {kernel.isa for kernel in model.report().kernels} == {isa}
    agree(model(x), symbol, {**params, "x": x})


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("front", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_nothing_outside_is_touched_and_nothing_unset_is_read(rng, isa, front, name):
    """Inputs, outputs, constants and the arena end (or begin) at pages that may not be touched;
    outputs and arena are NaN before each run."""
    make, shape = MODELS[name]
    symbol, params = make(rng)
    model = weft.compile((symbol, params), shape={"x": shape}, target=target_of(isa), threads=2)
    x = floats(rng, shape)
    expected = model(x)
    executor = model._whole.executors[model.specialisations[0]]
    (space,) = executor._workspaces
    idle = executor._loaded.arenas._idle
    plain = idle.pop()
    assert not idle
    arena = guarded(np.full(plain.size, 255, np.uint8), front)
    executor._loaded.arenas.give(plain._replace(address=arena.__array_interface__["data"][0]))
    constants = [guarded(array.numpy(), front) for array in executor._loaded.constants]
    for slot, array in zip(executor._slots_of["constant"], constants):
        space.table[slot] = array.__array_interface__["data"][0]
    given = guarded(x, front)
    for _ in range(2):
        arena.fill(255)
        outputs = [guarded(np.full(e.nbytes, 255, np.uint8), front) for e in expected]
        views = [o.view(e.dtype).reshape(e.shape) for o, e in zip(outputs, expected)]
        executor.run_into([given], views)
        for got, value in zip(views, expected):
            assert got.tobytes() == value.tobytes()
