"""Containers of modules and parameters are lists and dictionaries as PyTorch's are, with its texts and errors."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from oracles import oracle
from scenarios import outcome, same_outcome

import weft
from weft import nn


def layer(lib, number=1):
    """A module that can be told from others."""

    class Layer(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = lib.nn.Parameter(lib.full((2,), float(number)))

        def forward(self, x):
            return x * self.scale

        def extra_repr(self):
            return str(number)

    return Layer()


def layers(lib, *numbers):
    return [layer(lib, number) for number in numbers]


def each(make, actions):
    """A program that does each of the actions with a new container, and tells what came out and what became of it."""

    def program(lib):
        told = []
        for name, action in actions.items():
            made = []

            def run(lib, action=action, made=made):
                made.append(make(lib))
                return action(lib, made[0])

            told.append([name, outcome(run, lib), repr(made[0]), list(made[0].state_dict())])
        return told

    return program


def setitem(key, value):
    return lambda lib, m: m.__setitem__(key, value(lib) if callable(value) else value)


SEQUENTIAL = {
    "call": lambda lib, m: m(lib.ones(2)),
    "len": lambda lib, m: len(m),
    "iter": lambda lib, m: list(m),
    "item": lambda lib, m: m[1],
    "item from the end": lambda lib, m: m[-1],
    "item by number": lambda lib, m: m[np.int64(2)],
    "no item": lambda lib, m: m[5],
    "no item before": lambda lib, m: m[-4],
    "item by name": lambda lib, m: m["a"],
    "slice": lambda lib, m: m[1:],
    "slice back": lambda lib, m: list(m[::2]),
    "set": setitem(0, lambda lib: layer(lib, 9)),
    "set last": setitem(-1, lambda lib: layer(lib, 9)),
    "set none": setitem(7, lambda lib: layer(lib, 9)),
    "set number": setitem(0, 3),
    "delete": lambda lib, m: m.__delitem__(0),
    "delete slice": lambda lib, m: m.__delitem__(slice(0, 2)),
    "delete none": lambda lib, m: m.__delitem__(7),
    "append": lambda lib, m: m.append(layer(lib, 9)) is m,
    "append number": lambda lib, m: m.append(3),
    "extend": lambda lib, m: m.extend(layers(lib, 8, 9)) is m,
    "extend number": lambda lib, m: m.extend([3]),
    "insert": lambda lib, m: m.insert(1, layer(lib, 9)) is m,
    "insert first": lambda lib, m: m.insert(0, layer(lib, 9)) is m,
    "insert last": lambda lib, m: m.insert(3, layer(lib, 9)) is m,
    "insert from the end": lambda lib, m: m.insert(-1, layer(lib, 9)) is m,
    "insert outside": lambda lib, m: m.insert(4, layer(lib, 9)),
    "pop": lambda lib, m: m.pop(1),
    "pop last": lambda lib, m: m.pop(-1),
    "pop none": lambda lib, m: m.pop(9),
    "add": lambda lib, m: m + lib.nn.Sequential(layer(lib, 9)),
    "add list": lambda lib, m: m + [layer(lib, 9)],
    "add in place": lambda lib, m: m.__iadd__(lib.nn.Sequential(layer(lib, 9))) is m,
    "add list in place": lambda lib, m: m.__iadd__([layer(lib, 9)]),
    "times": lambda lib, m: m * 2,
    "times from the left": lambda lib, m: 2 * m,
    "times in place": lambda lib, m: m.__imul__(3) is m,
    "times zero": lambda lib, m: m * 0,
    "times half": lambda lib, m: m * 0.5,
    "times zero in place": lambda lib, m: m.__imul__(0),
    "contains": lambda lib, m: (m[0] in m, layer(lib) in m),
    "reversed": lambda lib, m: [str(x) for x in reversed(m)] if hasattr(m, "__reversed__") else None,
    "names": lambda lib, m: [name in dir(m) for name in ("0", "append")],
    "attribute": lambda lib, m: getattr(m, "1"),
}


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_sequential(name):
    same_outcome(each(lambda lib: lib.nn.Sequential(*layers(lib, 1, 2, 3)), {name: SEQUENTIAL[name]}))


NAMED = {name: SEQUENTIAL[name] for name in ("call", "slice", "delete", "pop", "append", "set", "item", "add", "times")}


@pytest.mark.parametrize("name", NAMED)
def test_sequential_with_names(name):
    def make(lib):
        return lib.nn.Sequential(OrderedDict(first=layer(lib, 1), second=layer(lib, 2)))

    same_outcome(each(make, {name: NAMED[name]}))


@pytest.mark.parametrize("arguments", [lambda lib: [[layer(lib)]], lambda lib: [{"a": layer(lib)}], lambda lib: [1]])
def test_what_sequential_is_not_made_of(arguments):
    same_outcome(lambda lib: lib.nn.Sequential(*arguments(lib)))


LIST = {
    "call": lambda lib, m: m(lib.ones(2)),
    "len": lambda lib, m: len(m),
    "item": lambda lib, m: m[-1],
    "no item": lambda lib, m: m[5],
    "slice": lambda lib, m: m[:2],
    "set": setitem(-1, lambda lib: layer(lib, 9)),
    "set number": setitem(0, 3),
    "delete": lambda lib, m: m.__delitem__(-1),
    "delete slice": lambda lib, m: m.__delitem__(slice(0, 2)),
    "append": lambda lib, m: m.append(layer(lib, 1)) is m,
    "append number": lambda lib, m: m.append(3),
    "append none": lambda lib, m: m.append(None) is m,
    "extend": lambda lib, m: m.extend(layers(lib, 8, 8)) is m,
    "extend by an iterator": lambda lib, m: m.extend(iter(layers(lib, 8, 8))) is m,
    "extend number": lambda lib, m: m.extend(3),
    "extend with numbers": lambda lib, m: m.extend([3]),
    "insert": lambda lib, m: m.insert(1, layer(lib, 9)),
    "pop": lambda lib, m: m.pop(0),
    "add": lambda lib, m: m + layers(lib, 9),
    "add list of modules": lambda lib, m: m + lib.nn.ModuleList(layers(lib, 9, 9)),
    "add in place": lambda lib, m: m.__iadd__(layers(lib, 9)) is m,
    "in": lambda lib, m: (m[0] in m, 3 in m),
    "converted": lambda lib, m: [p.dtype.itemsize for p in m.double().parameters()],
}


@pytest.mark.parametrize("name", LIST)
def test_lists_of_modules(name):
    same_outcome(each(lambda lib: lib.nn.ModuleList(layers(lib, 1, 1, 2)), {name: LIST[name]}))


@pytest.mark.parametrize(("index", "order"), [(-1, [1, 9, 2]), (99, [1, 2, 9]), (-99, [9, 1, 2])])
def test_lists_of_modules_insert_where_lists_do(index, order):
    """PyTorch refuses the first, and names the second by a number that leaves a gap."""
    made = nn.ModuleList(layers(weft, 1, 2))
    made.insert(index, layer(weft, 9))
    assert [module.extra_repr() for module in made] == [str(number) for number in order]
    assert list(made._modules) == ["0", "1", "2"]


def test_texts_of_nested_lists():
    def make(lib):
        inner = [lib.nn.ModuleList(layers(lib, 1, 1)) for _ in range(3)]
        return lib.nn.ModuleList([*inner, layer(lib, 3), lib.nn.Sequential(*inner), lib.nn.ModuleList()])

    same_outcome(make)


DICT = {
    "call": lambda lib, m: m(1),
    "len": lambda lib, m: len(m),
    "iter": lambda lib, m: list(m),
    "item": lambda lib, m: m["a"],
    "no item": lambda lib, m: m["z"],
    "in": lambda lib, m: ("a" in m, "z" in m),
    "set": setitem("c", lambda lib: layer(lib, 9)),
    "set again": setitem("a", lambda lib: layer(lib, 9)),
    "set number": setitem("c", 3),
    "set by number": setitem(3, lambda lib: layer(lib, 9)),
    "set what methods are called": setitem("type", lambda lib: layer(lib, 9)),
    "delete": lambda lib, m: m.__delitem__("a"),
    "delete none": lambda lib, m: m.__delitem__("z"),
    "clear": lambda lib, m: m.clear(),
    "pop": lambda lib, m: m.pop("b"),
    "pop none": lambda lib, m: m.pop("z"),
    "keys": lambda lib, m: list(m.keys()),
    "items": lambda lib, m: list(m.items()),
    "values": lambda lib, m: list(m.values()),
    "update": lambda lib, m: m.update({"z": layer(lib, 8), "c": layer(lib, 9)}),
    "update in order": lambda lib, m: m.update(OrderedDict(z=layer(lib, 8), c=layer(lib, 9))),
    "update with pairs": lambda lib, m: m.update([["z", layer(lib, 8)], ("c", layer(lib, 9))]),
    "update with a dict of modules": lambda lib, m: m.update(lib.nn.ModuleDict({"c": layer(lib, 9)})),
    "update with a number": lambda lib, m: m.update(3),
    "update with triples": lambda lib, m: m.update([(1, 2, 3)]),
    "attribute": lambda lib, m: m.a,
}


@pytest.mark.parametrize("name", DICT)
def test_dictionaries_of_modules(name):
    same_outcome(each(lambda lib: lib.nn.ModuleDict({"b": layer(lib, 1), "a": layer(lib, 2)}), {name: DICT[name]}))


def test_what_updates_is_told():
    for made in (nn.ModuleDict(), nn.ParameterDict()):
        with pytest.raises(TypeError, match="element #1 should be Iterable; is int"):
            made.update([("a", None), 3])


PARAMETERS = {
    "call": lambda lib, m: m(1),
    "len": lambda lib, m: len(m),
    "iter": lambda lib, m: list(m)[:3],
    "item": lambda lib, m: m[0],
    "last": lambda lib, m: m[-1],
    "no item": lambda lib, m: m[9],
    "slice": lambda lib, m: m[1:3],
    "set": setitem(0, lambda lib: lib.nn.Parameter(lib.zeros(3))),
    "set tensor": setitem(1, lambda lib: lib.zeros(3)),
    "set number": setitem(0, 3),
    "set other": setitem(2, "text"),
    "set outside": setitem(9, 3),
    "append": lambda lib, m: m.append(lib.zeros(1)) is m,
    "append frozen": lambda lib, m: m.append(lib.nn.Parameter(lib.zeros(1), requires_grad=False))[-1],
    "extend": lambda lib, m: m.extend([lib.zeros(1), 5]) is m,
    "extend number": lambda lib, m: m.extend(3),
    "extend tensor": lambda lib, m: m.extend(lib.ones(3)),
    "extend itself": lambda lib, m: m.extend(m) is m,
    "add in place": lambda lib, m: m.__iadd__([lib.zeros(1)]) is m,
    "add": lambda lib, m: m + [lib.zeros(1)],
    "names": lambda lib, m: [name in dir(m) for name in ("0", "append")],
    "converted": lambda lib, m: m.double()[0],
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_lists_of_parameters(name):
    def make(lib):
        values = [lib.ones(2, 3), lib.nn.Parameter(lib.tensor(2.0)), 3, lib.nn.ParameterList([lib.ones(1)])]
        return lib.nn.ParameterList(values)

    same_outcome(each(make, {name: PARAMETERS[name]}))


PARAMETER_DICT = {
    "call": lambda lib, m: m(1),
    "len": lambda lib, m: len(m),
    "iter": lambda lib, m: list(m),
    "reversed": lambda lib, m: list(reversed(m)),
    "item": lambda lib, m: m["b"],
    "in": lambda lib, m: ("a" in m, "z" in m, 3 in m),
    "set": setitem("c", lambda lib: lib.zeros(1)),
    "set other": setitem("a", "text"),
    "set parameter to number": setitem("b", 4),
    "delete": lambda lib, m: m.__delitem__("b"),
    "clear": lambda lib, m: m.clear(),
    "pop": lambda lib, m: m.pop("b"),
    "popitem": lambda lib, m: m.popitem(),
    "get": lambda lib, m: (m.get("b"), m.get("z"), m.get("z", 5)),
    "setdefault": lambda lib, m: (m.setdefault("a", 5), m.setdefault("z", lib.zeros(1))),
    "setdefault without": lambda lib, m: m.setdefault("z"),
    "fromkeys": lambda lib, m: m.fromkeys(["x", "y"], 1),
    "copy": lambda lib, m: (m.copy(), m.copy()["b"] is m["b"]),
    "keys": lambda lib, m: list(m.keys()),
    "items": lambda lib, m: list(m.items()),
    "values": lambda lib, m: list(m.values()),
    "update": lambda lib, m: m.update({"z": lib.zeros(1), "c": 3}),
    "update in order": lambda lib, m: m.update(OrderedDict(z=lib.zeros(1), c=3)),
    "update with pairs": lambda lib, m: m.update([("z", lib.zeros(1)), ("c", 3)]),
    "update with parameters": lambda lib, m: m.update(lib.nn.ParameterDict({"z": lib.zeros(1)})),
    "update with triples": lambda lib, m: m.update([(1, 2, 3)]),
    "or": lambda lib, m: m | {"x": 1},
    "or parameters": lambda lib, m: m | lib.nn.ParameterDict({"x": lib.zeros(1)}),
    "or from the left": lambda lib, m: {"x": 1} | m,
    "or in place": lambda lib, m: m.__ior__({"x": 1}) is m,
    "converted": lambda lib, m: m.double()["b"],
}


@pytest.mark.parametrize("name", PARAMETER_DICT)
def test_dictionaries_of_parameters(name):
    same_outcome(each(lambda lib: lib.nn.ParameterDict({"b": lib.ones(2), "a": 3}), {name: PARAMETER_DICT[name]}))


def test_names_that_a_dictionary_of_parameters_lacks():
    """They are missing keys, and missing attributes as they are in PyTorch."""
    made = nn.ParameterDict({"a": weft.ones(1)})
    for action in (lambda: made["z"], lambda: made.pop("z"), lambda: made.__delitem__("z"), lambda: made["forward"]):
        with pytest.raises(KeyError, match="no attribute"):
            action()
        with pytest.raises(AttributeError):
            action()
    with pytest.raises(KeyError, match="empty"):
        nn.ParameterDict().popitem()
    with pytest.raises(TypeError, match="not a string"):
        made[3] = 4


def test_what_only_weft_takes_or_tells():
    made = nn.Sequential(*layers(weft, 1, 2))
    assert [module.extra_repr() for module in made.extend(made)] == ["1", "2", "1", "2"]
    with pytest.raises(TypeError, match="should be of type"):
        made.insert(0, 3)
    with pytest.raises(TypeError, match="should be called with an iterable, but got int"):
        nn.ModuleList() + 3
    assert list(nn.Container(a=layer(weft)).state_dict()) == ["a.scale"]


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(weft.full((2,), factor))

    def forward(self, x):
        return x * self.factor


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_containers_are_copied(copied):
    net = nn.Sequential(Times(2.0), nn.Sequential(Times(3.0)))
    net.lists = nn.ModuleList([Times(1.0)])
    net.dicts = nn.ModuleDict({"a": Times(1.0)})
    net.values = nn.ParameterList([weft.ones(2), 5])
    net.named = nn.ParameterDict({"a": weft.ones(2), "b": 5})
    twin = copied(net)
    assert repr(twin) == repr(net)
    assert list(twin.state_dict()) == list(net.state_dict())
    assert twin.values[1] == twin.named["b"] == 5
    assert twin[:2](weft.ones(2)).tolist() == [6.0, 6.0]
    twin[0].factor.data.zero_()
    assert net[0].factor.tolist() == [2.0, 2.0]


def test_all_that_torch_has_is_there():
    theirs = oracle("torch").nn
    for name in ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Module"):
        public = {attribute for attribute in vars(getattr(theirs, name)) if attribute[0] != "_"}
        assert public - set(dir(getattr(nn, name))) - {"T_destination"} == set()
