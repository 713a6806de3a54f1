"""Steps by one native call: that they are, what they leave alone, and where operators on tensors take over."""

import copy

import numpy as np
import pytest
from optim_twins import assert_close, values

import weft
from weft.eager.native.lists import places_of
from weft.lower.cpu.nests.lists import TURN

LONG = [(TURN * 40 + 17,), (3, 5), (TURN,), (0,), (1,)]


def leaves(arrays):
    return [weft.tensor(array, requires_grad=True) for array in arrays]


def batches(optimizer):
    return [[list(batch.members) for batch in plan.batches] for plan in optimizer._plans.values()]


def alone(optimizer):
    return [plan.alone for plan in optimizer._plans.values()]


def step(optimizer, params, grads):
    for p, g in zip(params, grads):
        p.grad = None if g is None else weft.tensor(g)
    optimizer.step()


@pytest.mark.parametrize("kind", ["SGD", "Adam", "Rprop", "ASGD"])
def test_both_ways_agree_on_arrays_of_many_turns(kind):
    made = []
    for foreach in (None, False):
        params = leaves(values(LONG, "float64"))
        optimizer = getattr(weft.optim, kind)(params, lr=0.1, foreach=foreach)
        for seed in range(3):
            step(optimizer, params, values(LONG, "float64", seed + 5))
        made.append((optimizer, params))
    (native, mine), (plain, its) = made
    assert (batches(native), alone(native)) == ([[[0, 1, 2, 4]]], [[3]])
    assert "_plans" not in vars(plain)
    for p, q in zip(mine, its):
        assert_close(p.detach().numpy(), q.detach().numpy(), 1e-12)


def test_turns():
    sizes = np.array([TURN + 1, 0, 3, 2 * TURN])
    assert places_of(sizes).tolist() == [[0, 0], [0, TURN], [2, 0], [3, 0], [3, TURN]]


def test_dtypes_have_a_call_each():
    kinds = ["float32", "float64", "float32", "complex64", "complex128"]
    arrays = [values([(4, 3)], kind, n)[0] for n, kind in enumerate(kinds)]
    params = leaves([*arrays, np.zeros(3, "float32")])
    params.append(weft.ones(3, dtype=weft.bfloat16, requires_grad=True))
    optimizer = weft.optim.Adam(params, lr=0.5)
    for p in params:
        p.grad = weft.ones_like(p).detach()
    optimizer.step()
    assert sorted(batches(optimizer)[0]) == [[0, 2, 3, 5], [1, 4]]
    assert alone(optimizer) == [[6]]
    for p, array in zip(params, [*arrays, np.zeros(3)]):
        real = 0.5 if array.dtype.kind == "f" else 0.5 + 0.0j
        moved = array - p.detach().numpy()
        assert_close(moved.real, np.full(array.shape, real).real, 1e-5)


def test_versions_are_counted_and_gradients_untouched():
    p = weft.tensor([1.0, 2.0], requires_grad=True)
    optimizer = weft.optim.SGD([p], lr=0.1, momentum=0.9)
    y = (p * p).sum()
    p.grad = weft.tensor([3.0, 4.0])
    grad, version = p.grad, p._version
    optimizer.step()
    assert p._version == version + 1
    assert optimizer.state[p]["momentum_buffer"]._version > 0
    assert p.grad is grad
    assert (grad.tolist(), grad._version) == ([3.0, 4.0], 0)
    with pytest.raises(RuntimeError, match="modified"):
        y.backward()


def test_counts_differ_where_gradients_did():
    params = leaves(values([(3,), (3,), (3,)], "float64"))
    ones = np.ones(3)
    optimizer = weft.optim.Adam(params, lr=0.1)
    for grads in ([ones, None, ones], [None, ones, ones], [ones, ones, ones]):
        step(optimizer, params, grads)
    assert [optimizer.state[p]["step"].item() for p in params] == [2, 2, 3]
    begin = values([(3,), (3,), (3,)], "float64")
    for p, q, steps in zip(params, begin, (2, 2, 3)):
        assert_close(p.detach().numpy(), q - 0.1 * steps, 1e-6)


