"""Pruning against PyTorch: which elements are left out, what a module holds, what hooks and containers do."""

import numpy as np
import pytest
from oracles import oracle
from twin_modules import made_alike, same_call, same_state, same_tensor, same_text

import weft
from weft.nn.utils import prune as ours_of

RNG = np.random.default_rng(5)


def prunes(lib):
    """The module of pruning of a library."""
    return ours_of if lib is weft else oracle("torch.nn.utils.prune")


def numbers(*shape):
    return RNG.normal(size=shape).astype("float32")


SCORES = numbers(6, 5)
# Steps, each the name of a function and its arguments: they prune one after another.
SEQUENCES = {
    "identity": [("identity", ())],
    "l1": [("l1_unstructured", (0.4,))],
    "l1 count": [("l1_unstructured", (7,))],
    "l1 none": [("l1_unstructured", (0,)), ("l1_unstructured", (0.0,))],
    "l1 all": [("l1_unstructured", (1.0,))],
    "l1 scores": [("l1_unstructured", (0.3, SCORES))],
    "random": [("random_unstructured", (0.4,))],
    "random count": [("random_unstructured", (11,))],
    "ln": [("ln_structured", (0.5, 2, 0))],
    "ln 1": [("ln_structured", (2, 1, 1))],
    "ln inf": [("ln_structured", (2, float("inf"), -1))],
    "ln fro": [("ln_structured", (0.3, "fro", 0))],
    "ln scores": [("ln_structured", (2, 2, 0, SCORES))],
    "random channels": [("random_structured", (0.5, 0))],
    "random channels last": [("random_structured", (2, -1))],
    "mask": [("custom_from_mask", (np.arange(30).reshape(6, 5) % 3,))],
    "twice": [("l1_unstructured", (0.3,)), ("l1_unstructured", (0.5,))],
    "mixed": [("ln_structured", (1, 2, 0)), ("random_unstructured", (0.5,)), ("ln_structured", (0.4, 1, 1))],
    "masked": [("l1_unstructured", (5,)), ("custom_from_mask", (np.arange(30).reshape(6, 5) % 4,))],
    "channels": [("random_structured", (1, 1)), ("random_structured", (2, 1)), ("identity", ())],
    "scored": [("l1_unstructured", (0.3,)), ("l1_unstructured", (0.5, SCORES))],
}


