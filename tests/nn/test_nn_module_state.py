"""States of modules, out of them, into them and through files of both libraries, as PyTorch has them."""

import copy
import gc
import io
import pickle
import sys
from collections import OrderedDict

import numpy as np
import pytest
from oracles import oracle
from scenarios import Scenarios, affine, outcome, same_outcome

import weft

scenario = Scenarios()


def net(lib):
    return affine(lib, first=affine(lib), second=lib.nn.Sequential(affine(lib), lib.nn.ModuleList()))


def filled(lib, state):
    """The state with other numbers in it."""
    made = OrderedDict((key, value + 1) for key, value in state.items())
    made._metadata = state._metadata
    return made


# Out.


@scenario
def keys_values_and_versions(lib):
    state = net(lib).state_dict()
    return type(state).__name__, state, dict(state._metadata)


@scenario
def prefixes_and_destinations(lib):
    place = OrderedDict(old=1)
    state = net(lib).state_dict(destination=place, prefix="model.")
    return state is place, list(state), hasattr(state, "_metadata")


@scenario
def positions_are_old(lib):
    return list(net(lib).state_dict(OrderedDict(), "p.", True))


@scenario
def values_share_memory(lib):
    m = net(lib)
    state, kept = m.state_dict(), m.state_dict(keep_vars=True)
    with lib.no_grad():
        m.bias.fill_(7.0)
    return state["bias"], kept["bias"] is m.bias, kept["weight"].requires_grad


@scenario
def versions_and_what_is_saved_are_the_classes_own(lib):
    class Versioned(lib.nn.Module):
        _version = 3

        def _save_to_state_dict(self, destination, prefix, keep_vars):
            super()._save_to_state_dict(destination, prefix, keep_vars)
            destination[prefix + "more"] = lib.ones(1)

        def _load_from_state_dict(self, state, prefix, metadata, *rest):
            told.append([prefix, metadata.get("version"), sorted(state)])
            state.pop(prefix + "more", None)
            super()._load_from_state_dict(state, prefix, metadata, *rest)

    told = []
    m = lib.nn.Sequential(Versioned(), affine(lib))
    state = m.state_dict()
    return list(state), dict(state._metadata), m.load_state_dict(state), told, list(state)


@scenario
def children_may_have_a_state_dict_of_their_own(lib):
    class Closed(lib.nn.Module):
        def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
            destination[prefix + "closed"] = keep_vars
            return destination

    m = lib.nn.Sequential(affine(lib), Closed(), affine(lib))
    return list(m.state_dict()), m.state_dict()["1.closed"]


