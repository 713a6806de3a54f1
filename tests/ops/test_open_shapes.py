"""Shape rules with names in place of extents: with numbers for the names they say what they say of the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from sample import all_samples
from test_suite import OPS

from weft.base.errors import Error, InvalidValue
from weft.base.extents import evaluate
from weft.core.op import Op
from weft.core.schema import canonical, text_of
from weft.core.symbolic import bound_attrs, symbolic_names
from weft.testing.op_check import column_of

# What the rule cannot tell without the numbers.
UNTOLD = {"squeeze": "which extents are 1 decides the rank", "gather_nd": "the number of coordinates decides the rank"}


def run(op, params, shapes):
    """What the rule says of inputs and outputs, or None where it refuses the shapes."""
    count = op.outputs_of(params)
    try:
        said = Op.shape.get(op)(params, list(shapes), [None] * count)
    except Error:
        return None
    return [*said[0], *said[1]] if said else [None] * (len(shapes) + count)


def opened(shapes, names):
    """Shapes with a name wherever `names` has one for the place, and what the names stand for."""
    values = {name: shapes[i][axis] for (i, axis), name in names.items()}
    made = [tuple(names.get((i, axis), dim) for axis, dim in enumerate(shape)) for i, shape in enumerate(shapes)]
    return made, values


def namings(shapes):
    """One place open; all of them, each on its own; all of them, equal extents by one name."""
    places = [(i, axis) for i, shape in enumerate(shapes) for axis in range(len(shape))]
    yield from ({place: "n"} for place in places)
    if len(places) > 1:
        yield {place: f"d{place[0]}_{place[1]}" for place in places}
        yield {place: f"n{shapes[place[0]][place[1]]}" for place in places}


def check(op, params, shapes, names):
    """The places where numbers are told but names are not."""
    made, values = opened(shapes, names)
    open_said, rng = run(op, params, made), np.random.default_rng(7)
    untold = set()
    for trial in range(4):
        numbers = values if trial == 0 else {name: int(rng.integers(0, 12)) for name in values}
        actual = [tuple(evaluate(dim, numbers) for dim in shape) for shape in made]
        said = run(op, params, actual)
        if said is None:
            continue
        assert open_said is not None, f"{op.name} refuses {made} but not {actual}"
        for place, (told, known) in enumerate(zip(open_said, said)):
            if told is None:
                untold |= {(place, None)} if known is not None and place >= len(shapes) else set()
                continue
            assert known is not None, f"{op.name} of {made} says {told}, of {actual} nothing"
            assert len(told) == len(known), f"{op.name} of {made} says {told}, of {actual} {known}"
            for axis, (dim, number) in enumerate(zip(told, known)):
                if dim is None:
                    untold |= {(place, axis)} if number is not None and place >= len(shapes) else set()
                else:
                    assert number is None or evaluate(dim, numbers) == number, (
                        f"{op.name}{params} of {made} says {told}, of {actual} {known}"
                    )
    return untold


def cases(name):
    found = {}
    for sample in all_samples(name):
        key = (tuple(x.shape for x in sample.inputs), str(sample.attrs))
        found.setdefault(key, sample)
    return list(found.values())


@pytest.mark.parametrize("name", [name for name in OPS if column_of(Op.get(name), "shape") is not None])
def test_names_in_place_of_extents(name):
    op = Op.get(name)
    for sample in cases(name):
        params = op.parse({key: text_of(value) for key, value in sample.attrs.items()})
        shapes = [x.shape for x in sample.inputs]
        for names in namings(shapes):
            untold = check(op, params, shapes, names)
            assert not untold or name in UNTOLD, f"{params} of {opened(shapes, names)[0]}: {untold} not told"


# Attributes with names in them: an operator, its attributes, the shapes of its inputs.
SYMBOLIC = [
    ("reshape", {"shape": ("n", 12, "s", 64)}, [("n", "12*s", 64)]),
    ("reshape", {"shape": (0, -1, "s")}, [("n", "s", 6)]),
    ("reshape", {"shape": (-4, "n", -1, -2)}, [("n*s", 3)]),
    ("reshape", {"shape": ("n", -1)}, [None]),
    ("broadcast_to", {"shape": ("n", "s", 0)}, [("s", 3)]),
    ("broadcast_to", {"shape": ("n", 4)}, [(1, 1)]),
    ("zeros", {"shape": ("n", "2*s + 1")}, []),
    ("ones", {"shape": ("max(n, s)",)}, []),
    ("full", {"shape": ("n", 3), "fill_value": 2}, []),
    ("arange", {"stop": "n"}, []),
    ("arange", {"start": "n", "stop": "n + s", "step": 2}, []),
    ("arange", {"start": "s", "stop": "-n", "step": -3}, []),
    ("arange", {"start": 0.5, "stop": "n"}, []),
    ("strided_slice", {"begin": (0, "s"), "end": ("n", "s + 2")}, [(9, 12)]),
    ("strided_slice", {"begin": (0, "-s - 1"), "end": ("n + 1",), "stride": (2, 1)}, [("n", 9)]),
    ("strided_slice", {"begin": ("n",), "end": (-20,), "stride": (-2,)}, [("n", 4)]),
    ("strided_slice", {"begin": ("n - 3",), "end": ("n + 3",)}, [("2*n",)]),
    ("tile", {"reps": ("n", 1, "s")}, [(2, "m")]),
    ("repeat", {"repeats": "n", "axis": 1}, [(2, "m")]),
    ("repeat", {"repeats": "n"}, [(2, "m")]),
    ("split", {"indices_or_sections": ("n", "n + s + 1"), "axis": 0}, [("2*n + s + m + 2", 3)]),
    ("pad", {"pad_width": ((0, "n"), ("s", 1))}, [("m", 5)]),
    ("resize", {"size": ("2*n + 1", "s + 1")}, [("m", 3, 8, 8)]),
    ("topk", {"k": "min(n, 5)"}, [("m", 11)]),
    ("one_hot", {"depth": "n"}, [("m", 3)]),
]


@pytest.mark.parametrize(("name", "attrs", "shapes"), SYMBOLIC)
def test_names_in_attributes(name, attrs, shapes):
    op, rng = Op.get(name), np.random.default_rng(3)
    params = op.parse({key: text_of(value) for key, value in attrs.items()})
    assert op.parse(canonical(params)) == params
    open_said = run(op, params, shapes)
    assert open_said is not None
    checked = 0
    for _ in range(40):
        numbers = {key: int(rng.integers(0, 9)) for key in "nsm"}
        bound = op.parse({key: text_of(value) for key, value in attrs.items()} | bound_attrs(params, numbers))
        assert not symbolic_names(bound)
        actual = [shape and tuple(evaluate(dim, numbers) for dim in shape) for shape in shapes]
        said = run(op, bound, actual) if 0 not in numbers.values() else None  # 0 is no extent to reshape
        for told, known in zip(open_said, said or []):
            for dim, number in zip(told or (), known or ()):
                checked += dim is not None and number is not None
                assert dim is None or number is None or evaluate(dim, numbers) == number
    assert checked or name in ("strided_slice", "arange")


def test_attributes_that_hold_no_extents_refuse_names():
    for name, attrs in [("expand_dims", {"axis": "n"}), ("conv2d", {"channels": "n", "kernel_size": "3"})]:
        with pytest.raises(InvalidValue, match="cannot be 'n'"):
            Op.get(name).parse(attrs)
    with pytest.raises(InvalidValue, match="cannot be"):
        Op.get("reshape").parse({"shape": "(n, a b)"})
    assert bound_attrs(Op.get("reshape").parse({"shape": "(n, s)"}), {"n": 1}) == {"shape": "[1,s]"}