def built(steps):
    def build(lib):
        layer = lib.nn.Linear(5, 6)
        for name, args in steps:
            given = [lib.from_numpy(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
            assert getattr(prunes(lib), name)(layer, "weight", *given) is layer
        return layer

    return build


@pytest.mark.parametrize("case", SEQUENCES)
def test_pruning(case):
    ours, theirs = made_alike(built(SEQUENCES[case]))
    same_text(ours, theirs)
    same_state(ours, theirs, 1e-6, 1e-6)
    same_tensor(ours.weight, theirs.weight, 1e-6, 1e-6)
    assert not isinstance(ours.weight, weft.nn.Parameter)
    same_call(ours, theirs, (numbers(4, 5),), {})
    hooks = [next(iter(module._forward_pre_hooks.values())) for module in (ours, theirs)]
    assert type(hooks[0]).__name__ == type(hooks[1]).__name__
    if len(SEQUENCES[case]) > 1:
        assert [type(hook).__name__ for hook in hooks[0]] == [type(hook).__name__ for hook in hooks[1]]
        assert len(hooks[0]) == len(hooks[1])
        assert hooks[0][0] is next(iter(hooks[0]))
    assert ours_of.is_pruned(weft.nn.Sequential(ours))
    for lib, module in ((weft, ours), (oracle("torch"), theirs)):
        assert prunes(lib).remove(module, "weight") is module
    same_state(ours, theirs, 1e-6, 1e-6)
    assert isinstance(ours.weight, weft.nn.Parameter)
    assert not ours._forward_pre_hooks
    assert not ours_of.is_pruned(ours)
    same_call(ours, theirs, (numbers(4, 5),), {})


def test_what_is_left_out_has_no_gradient_and_changes_with_the_parameter():
    layer = ours_of.l1_unstructured(weft.nn.Linear(5, 6), "weight", 0.5)
    layer(weft.from_numpy(numbers(4, 5))).sum().backward()
    assert ((layer.weight_orig.grad == 0) == (layer.weight_mask == 0)).all()
    with weft.no_grad():
        layer.weight_orig.fill_(2.0)
    layer(weft.rand(5))
    assert layer.weight.tolist() == (layer.weight_mask * 2).tolist()


def test_two_parameters_of_a_module():
    ours, theirs = made_alike(
        lambda lib: prunes(lib).l1_unstructured(
            prunes(lib).random_unstructured(lib.nn.Linear(5, 6), "bias", 3), "weight", 0.2
        )
    )
    same_state(ours, theirs, 1e-6, 1e-6)
    for lib, module in ((weft, ours), (oracle("torch"), theirs)):
        prunes(lib).remove(module, "bias")
    same_state(ours, theirs, 1e-6, 1e-6)
    assert ours_of.is_pruned(ours)


GLOBAL = {
    "share": lambda lib, parts: prunes(lib).global_unstructured(parts, prunes(lib).L1Unstructured, amount=0.4),
    "count": lambda lib, parts: prunes(lib).global_unstructured(parts, prunes(lib).L1Unstructured, amount=9),
    "random": lambda lib, parts: prunes(lib).global_unstructured(parts, prunes(lib).RandomUnstructured, amount=0.4),
    "scores": lambda lib, parts: prunes(lib).global_unstructured(
        parts, prunes(lib).L1Unstructured, {parts[0]: lib.from_numpy(SCORES)}, amount=0.3
    ),
}


@pytest.mark.parametrize("case", GLOBAL)
@pytest.mark.parametrize("before", [False, True])
def test_parameters_as_one_vector(case, before):
    def build(lib):
        net = lib.nn.Sequential(lib.nn.Linear(5, 6), lib.nn.Conv1d(2, 3, 2))
        if before:
            prunes(lib).l1_unstructured(net[0], "weight", 0.2)
        GLOBAL[case](lib, [(net[0], "weight"), (net[1], "weight"), (net[1], "bias")])
        return net

    ours, theirs = made_alike(build)
    same_state(ours, theirs, 1e-6, 1e-6)
    same_tensor(ours[1].weight, theirs[1].weight, 1e-6, 1e-6)


def test_methods_without_a_module():
    row = np.array([1.0, -3.0, 2.0, 0.5], "float32")
    scores, mask = np.array([4.0, 1.0, 2.0, 3.0], "float32"), np.array([1.0, 0.0, 1.0, 1.0], "float32")

    def results(lib):
        method = prunes(lib).L1Unstructured(0.5)
        t, s, m = (lib.from_numpy(array) for array in (row, scores, mask))
        ln = prunes(lib).LnStructured(1, 2, 0)
        wide = lib.from_numpy(SCORES)
        return [
            method.prune(t),
            method.prune(t, importance_scores=s),
            method.prune(t, default_mask=m),
            method.compute_mask(t, m),
            ln.compute_mask(wide, lib.ones(6, 5)),
            prunes(lib).Identity().prune(t),
            prunes(lib).CustomFromMask(m).prune(t),
        ]

    for mine, theirs in zip(results(weft), results(oracle("torch")), strict=True):
        same_tensor(mine, theirs, 1e-6, 1e-6)


def own_method(lib):
    class EveryOther(prunes(lib).BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t, default_mask):
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    return EveryOther


def test_methods_of_one_s_own():
    def build(lib):
        layer = lib.nn.Linear(5, 6)
        own_method(lib).apply(layer, "weight")
        own_method(lib).apply(layer, "weight")
        return layer

    ours, theirs = made_alike(build)
    same_state(ours, theirs, 1e-6, 1e-6)
    assert ours.weight_mask.sum() == 7


def named(lib, name):
    method = prunes(lib).L1Unstructured(1)
    method._tensor_name = name
    return method


REFUSED = {
    "share": lambda lib, layer: prunes(lib).l1_unstructured(layer, "weight", 1.5),
    "negative": lambda lib, layer: prunes(lib).l1_unstructured(layer, "weight", -1),
    "text": lambda lib, layer: prunes(lib).random_unstructured(layer, "weight", "a"),
    "too many": lambda lib, layer: prunes(lib).l1_unstructured(layer, "weight", 100),
    "vector": lambda lib, layer: prunes(lib).ln_structured(layer, "bias", 0.5, 2, 0),
    "vector at random": lambda lib, layer: prunes(lib).random_structured(layer, "bias", 0.5, 0),
    "axis": lambda lib, layer: prunes(lib).ln_structured(layer, "weight", 0.5, 2, 5),
    "channels": lambda lib, layer: prunes(lib).random_structured(layer, "weight", 10, 0),
    "name": lambda lib, layer: prunes(lib).l1_unstructured(layer, "wait", 0.5),
    "mask": lambda lib, layer: prunes(lib).custom_from_mask(layer, "weight", lib.ones(3)),
    "scores": lambda lib, layer: prunes(lib).l1_unstructured(layer, "weight", 0.3, lib.rand(2)),
    "not pruned": lambda lib, layer: prunes(lib).remove(layer, "weight"),
    "structured": lambda lib, layer: prunes(lib).global_unstructured(
        [(layer, "weight")], prunes(lib).LnStructured, amount=3, n=2
    ),
    "no list": lambda lib, layer: prunes(lib).global_unstructured(layer, prunes(lib).L1Unstructured, amount=3),
    "no scores": lambda lib, layer: prunes(lib).global_unstructured(
        [(layer, "weight")], prunes(lib).L1Unstructured, [1], amount=3
    ),
    "nothing": lambda lib, layer: prunes(lib).global_unstructured([], prunes(lib).L1Unstructured, amount=3),
    "other": lambda lib, layer: prunes(lib).PruningContainer(named(lib, "a")).add_pruning_method(named(lib, "b")),
    "no method": lambda lib, layer: prunes(lib).PruningContainer(named(lib, "a")).add_pruning_method(3),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_leave_the_module_as_it_was(case):
    torch = oracle("torch")
    with pytest.raises(Exception) as theirs:
        REFUSED[case](torch, torch.nn.Linear(5, 6))
    kind = next(kind for kind in type(theirs.value).__mro__ if kind.__module__ == "builtins")
    layer = weft.nn.Linear(5, 6)
    with pytest.raises(ValueError if kind is AssertionError else kind):
        REFUSED[case](weft, layer)
    assert sorted(layer.state_dict()) == ["bias", "weight"]
    assert not layer._forward_pre_hooks


def test_pruning_again_with_a_wrong_amount_changes_nothing():
    layer = ours_of.l1_unstructured(weft.nn.Linear(5, 6), "weight", 0.5)
    before = layer.weight_mask.tolist()
    with pytest.raises(ValueError, match="amount=100"):
        ours_of.l1_unstructured(layer, "weight", 100)
    assert layer.weight_mask.tolist() == before
    assert [type(hook) for hook in layer._forward_pre_hooks.values()] == [ours_of.L1Unstructured]