def test_memory_that_is_not_plain_goes_by_tensors():
    base = weft.zeros(6)
    whole = weft.zeros(3, 4).t().requires_grad_()  # in another order
    view = base[:3].requires_grad_()
    plain = weft.zeros(3, requires_grad=True)
    optimizer = weft.optim.SGD([whole, view, plain], lr=1.0)
    for p in (whole, view, plain):
        p.grad = weft.ones_like(p).detach()
    optimizer.step()
    assert (batches(optimizer), alone(optimizer)) == ([[[2]]], [[0, 1]])
    assert base.tolist() == [-1.0] * 3 + [0.0] * 3
    assert (whole == -1).all()
    assert plain.tolist() == [-1.0] * 3


def test_parameters_that_share_memory_are_stepped_in_order():
    p = weft.zeros(4, requires_grad=True)
    q = weft.nn.Parameter(p.detach())
    optimizer = weft.optim.SGD([p, q], lr=1.0)
    p.grad, q.grad = weft.ones(4), weft.full((4,), 2.0)
    optimizer.step()
    assert batches(optimizer) == [[]]
    assert p.tolist() == [-3.0] * 4


def test_gradients_in_another_order():
    p = weft.zeros(2, 3, requires_grad=True)
    p.grad = weft.arange(6.0).reshape(3, 2).t()
    optimizer = weft.optim.SGD([p], lr=1.0)
    optimizer.step()
    assert batches(optimizer) == [[[0]]]
    assert p.tolist() == [[0.0, -2.0, -4.0], [-1.0, -3.0, -5.0]]


def test_memory_may_change_between_steps():
    p, q = leaves(values([(3,), (2,)], "float32"))
    optimizer = weft.optim.Adam([p, q], lr=0.1)
    ones = [np.ones(3, "float32"), np.ones(2, "float32")]
    step(optimizer, [p, q], ones)
    p.data = weft.full((3,), 5.0)
    optimizer.state[q]["exp_avg"] = weft.full((2,), 0.1)
    step(optimizer, [p, q], ones)
    assert_close(p.detach().numpy(), np.full(3, 4.9), 1e-5)
    state = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(state)
    step(optimizer, [p, q], ones)
    assert optimizer.state[p]["step"].item() == 3
    assert state["state"][0]["step"].item() == 2
    assert_close(p.detach().numpy(), np.full(3, 4.8), 1e-5)


def test_read_only_memory_is_refused():
    array = np.zeros(3, "float32")
    array.flags.writeable = False
    p = weft.from_numpy(array).requires_grad_()
    p.grad = weft.ones(3)
    with pytest.raises(RuntimeError, match="read-only"):
        weft.optim.SGD([p], lr=1.0).step()


def test_gradients_of_another_shape_are_refused():
    p = weft.zeros(3, requires_grad=True)
    p.grad = weft.ones(3)
    p.grad.resize_(2)
    for foreach in (None, False):
        with pytest.raises(RuntimeError, match="gradient of shape"):
            weft.optim.SGD([p], foreach=foreach).step()


def test_nan_is_not_lost():
    for kind in ("SGD", "Adam", "Adamax", "Rprop", "RMSprop", "Adagrad"):
        p = weft.zeros(3, requires_grad=True)
        optimizer = getattr(weft.optim, kind)([p])
        step(optimizer, [p], [np.array([1.0, np.nan, 1.0], "float32")])
        assert p.isnan().tolist() == [False, True, False], kind


def test_nothing_but_empty_parameters():
    p = weft.zeros(0, 3, requires_grad=True)
    optimizer = weft.optim.Adam([p])
    p.grad = weft.zeros(0, 3)
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 1
