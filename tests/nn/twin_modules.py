"""A module of weft and the one of PyTorch that has its name, made and run alike.

    compare("Linear", 3, 4, bias=False, inputs=(array,))

compares initial parameters after manual_seed(0), texts, states, outputs, gradients with random cotangents, what a call
leaves in buffers, in training and in use, and copies by pickle and deepcopy.
"""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from oracles import oracle

import weft

MODES = (True, False)  # of training


def compare(
    build: str | Callable[[Any], Any],
    *args: Any,
    inputs: Sequence[Any] = (),
    named_inputs: Mapping[str, Any] | None = None,
    modes: Sequence[bool] = MODES,
    randomised: bool = True,
    gradients: bool = True,
    pickled: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    **kwargs: Any,
) -> tuple[Any, Any]:
    """Builds both modules and compares everything about them; (weft's, PyTorch's) for what else a test asks.

    `build` is the name of a class in `nn`, or a function of the library (`weft` or `torch`) that gives a module.
    Arguments and inputs hold numpy arrays, which become tensors (floats get gradients as inputs), and functions of
    the library for what is the library's own: `dtype=lambda lib: lib.float64`. Where `randomised`, parameters are
    random before the calls, since those of a fresh module are often zeros and ones. Classes that are made in a
    function cannot be `pickled`.
    """
    ours, theirs = made_alike(build, *args, **kwargs)
    same_text(ours, theirs)
    same_state(ours, theirs, rtol=1e-6, atol=1e-6)
    if randomised:
        randomise(ours, theirs)
    for mode in modes:
        ours.train(mode), theirs.train(mode)
        same_call(ours, theirs, inputs, named_inputs or {}, gradients, rtol, atol)
        same_state(ours, theirs, rtol, atol)
    same_copies(ours, inputs, named_inputs or {}, pickled)
    return ours, theirs


