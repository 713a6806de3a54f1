"""Parameters and modules whose sizes follow from the first input, as PyTorch has them."""

import copy
import pickle
import warnings

import pytest
from scenarios import Scenarios, same_outcome

import weft
from weft import nn
from weft.nn.modules.lazy import LazyModuleMixin

scenario = Scenarios()


def scales(lib):
    """A module with a matrix and a buffer, and the lazy one that becomes it."""
    mixin = lib.nn.modules.lazy.LazyModuleMixin

    class Scale(lib.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.size = size
            self.weight = lib.nn.Parameter(lib.ones(size))
            self.register_buffer("seen", lib.zeros(size))

        def forward(self, x, y=None):
            self.seen += 1
            return x * self.weight

        def extra_repr(self):
            return f"size={self.size}"

    class LazyScale(mixin, Scale):
        cls_to_become = Scale

        def __init__(self, **options):
            super().__init__(0)
            self.weight = lib.nn.UninitializedParameter(**options)
            self.seen = lib.nn.UninitializedBuffer()

        def initialize_parameters(self, x, y=None):
            if self.has_uninitialized_params():
                with lib.no_grad():
                    self.size = x.shape[-1]
                    self.weight.materialize((self.size,))
                    self.weight.fill_(3.0)
                    self.seen.materialize((self.size,))
                    self.seen.fill_(1.0)

    return Scale, LazyScale


def lazy(lib, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, on lazy modules as such
        return scales(lib)[1](**options)


@scenario
def sizes_follow_from_the_first_input(lib):
    m = lazy(lib)
    before = repr(m), m.has_uninitialized_params(), repr(m.weight), repr(m.seen), len(list(m.parameters()))
    y = m(lib.ones(2, 3), y=4)
    hooks = len(m._forward_pre_hooks), len(m._load_state_dict_pre_hooks)
    return before, y, repr(m), type(m).__name__, m.state_dict(), type(m.weight).__name__, hooks


@scenario
def sizes_follow_from_a_state(lib):
    m, source = lazy(lib), lazy(lib)
    source(lib.ones(4))
    keys = m.load_state_dict(source.state_dict())
    return keys, m.state_dict(), m.has_uninitialized_params(), type(m).__name__, m(lib.ones(4)), type(m).__name__


@scenario
def states_of_lazy_modules(lib):
    m = lazy(lib)
    state = m.state_dict()
    return list(state), state["weight"] is m.weight, lazy(lib).load_state_dict(state), type(state["seen"]).__name__


@scenario
def lazy_modules_are_converted(lib):
    m = lazy(lib).double()
    m(lib.ones(2, dtype=lib.float64))
    return m.weight, m.seen


@scenario
def dtypes_of_lazy_parameters(lib):
    m = lazy(lib, dtype=lib.float64, requires_grad=False)
    m(lib.ones(2))
    return m.weight, m.seen


@scenario
def modules_that_do_not_initialise(lib):
    class Forgetful(scales(lib)[1]):
        def initialize_parameters(self, x):
            pass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = Forgetful()
    return m(lib.ones(2))


@scenario
def modules_without_a_way_to_initialise(lib):
    class Wayless(lib.nn.modules.lazy.LazyModuleMixin, lib.nn.Module):
        pass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = Wayless()
    return m(lib.ones(2))


@scenario
def lazy_parameters(lib):
    p = lib.nn.UninitializedParameter(requires_grad=False)
    lazy_ones = [lib.nn.parameter.is_lazy(value) for value in (p, lib.nn.UninitializedBuffer(), lib.ones(1))]
    kinds = isinstance(p, lib.nn.Parameter), isinstance(lib.nn.UninitializedBuffer(), lib.nn.Buffer)
    flags = p.requires_grad, p.is_floating_point(), repr(p.device), str(p.dtype)
    p.materialize((2, 1), dtype=lib.float64)
    return lazy_ones, kinds, flags, p.shape, p.dtype, type(p).__name__


@scenario
def shapes_of_lazy_parameters(lib):
    try:
        return lib.nn.UninitializedParameter().shape
    except RuntimeError:
        return "refused"


@scenario
def arithmetic_with_lazy_parameters(lib):
    try:
        return lib.nn.UninitializedParameter() + 1
    except ValueError:
        return "refused"


@pytest.mark.parametrize("name", scenario.programs)
def test_both_do_the_same(name):
    same_outcome(scenario.programs[name])


USES = {
    "sum": lambda p: p.sum(),
    "matmul": lambda p: weft.ones(2, 2) @ p,
    "numel": lambda p: p.numel(),
    "numpy": lambda p: p.detach().numpy(),
    "item": lambda p: p.item(),
    "size": lambda p: p.size(),
    "fill_": lambda p: p.detach().fill_(1),
    "share_memory_": lambda p: p.share_memory_(),
}


@pytest.mark.parametrize("name", USES)
def test_tensors_without_size_are_not_used(name):
    with pytest.raises(RuntimeError, match="uninitialized parameter or buffer"):
        USES[name](nn.UninitializedParameter())


class Sized(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(weft.ones(1))

    def forward(self, x):
        return x * self.weight


class LazySized(LazyModuleMixin, Sized):
    cls_to_become = Sized

    def __init__(self):
        super().__init__()
        self.weight = nn.UninitializedParameter(dtype=weft.float64)

    def initialize_parameters(self, x):
        self.weight.materialize(x.shape)
        self.weight.data.fill_(2.0)


def test_lazy_modules_are_pickled():
    twin = pickle.loads(pickle.dumps(LazySized()))
    assert twin.has_uninitialized_params()
    assert twin(weft.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert type(twin) is Sized
    assert twin.weight.dtype == weft.float64
    buffer = pickle.loads(pickle.dumps(nn.UninitializedBuffer(persistent=False)))
    assert (buffer.persistent, nn.parameter.is_lazy(buffer)) == (False, True)


def test_lazy_modules_are_copied():
    """PyTorch refuses those with buffers."""
    module = lazy(weft)
    twin = copy.deepcopy(module)
    assert twin(weft.ones(2)).tolist() == [3.0, 3.0]
    assert module.has_uninitialized_params()
    assert module(weft.ones(1)).tolist() == [3.0]


def test_lazy_modules_do_not_run_in_parallel():
    with pytest.raises(RuntimeError, match="DataParallel"):
        LazySized()._replicate_for_data_parallel()
