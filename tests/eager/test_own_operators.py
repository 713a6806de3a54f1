"""Operators that users register are functions of tensors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import weft
from weft.base.errors import RunError

CUBE = """
cube = Op.register("cube").describe("x * x * x").set_num_inputs(1)
cube.shape = lambda params, ins, outs: (ins, ins)
cube.reference = lambda x: x * x * x
cube.gradient = lambda ctx, g: [g * ctx.inputs[0] * ctx.inputs[0] * 3]
"""
USE = """
x = weft.tensor([1.0, 2.0], requires_grad=True)
y = weft.cube(x)
y.sum().backward()
print(y.tolist(), x.grad.tolist(), "cube" in dir(weft), weft.cube is weft.Op.get("cube"))
"""
BEGINNINGS = {
    "the public name": "import weft; from weft import Op",
    "before weft's own operators": "import weft; from weft.core.op import Op",
    "after tensors": "import weft; weft.ones(2).exp(); Op = weft.Op",
    "after symbols": "import weft; weft.symbol.Variable('x'); from weft.top import Op",
    "after asking in vain": "import weft; assert not hasattr(weft, 'cube'); Op = weft.Op",
}


def child(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_it_is_there_at_once(beginning):
    printed = child(f"{BEGINNINGS[beginning]}\n{CUBE}\n{USE}")
    assert printed == "[1.0, 8.0] [3.0, 12.0] True True"


@pytest.fixture(scope="module")
def quartic():
    op = weft.Op.register("t_quartic").set_num_inputs(1)
    op.shape = lambda params, ins, outs: (ins, ins)
    op.reference = lambda x: x**4
    op.gradient = lambda ctx, g: [g * ctx.inputs[0] * ctx.inputs[0] * ctx.inputs[0] * 4]
    return op


@pytest.mark.parametrize("count", [3, 40_000])
def test_gradients_of_gradients(quartic, count):
    values = np.random.default_rng(0).normal(size=count)
    x = weft.tensor(values, requires_grad=True)
    (slope,) = weft.autograd.grad(weft.t_quartic(x).sum(), x, create_graph=True)
    (bend,) = weft.autograd.grad(slope.sum(), x)
    np.testing.assert_allclose(slope.detach().numpy(), 4 * values**3, rtol=1e-6)
    np.testing.assert_allclose(bend.numpy(), 12 * values**2, rtol=1e-6)


def test_symbols_go_through_the_same_name(quartic):
    made = weft.t_quartic(weft.symbol.Variable("x"))
    model = weft.compile(made, shape={"x": (2,)})
    np.testing.assert_allclose(model(np.float32([1, 2]))[0], [1, 16])


def test_operators_are_attributes_of_their_module(quartic):
    assert weft.ops.t_quartic is weft.Op.get("t_quartic")
    assert {"t_quartic", "softsign", "conv2d"} <= set(dir(weft.ops))
    assert weft.ops.softsign(weft.tensor([1.0])).tolist() == [0.5]
    with pytest.raises(AttributeError, match=r"weft\.ops"):
        weft.ops.t_missing


def test_pytorchs_names_stay():
    done = child(
        "import weft\n"
        "op = weft.Op.register('logdet').set_num_inputs(1)\n"
        "op.reference = lambda x: x * 0 - 7\n"
        "print(weft.logdet(weft.eye(2)).item(), op(weft.ones(1)).item())"
    )
    assert done == "0.0 -7.0"


def test_operators_of_weft_are_no_functions_of_tensors():
    assert not hasattr(weft, "elemwise_add")
    assert not hasattr(weft, "_roi_align_grad")


def test_without_a_reference():
    weft.Op.register("t_only_named").set_num_inputs(1)
    with pytest.raises(RunError, match="t_only_named cannot be applied to tensors"):
        weft.t_only_named(weft.ones(2))