def made_alike(build: str | Callable[[Any], Any], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """The module of each library, built after the same seed."""
    return tuple(_built(library, build, args, kwargs) for library in (weft, oracle("torch")))  # type: ignore[return-value]


def _built(library: Any, build: str | Callable[[Any], Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    library.manual_seed(0)
    if not isinstance(build, str):
        return build(library)
    return getattr(library.nn, build)(*tensors(args, library), **tensors(dict(kwargs), library))


def tensors(value: Any, library: Any, trained: bool = False) -> Any:
    """The value with tensors of a library for its arrays."""
    if isinstance(value, np.ndarray):
        made = library.from_numpy(value.copy())
        return made.requires_grad_() if trained and value.dtype.kind in "fc" else made
    if isinstance(value, dict):
        return {key: tensors(part, library, trained) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(tensors(part, library, trained) for part in value)
    return value(library) if callable(value) else value


def same_text(ours: Any, theirs: Any) -> None:
    assert repr(ours) == re.sub(r"\btorch\.", "weft.", repr(theirs))


def array_of(tensor: Any) -> np.ndarray:
    """The elements of a tensor of either library; bfloat16 as float32."""
    tensor = tensor.detach()
    return (tensor.float() if str(tensor.dtype).endswith("bfloat16") else tensor).numpy()


def same_tensor(ours: Any, theirs: Any, rtol: float, atol: float, where: str = "") -> None:
    assert str(ours.dtype).partition(".")[2] == str(theirs.dtype).partition(".")[2], where
    assert tuple(ours.shape) == tuple(theirs.shape), where
    np.testing.assert_allclose(array_of(ours), array_of(theirs), rtol, atol, err_msg=where)


def same_state(ours: Any, theirs: Any, rtol: float, atol: float) -> None:
    """Keys in order, versions, values; which parameters there are and which are trained."""
    mine, other = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(other)
    assert mine._metadata == other._metadata
    for key, value in mine.items():
        if isinstance(value, weft.Tensor):
            same_tensor(value, other[key], rtol, atol, key)
    trained = [[(name, p.requires_grad) for name, p in module.named_parameters()] for module in (ours, theirs)]
    assert trained[0] == trained[1]
    assert [name for name, _ in ours.named_buffers()] == [name for name, _ in theirs.named_buffers()]


def randomise(ours: Any, theirs: Any, seed: int = 0) -> None:
    """Puts the same random numbers into both: parameters around zero, buffers (variances among them) above it."""
    rng = np.random.default_rng(seed)
    torch = oracle("torch")
    for kind, draw in (("named_parameters", _around_zero), ("named_buffers", _above_zero)):
        others = dict(getattr(theirs, kind)())
        for name, tensor in getattr(ours, kind)():
            if tensor.is_floating_point() and tensor.numel():
                numbers = draw(rng, tuple(tensor.shape))
                tensor.data.copy_(weft.from_numpy(numbers))
                others[name].data.copy_(torch.from_numpy(numbers))


def _around_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.normal(0, 0.5, shape))


def _above_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(rng.uniform(0.5, 1.5, shape))


def same_call(
    ours: Any,
    theirs: Any,
    inputs: Any,
    named_inputs: Any,
    gradients: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> None:
    """Outputs, and gradients of inputs and parameters with random cotangents."""
    torch = oracle("torch")
    given, results = [], []
    for library, module in ((weft, ours), (torch, theirs)):
        arguments = tensors((list(inputs), dict(named_inputs)), library, trained=gradients)
        library.manual_seed(1)
        given.append(arguments)
        results.append(module(*arguments[0], **arguments[1]))
    mine, others = leaves(results[0]), leaves(results[1])
    assert len(mine) == len(others)
    for number, (value, other) in enumerate(zip(mine, others)):
        _same_leaf(value, other, rtol, atol, f"output {number}")
    if not gradients:
        return
    ours.zero_grad(), theirs.zero_grad()
    rng = np.random.default_rng(1)
    pairs = [(a, b) for a, b in zip(mine, others) if isinstance(a, weft.Tensor) and b.requires_grad]
    cotangents = [np.asarray(rng.normal(size=tuple(a.shape))).astype(array_of(a).dtype) for a, _ in pairs]
    for library, place in ((weft, 0), (torch, 1)):
        outputs = [pair[place] for pair in pairs]
        if outputs:
            grads = [library.from_numpy(c).to(output.dtype) for c, output in zip(cotangents, outputs)]
            library.autograd.backward(outputs, grads)
    for number, (a, b) in enumerate(zip(leaves(given[0]), leaves(given[1]))):
        if isinstance(a, weft.Tensor):
            _same_grad(a, b, rtol, atol, f"input {number}")
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
        _same_grad(a, b, rtol, atol, name)


def _same_leaf(ours: Any, theirs: Any, rtol: float, atol: float, where: str) -> None:
    if isinstance(ours, weft.Tensor):
        same_tensor(ours, theirs, rtol, atol, where)
        assert ours.requires_grad == theirs.requires_grad, where
    else:
        assert ours == theirs, where


def _same_grad(ours: Any, theirs: Any, rtol: float, atol: float, where: str) -> None:
    assert (ours.grad is None) == (theirs.grad is None), where
    if ours.grad is not None:
        same_tensor(ours.grad, theirs.grad, rtol, atol, f"gradient of {where}")


def leaves(value: Any) -> list[Any]:
    """What a nest of tuples, lists and dictionaries holds, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def same_copies(ours: Any, inputs: Any, named_inputs: Any, pickled: bool = True) -> None:
    """Copies by deepcopy and pickle are equal, run alike, and share nothing with the module."""
    ours.eval()
    expected = _run(ours, inputs, named_inputs)
    for twin in [copy.deepcopy(ours), *([pickle.loads(pickle.dumps(ours))] if pickled else [])]:
        assert type(twin).__qualname__ == type(ours).__qualname__
        assert repr(twin) == repr(ours)
        for (key, value), (other_key, other) in zip(ours.state_dict().items(), twin.state_dict().items(), strict=True):
            assert key == other_key
            if isinstance(value, weft.Tensor):
                np.testing.assert_array_equal(array_of(value), array_of(other), err_msg=key)
                assert value.numel() == 0 or not np.shares_memory(array_of(value), array_of(other))
        for value, other in zip(expected, _run(twin, inputs, named_inputs), strict=True):
            if isinstance(value, weft.Tensor):
                np.testing.assert_array_equal(array_of(value), array_of(other))


def _run(module: Any, inputs: Any, named_inputs: Any) -> list[Any]:
    weft.manual_seed(1)
    return leaves(module(*tensors(list(inputs), weft), **tensors(dict(named_inputs), weft)))


def refused_alike(call: Callable[[Any], Any], assertion: type[Exception] = AssertionError) -> None:
    """What PyTorch refuses, weft refuses with the same builtin error; another may stand for failed assertions."""
    with pytest.raises(Exception) as theirs:
        call(oracle("torch"))
    kind = next(kind for kind in type(theirs.value).__mro__ if kind.__module__ == "builtins")
    with pytest.raises(assertion if kind is AssertionError else kind):
        call(weft)


def refused_by_weft(call: Callable[[Any], Any]) -> None:
    """What PyTorch refuses, weft refuses with an error of its own that is one of PyTorch's kind, too."""
    with pytest.raises(Exception) as expected:
        call(oracle("torch"))
    with pytest.raises(weft.Error) as got:
        call(weft)
    assert isinstance(got.value, expected.type)
