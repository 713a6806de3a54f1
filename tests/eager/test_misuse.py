"""Calls with wrong arguments end with weft's own errors, which say what is wrong; errors of the
user's own functions stay what they are."""

import inspect

import pytest
from oracles import oracle

import weft
from weft.eager.functions.all import FUNCTIONS


class Odd:
    """No tensor, no number, nothing to iterate over."""


WRONG = (None, "a", Odd(), int, 1.5, ["a"], {})


def wrong_calls(function):
    """Each argument wrong by itself, the others tensors or left out."""
    tensor = weft.arange(4.0).reshape(2, 2)
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind in (0, 1)]
    needed = [p.name for p in parameters if p.default is p.empty]
    for value in WRONG:
        yield (value,), {}
        yield (tensor,), {"nonsense": value}
        for parameter in parameters:
            given = tuple(value if name == parameter.name else tensor for name in needed)
            yield given, {} if parameter.name in needed else {parameter.name: value}


def raw_errors(function):
    for args, kwargs in wrong_calls(function):
        try:
            function(*args, **kwargs)
        except weft.Error:
            continue
        except Exception as error:
            yield f"{type(error).__name__}: {error} {args} {kwargs}"


@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("space", FUNCTIONS)
def test_wrong_arguments_of_functions(space, part):
    for name in sorted(FUNCTIONS[space])[part::8]:
        assert list(raw_errors(FUNCTIONS[space][name])) == [], name


SPLITS = {
    "split": lambda m, t: m.split(t, "a"),
    "chunk": lambda m, t: m.chunk(t, "a"),
    "stack": lambda m, t: m.stack(3),
    "stack of numbers": lambda m, t: m.stack([1, 2]),
    "in place": lambda m, t: m.relu_(3),
    "a keyword": lambda m, t: m.relu(t, nonsense=3),
    "a dimension": lambda m, t: t.sum("a"),
    "too few": lambda m, t: m.dot(t),
    "a value": lambda m, t: m.full_like(t, "a"),
    "outputs": lambda m, t: m.autograd.backward(3),
    "a function": lambda m, t: m.autograd.functional.jacobian(3, t),
}


@pytest.mark.parametrize("case", SPLITS)
def test_wrong_types_are_type_errors(case):
    torch = oracle("torch")
    with pytest.raises(TypeError):
        SPLITS[case](torch, torch.ones(2, 2))
    with pytest.raises(weft.Error) as ours:
        SPLITS[case](weft, weft.ones(2, 2))
    assert isinstance(ours.value, TypeError)


def test_errors_of_the_users_functions_stay():
    def failing(value):
        return {}[value]

    with pytest.raises(KeyError) as raised:
        weft.ones(2).apply_(failing)
    assert not isinstance(raised.value, weft.Error)
    with pytest.raises(ZeroDivisionError) as divided:
        weft.autograd.functional.jacobian(lambda x: 1 // 0, weft.ones(2))
    assert not isinstance(divided.value, weft.Error)


def test_numbers_that_no_memory_holds():
    for call in (
        lambda: weft.tensor_split(weft.ones(2), 2**70),
        lambda: weft.mvlgamma(weft.ones(2), 2**70),
        lambda: weft.polygamma(2**70, weft.ones(2)),
        lambda: weft.nn.functional.adaptive_max_pool1d(weft.ones(1, 2), 2**70),
    ):
        with pytest.raises(ValueError, match="too large"):
            call()
