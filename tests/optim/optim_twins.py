"""The same small problem for weft and for PyTorch: parameters of odd shapes, gradients of random numbers."""

import numpy as np

SHAPES = [(3, 5), (7,), (), (2, 1, 3), (0, 2), (33, 9)]


def values(shapes, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return [_drawn(rng, shape, dtype) for shape in shapes]


def _drawn(rng, shape, dtype):
    drawn = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        drawn = drawn + 1j * rng.standard_normal(shape)
    return np.asarray(drawn).astype(dtype)


def parameters(library, arrays):
    return [library.nn.Parameter(library.tensor(array)) for array in arrays]


def train(library, optimizer, params, dtype, steps, seed=1, skip=lambda step, number: False):
    """Steps with random gradients that have something to do with the parameters."""
    rng = np.random.default_rng(seed)
    for step in range(steps):
        for number, p in enumerate(params):
            noise = _drawn(rng, tuple(p.shape), dtype)
            grad = noise + 0.3 * p.detach().numpy()
            p.grad = None if skip(step, number) else library.tensor(np.asarray(grad).astype(dtype))
        optimizer.step()


def assert_close(ours, theirs, tolerance):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    if theirs.size:
        assert np.abs(ours - theirs).max() <= tolerance * max(1.0, np.abs(theirs).max())


def assert_same_state(ours, theirs, tolerance):
    """Two state dicts: the same keys in the same order, and about the same numbers."""
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert [dict(group) for group in ours["param_groups"]] == [dict(group) for group in theirs["param_groups"]]
    assert list(ours["state"]) == list(theirs["state"])
    for number, state in theirs["state"].items():
        assert list(ours["state"][number]) == list(state)
        for name, value in state.items():
            mine = ours["state"][number][name]
            assert str(mine.dtype).split(".")[1] == str(value.dtype).split(".")[1]
            assert_close(mine.numpy(), value.numpy(), tolerance)
