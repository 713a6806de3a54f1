"""Modules as functions of their parameters, on many devices that are not there, and the names that weft.nn has."""

import numpy as np
import pytest
from oracles import oracle
from scenarios import Scenarios, affine, same_outcome

import weft
from weft import nn

scenario = Scenarios()


def tied(lib):
    """A module with a parameter of two names, in a module of two names, and a buffer that it replaces."""
    inner = affine(lib)

    class Tied(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner
            self.again = inner
            self.weight = inner.weight
            self.register_buffer("count", lib.zeros(2))

        def forward(self, x, k=1):
            self.count = self.count + 1
            return lib.nn.functional.linear(x, self.again.weight, self.inner.bias) * k + self.count

    return Tied()


def numbers(lib, *shape):
    return lib.from_numpy(np.random.default_rng(3).normal(size=shape).astype("float32"))


GIVEN = {
    "all": lambda lib: {"weight": numbers(lib, 2, 2), "inner.bias": numbers(lib, 2), "count": numbers(lib, 2)},
    "one": lambda lib: {"weight": numbers(lib, 2, 2)},
    "by another name": lambda lib: {"again.weight": numbers(lib, 2, 2)},
    "nothing": lambda lib: {},
    "a name that is new": lambda lib: {"nothing": numbers(lib, 2)},
    "a new name inside": lambda lib: {"inner.nothing": numbers(lib, 2)},
    "a path that is not there": lambda lib: {"nowhere.weight": numbers(lib, 2)},
    "a number": lambda lib: {"weight": 3},
}


@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", GIVEN)
def test_modules_are_called_with_other_tensors(name, strict, tie_weights):
    def program(lib):
        m, given = tied(lib), GIVEN[name](lib)
        own = [m.weight, m.inner.weight, m.inner.bias]
        x = lib.ones(1, 2)
        y = lib.func.functional_call(m, given, x, {"k": 2}, tie_weights=tie_weights, strict=strict)
        if lib is weft:  # PyTorch leaves what was given in modules that have two names
            assert all(a is b for a, b in zip(own, [m.weight, m.again.weight, m.again.bias]))
        return y, given, m.count, hasattr(m, "nothing"), hasattr(m.inner, "nothing")

    same_outcome(program)


@scenario
def gradients_reach_what_is_given(lib):
    m = tied(lib)
    given = {"weight": numbers(lib, 2, 2).requires_grad_()}
    (lib.func.functional_call(m, given, (lib.ones(1, 2),)) ** 2).sum().backward()
    return given["weight"].grad, m.weight.grad, m.inner.bias.grad


@scenario
def several_dictionaries(lib):
    given = [{"weight": numbers(lib, 2, 2)}, {"count": numbers(lib, 2)}]
    return lib.func.functional_call(tied(lib), given, lib.ones(1, 2)), given


@scenario
def dictionaries_with_the_same_keys(lib):
    return lib.func.functional_call(tied(lib), [{"count": lib.ones(2)}, {"count": lib.ones(2)}], lib.ones(1, 2))


@scenario
def no_dictionaries(lib):
    return lib.func.functional_call(tied(lib), 3, lib.ones(1, 2))


@scenario
def numbers_for_dictionaries(lib):
    return lib.func.functional_call(tied(lib), [3], lib.ones(1, 2))


@scenario
def states_are_stacked(lib):
    models = [lib.nn.Sequential(lib.nn.Linear(2, 3), lib.nn.BatchNorm1d(3)) for _ in range(2)]
    parameters, buffers = lib.func.stack_module_state(models)
    return parameters, buffers, parameters["0.weight"].is_leaf


@scenario
def no_models(lib):
    return lib.func.stack_module_state([])


@scenario
def models_in_other_modes(lib):
    return lib.func.stack_module_state([lib.nn.Sequential(), lib.nn.Sequential().eval()])


@scenario
def models_of_other_classes(lib):
    return lib.func.stack_module_state([lib.nn.Sequential(), lib.nn.ModuleList()])


@scenario
def models_that_train_other_parts(lib):
    a, b = (lib.nn.ParameterList([lib.ones(1)]) for _ in range(2))
    return lib.func.stack_module_state([a, b.requires_grad_(False)])


@scenario
def modules_on_devices_that_are_not_there(lib):
    m = lib.nn.DataParallel(affine(lib))
    return repr(m), m(lib.ones(1, 2)), list(m.state_dict()), m.device_ids


@pytest.mark.parametrize("name", scenario.programs)
def test_both_do_the_same(name):
    same_outcome(scenario.programs[name])


def test_tied_parameters_have_one_value():
    given = {"weight": weft.ones(2, 2), "again.weight": weft.zeros(2, 2)}
    with pytest.raises(ValueError, match="which are tied"):
        nn.utils.stateless.functional_call(tied(weft), given, weft.ones(1, 2))


def test_tied_parameters_may_be_given_twice():
    """PyTorch asks for all of their names then."""
    given = dict.fromkeys(["again.weight", "weight"], weft.zeros(2, 2))
    module = tied(weft)
    y = weft.func.functional_call(module, given, weft.ones(1, 2))
    np.testing.assert_array_equal(y.detach().numpy(), [module.inner.bias.detach().numpy() + 1])


def test_the_modules_own_come_back_after_errors():
    module = tied(weft)
    own = module.weight
    with pytest.raises(RuntimeError):
        weft.func.functional_call(module, {"weight": weft.ones(3, 5)}, (weft.ones(1, 2),))
    assert module.weight is module.inner.weight is own


def test_data_parallel_as_a_function():
    module = affine(weft)
    assert nn.parallel.data_parallel(module, weft.ones(1, 2)).tolist() == module(weft.ones(1, 2)).tolist()


@pytest.mark.parametrize("move", [lambda m: m.cuda(), lambda m: m.cuda(0), lambda m: m.xpu(), lambda m: m.to("cuda")])
def test_there_is_no_gpu(move):
    with pytest.raises(RuntimeError, match=r"CUDA device is needed|no device 'xpu'|none is available"):
        move(affine(weft))


def test_modules_are_not_compiled():
    with pytest.raises(NotImplementedError, match=r"weft\.compile"):
        affine(weft).compile()


def test_memory_that_processes_share():
    module = affine(weft).share_memory()
    assert all(tensor.is_shared() for tensor in [*module.parameters(), *module.buffers()])


def test_names():
    """All that PyTorch users import from nn is there, but for quantised layers, and nothing else."""
    theirs = oracle("torch").nn
    space = {}
    exec("from weft.nn import *", space)
    ours = {name for name in space if not name.startswith("__")}
    expected = {name for name in dir(theirs) if name[0] != "_"}
    absent = {"intrinsic", "qat", "quantizable", "quantized", "LinearCrossEntropyOptions"}
    assert ours == expected - absent
    assert ours <= set(dir(nn))
    for name in ("parametrize", "parametrizations", "stateless", "parameter"):
        ours_there = getattr(nn.utils, name, None) or getattr(nn, name)
        theirs_there = getattr(theirs.utils, name, None) or getattr(theirs, name)
        assert set(theirs_there.__all__) <= set(dir(ours_there))
    assert set(theirs.utils.__all__) <= set(dir(nn.utils))