@scenario
def extra_state(lib):
    class Extra(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.extra = {"a": 1}

        def get_extra_state(self):
            return self.extra

        def set_extra_state(self, state):
            self.extra = state

    m = lib.nn.Sequential(Extra(), affine(lib))
    state = m.state_dict()
    state["0._extra_state"] = {"a": 2}
    keys = m.load_state_dict(state)
    del state["0._extra_state"]
    return (
        keys,
        m[0].extra,
        m.load_state_dict(state, strict=False),
        lib.nn.Sequential(affine(lib)).load_state_dict({"0._extra_state": 1}, strict=False),
    )


@scenario
def other_bases(lib):
    class Other:
        pass

    class Both(lib.nn.Module, Other):
        def __init__(self):
            super().__init__()
            self.weight = lib.nn.Parameter(lib.ones(2))

    m = Both()
    return m.state_dict(), m.load_state_dict(m.state_dict()), repr(m)


@scenario
def hooks_around_saving(lib):
    m, told = net(lib), []
    m.register_state_dict_pre_hook(lambda module, prefix, keep: told.append(["before", prefix, keep]))
    m.first.register_state_dict_post_hook(lambda module, state, prefix, meta: told.append([prefix, list(state), meta]))
    m.second.register_state_dict_post_hook(lambda module, state, prefix, meta: state.update(more=prefix))
    told.append(list(m.state_dict()))
    m._register_state_dict_hook(lambda module, state, prefix, meta: OrderedDict(only=state["bias"]))
    return list(m.state_dict()), told


@scenario
def public_hooks_give_nothing(lib):
    m = net(lib)
    m.register_state_dict_post_hook(lambda module, state, prefix, meta: state)
    m.state_dict()


# In.


@scenario
def states_are_loaded(lib):
    m = net(lib)
    kept = m.weight
    keys = m.load_state_dict(filled(lib, net(lib).state_dict()))
    return m.state_dict(), keys, keys.missing_keys, keys.unexpected_keys, str(keys), m.weight is kept


@scenario
def states_are_assigned(lib):
    m = net(lib)
    m.first.bias.requires_grad_(False)
    state = OrderedDict((key, value.double()) for key, value in m.state_dict().items())
    state["bias"] = lib.nn.Parameter(lib.ones(2), requires_grad=False)
    m.load_state_dict(state, assign=True)
    shares = m.weight.data_ptr() == state["weight"].data_ptr()
    return m.state_dict(), shares, m.bias.requires_grad, m.first.bias.requires_grad, m.seen.dtype.is_floating_point


@scenario
def plain_dictionaries_and_other_dtypes(lib):
    m = net(lib)
    m.load_state_dict({key: value.double() + 2 for key, value in m.state_dict().items()})
    return m.state_dict()


def wrong(change):
    """A program that loads a state that something is wrong with, strictly and not."""

    def program(lib):
        m = net(lib)
        state = m.state_dict()
        change(lib, state)

        def lenient(lib):
            keys = net(lib).load_state_dict(state, strict=False)
            return keys, repr(keys)

        return [outcome(lambda lib: net(lib).load_state_dict(state), lib), outcome(lenient, lib)]

    return program


WRONG = {
    "missing": lambda lib, s: (s.pop("bias"), s.pop("second.0.seen")),
    "unexpected": lambda lib, s: s.update({"extra": lib.ones(1), "first.other.x": lib.ones(1), "third.x": lib.ones(1)}),
    "deeper than parameters": lambda lib, s: s.update({"bias.deep": lib.ones(1), "first.weight.deep.er": lib.ones(1)}),
    "sizes": lambda lib, s: s.update({"bias": lib.ones(3), "first.weight": lib.ones(2, 2, 1)}),
    "all": lambda lib, s: (s.pop("bias"), s.update({"weight": lib.ones(3), "x": lib.ones(1)})),
    "no tensor": lambda lib, s: s.update({"bias": [1, 2]}),
    "one element": lambda lib, s: s.update({"seen": lib.tensor([5])}),
    "two elements": lambda lib, s: s.update({"seen": lib.tensor([5, 6])}),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_told(name):
    same_outcome(wrong(WRONG[name]))


@scenario
def a_state_is_a_mapping(lib):
    return net(lib).load_state_dict([1])


@scenario
def hooks_around_loading(lib):
    m, told = net(lib), []

    def renames(module, state, prefix, *rest):
        told.append([type(module).__name__, prefix, sorted(state)])
        if prefix + "old" in state:
            state[prefix + "bias"] = state.pop(prefix + "old")

    m.first.register_load_state_dict_pre_hook(renames)
    m.second[0]._register_load_state_dict_pre_hook(lambda state, prefix, *rest: told.append([prefix, len(rest)]))
    m.register_load_state_dict_post_hook(lambda module, keys: keys.unexpected_keys.clear())
    m.first.register_load_state_dict_post_hook(lambda module, keys: told.append([keys.missing_keys, "after first"]))
    state = filled(lib, m.state_dict())
    state["first.old"] = state.pop("first.bias")
    state["unknown"] = lib.ones(1)
    return m.load_state_dict(state), told, m.first.bias, "first.old" in state


@scenario
def the_state_itself_is_not_changed(lib):
    m = net(lib)
    m._register_load_state_dict_pre_hook(lambda state, prefix, *rest: state.pop("bias"))
    state = m.state_dict()
    keys = m.load_state_dict(state, strict=False)
    return keys, "bias" in state


@pytest.mark.parametrize("name", scenario.programs)
def test_both_do_the_same(name):
    same_outcome(scenario.programs[name])


@pytest.mark.parametrize("action", ["state_dict", "double", "eval", "__repr__", "requires_grad_"])
def test_a_module_below_itself(action):
    """Where PyTorch runs out of stack; parameters are found once, as they are there."""
    module = net(weft)
    module.first.outer = module
    assert len(list(module.parameters())) == 6
    if action == "requires_grad_":
        assert module.requires_grad_() is module
    else:
        with pytest.raises(RuntimeError, match="below itself"):
            getattr(module, action)()


def test_hooks_after_loading_give_nothing():
    module = net(weft)
    module.register_load_state_dict_post_hook(lambda module, keys: keys)
    with pytest.raises(RuntimeError, match="not expected to return"):
        module.load_state_dict(module.state_dict())


class Renaming(weft.nn.Module):
    """Reads an older name of its parameter."""

    def __init__(self):
        super().__init__()
        self.weight = weft.nn.Parameter(weft.ones(2))
        self.register_load_state_dict_pre_hook(renamed)


def renamed(module, state, prefix, *rest):
    assert module.weight is not None
    state[prefix + "weight"] = state.pop(prefix + "old")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_hooks_of_copies_are_called_with_the_copies(copied):
    module = Renaming()
    twin = copied(module)
    twin.load_state_dict({"old": weft.zeros(2)})
    assert (twin.weight.tolist(), module.weight.tolist()) == ([0, 0], [1, 1])
    (hook,) = twin._load_state_dict_pre_hooks.values()
    del twin
    gc.collect()
    with pytest.raises(RuntimeError, match="dead Module"):
        hook({}, "")


def test_what_cannot_be_copied_is_told():
    module = weft.nn.Module()
    module.register_buffer("seen", weft.zeros(1).expand(3))  # one number for three elements
    with pytest.raises(RuntimeError, match='named "seen", an exception occurred'):
        module.load_state_dict({"seen": weft.ones(3)})


@pytest.mark.parametrize("call", [lambda m: m.get_extra_state(), lambda m: m.set_extra_state(1)])
def test_extra_state_is_defined_by_those_who_have_some(call):
    with pytest.raises(RuntimeError, match="should never be called"):
        call(net(weft))


# Files.


@pytest.mark.parametrize("weights_only", [True, False])
def test_states_travel_in_files_both_ways(weights_only):
    torch = oracle("torch")
    weft.manual_seed(3), torch.manual_seed(4)
    ours, theirs = net(weft), net(torch)
    assert not np.allclose(ours.weight.detach().numpy(), theirs.weight.detach().numpy())
    file = io.BytesIO()
    weft.save(ours.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=weights_only)
    assert state._metadata == ours.state_dict()._metadata
    theirs.load_state_dict(state)
    expected = {key: value.numpy() + 1 for key, value in ours.state_dict().items()}
    for parameter in [*theirs.parameters(), *theirs.buffers()]:
        parameter.data += 1
    file = io.BytesIO()
    torch.save(theirs.state_dict(), file)
    file.seek(0)
    loaded = weft.load(file)
    assert loaded._metadata == theirs.state_dict()._metadata
    assert str(ours.load_state_dict(loaded)) == "<All keys matched successfully>"
    for key, value in ours.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), expected[key], err_msg=key)


def test_parameters_travel_in_files():
    torch = oracle("torch")
    module = net(weft)
    file = io.BytesIO()
    weft.save(module.state_dict(keep_vars=True), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert type(state["weight"]) is torch.nn.Parameter
    assert type(state["seen"]) is torch.Tensor


# Depth.


def test_modules_may_be_nested_deeply():
    depth = sys.getrecursionlimit() + 100
    module = bottom = weft.nn.Module()
    module.weight = weft.nn.Parameter(weft.ones(1))
    for _ in range(depth):
        outer = weft.nn.Module()
        outer.inner = module
        module = outer
    path = ".".join(["inner"] * depth)
    assert list(module.state_dict()) == [f"{path}.weight"]
    assert module.load_state_dict({f"{path}.weight": weft.zeros(1)}).missing_keys == []
    assert [name for name, _ in module.named_parameters()] == [f"{path}.weight"]
    assert module.get_submodule(path) is bottom
    assert module.eval().double().requires_grad_(False).apply(lambda m: setattr(m, "seen", True)) is module
    assert (bottom.training, bottom.weight.dtype, bottom.weight.item(), bottom.seen) == (False, weft.float64, 0.0, True)
    assert repr(module).count("\n") == 2 * depth
