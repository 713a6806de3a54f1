"""Every differentiable operator through the autograd engine: gradients, and gradients of gradients,
against differences in float64 along random directions."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.eager.functions.all  # noqa: F401  dispatch and its tensors
from weft.base.dtype import is_float
from weft.core.op import Op, list_ops
from weft.eager.autograd.backward import grad
from weft.eager.autograd.derivative import Wanted, gradient_program, params_of
from weft.eager.dispatch import apply
from weft.eager.tensor.tensor import wrap

sys.path.insert(0, str(Path(__file__).parent.parent / "ops"))
from sample import all_samples, sampled_ops

for _path in sorted((Path(__file__).parent.parent / "ops").glob("samples_*.py")):
    importlib.import_module(_path.stem)

SAMPLES = 4  # of each operator
STEP = 1e-5
OPS = [op.name for op in list_ops() if op.name in sampled_ops() and Op.gradient.contains(op)]
# Gradients of these are right; differences are no witness of the second order, and why.
KINKED = {"abs", "sign"}


def wide(array):
    return array.astype("float64") if is_float(array.dtype) else array


def weights(rng, like):
    made = np.asarray(rng.standard_normal(like.shape))
    if like.dtype.kind == "c":
        made = np.asarray(made + 1j * rng.standard_normal(like.shape))
    return made


def chosen(name):
    """Small samples of an operator that ask for gradients."""
    found = [s for s in all_samples(name) if s.checked_inputs()]
    found = [s for s in found if sum(x.size for x in s.inputs) <= 4000]
    return found[:SAMPLES]


class Call:
    """An operator on a sample's inputs, as a function of those that gradients are checked for."""

    def __init__(self, name, sample):
        self.op = Op.get(name)
        self.params = params_of(self.op, dict(sample.attrs))
        self.arrays = [wide(x) for x in sample.inputs]
        self.checked = sample.checked_inputs()
        self.rng = np.random.default_rng(3)

    def tensors(self, moved=()):
        arrays = list(self.arrays)
        for position, step in zip(self.checked, moved):
            arrays[position] = arrays[position] + step
        made = [wrap(np.array(array)) for array in arrays]
        for position in self.checked:
            made[position].requires_grad_()
        return made

    def outputs(self, tensors):
        made = apply(self.op, self.params, tensors)[: self.op.visible_of(self.params)]
        return [out for out in made if out.requires_grad]

    def seeds(self, outputs):
        rng = np.random.default_rng(4)
        return [wrap(weights(rng, out._array)) for out in outputs]

    def first(self, moved=(), create_graph=False):
        """Gradients of the checked inputs, at the inputs or beside them."""
        tensors = self.tensors(moved)
        outputs = self.outputs(tensors)
        inputs = [tensors[position] for position in self.checked]
        grads = grad(outputs, inputs, self.seeds(outputs), create_graph=create_graph, materialize_grads=True)
        return inputs, grads

    def value(self, moved):
        outputs = self.outputs(self.tensors(moved))
        pairs = zip(outputs, self.seeds(outputs))
        return sum(float(np.sum(o._array * s._array.conj()).real) for o, s in pairs)

    def direction(self):
        return [np.asarray(self.rng.standard_normal(self.arrays[p].shape)) for p in self.checked]


def slope(function, direction):
    forward, back = ([sign * STEP * d for d in direction] for sign in (1, -1))
    return (function(forward) - function(back)) / (2 * STEP)


def check(actual, expected, what):
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-5, err_msg=what)


@pytest.mark.parametrize("name", OPS)
def test_first_order(name):
    for sample in chosen(name):
        call = Call(name, sample)
        if not call.outputs(call.tensors()):
            continue
        _, grads = call.first()
        for _ in range(2):
            direction = call.direction()
            moved = sum(float(np.sum(g._array * d)) for g, d in zip(grads, direction))
            check(moved, slope(call.value, direction), f"{name}: {sample}")


def twice(name, sample):
    """Whether all operators of the gradient have gradients themselves."""
    op = Op.get(name)
    params = params_of(op, dict(sample.attrs))
    inputs = len(sample.inputs)
    program = gradient_program(op, params, inputs, op.outputs_of(params))
    return all(Op.gradient.contains(step.op) for step in Wanted(program, (True,) * inputs).plan.steps)


@pytest.mark.parametrize("name", [name for name in OPS if name not in KINKED])
def test_second_order(name):
    for sample in chosen(name):
        call = Call(name, sample)
        if not twice(name, sample) or not call.outputs(call.tensors()):
            continue
        inputs, grads = call.first(create_graph=True)
        smooth = [g for g in grads if g.requires_grad]
        if not smooth:
            continue
        weights = [np.asarray(call.rng.standard_normal(g._array.shape)) for g in grads]
        chosen_weights = [wrap(w) for w, g in zip(weights, grads) if g.requires_grad]
        seconds = grad(smooth, inputs, chosen_weights, materialize_grads=True)

        def weighted(moved, call=call, weights=weights):
            _, made = call.first(moved)
            return sum(float(np.sum(g._array * w)) for g, w in zip(made, weights))

        direction = call.direction()
        moved = sum(float(np.sum(s._array * d)) for s, d in zip(seconds, direction))
        check(moved, slope(weighted, direction), f"{name}: {sample}")


VIEWING = [op.name for op in list_ops() if op.name in sampled_ops() and Op.views.contains(op)]
PASSING = [op.name for op in list_ops() if op.name in sampled_ops() and op.same_if_alike]


def reference(op, params, arrays):
    made = op.call_with(Op.reference[op], params, *arrays)
    return made if isinstance(made, (tuple, list)) else [made]


@pytest.mark.parametrize("name", VIEWING)
def test_views_show_what_the_reference_computes(name):
    op, shown = Op.get(name), 0
    for sample in all_samples(name):
        params = params_of(op, dict(sample.attrs))
        views = op.views(params, *sample.inputs)
        if views is None:
            continue
        for view, expected in zip(views, reference(op, params, sample.inputs), strict=True):
            np.testing.assert_array_equal(view, expected)
            shown += np.shares_memory(view, sample.inputs[0])
    assert shown


@pytest.mark.parametrize("name", PASSING)
def test_what_is_its_input_where_shapes_are_alike_is_that(name):
    op = Op.get(name)
    for sample in all_samples(name):
        x = sample.inputs[0]
        params = params_of(op, dict(sample.attrs))
        made = reference(op, params, [x] * len(sample.inputs))[0]
        np.testing.assert_array_equal(made, x)
