"""Schemas of functions: read and printed as PyTorch does, and calls checked against them."""

import pickle
import re

import numpy as np
import pytest
from oracles import oracle

import weft
from weft._C import parse_schema

WRITTEN = [
    'f(int[2] x=[0, 0], float y=1.5, str s="mean", bool b=False, Tensor? t=None, *, Device? d=None, int[3] z=1) -> '
    "(Tensor, Tensor[] rest)",
    "f() -> ()",
    "ns::split(Tensor(a -> *) self, int n, ...) -> Tensor(a)[]",
    "f(Dict(str, int) d, (int, int) t, float x=-2.5, int m=-3, complex c=1j) -> int?",
    "f(Tensor x, *, Tensor(a!) out) -> Tensor(a!)",
    "f(MemoryFormat? m=contiguous_format, ScalarType d=float, Layout l=strided) -> Tensor",
]
OLDER = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
NEWER = [
    OLDER,
    "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1, int extra=2) -> Tensor",
    "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1, int extra) -> Tensor",
    "aten::add.Tensor(Tensor self, Tensor other) -> Tensor",
    "aten::add.Tensor(Tensor self, Tensor? other, *, Scalar alpha=1) -> Tensor",
    "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor?",
    "aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
]


def facts(schema):
    """What two schemas are compared by; floats by their value, which is printed with other digits."""
    digits = re.compile(r"\d+(\.\d*(e[-+]?\d+)?|e[-+]?\d+)")
    arguments = [
        (a.name, str(a.type), a.N, a.has_default_value(), a.default_value, a.kwarg_only, a.is_out, a.is_write)
        for a in schema.arguments
    ]
    returns = [(a.name, str(a.type), a.is_write) for a in schema.returns]
    return digits.sub("#", str(schema)), schema.name, schema.overload_name, schema.is_mutable, arguments, returns


def test_every_schema_of_pytorch_is_read():
    theirs = oracle("torch")._C
    texts = [
        str(schema) for schema in theirs._jit_get_all_schemas() if "PyObject" not in str(schema)
    ]  # theirs refuses it
    assert len(texts) > 4000
    wrong = [text for text in texts if facts(parse_schema(text)) != facts(theirs.parse_schema(text))]
    assert [text for text in wrong if "float? correction=1," not in text] == []  # which they read as an int
    for text in texts:
        assert str(parse_schema(str(parse_schema(text)))) == str(parse_schema(text))


@pytest.mark.parametrize("text", WRITTEN)
def test_a_schema_that_is_written_by_hand(text):
    ours, theirs = parse_schema(text), oracle("torch")._C.parse_schema(text)
    assert facts(ours)[1:] == facts(theirs)[1:]
    again = pickle.loads(pickle.dumps(ours))
    assert again == ours
    assert hash(again) == hash(ours)
    for one, two in zip(ours.arguments, theirs.arguments):
        assert str(one.real_type) == str(two.real_type)
        if two.alias_info is not None:
            assert set(one.alias_info.after_set) == set(two.alias_info.after_set)


@pytest.mark.parametrize("text", NEWER)
def test_schemas_that_fit_older_ones(text):
    theirs = oracle("torch")._C.parse_schema
    for new, old in ((text, OLDER), (OLDER, text)):
        ours = parse_schema(new).is_backward_compatible_with(parse_schema(old))
        assert ours == theirs(new).is_backward_compatible_with(theirs(old)), (new, old)
    fits, why = parse_schema(text).check_forward_compatible_with(parse_schema(OLDER))
    assert fits == (why == "")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("f(int x", "expected \\) but found 'eof' here"),
        ("f(x) -> int", "expected ident but found '\\)' here"),
        ("f(int x=a) -> int", "invalid numeric default value"),
        ("f(int x=1, int y) -> int", "Non-default positional argument follows default argument"),
        ("a b(int x) -> int", "expected eof but found 'ident' here"),
        ("", "expected ident but found 'eof' here"),
        ("f(Floaty x) -> int", "unknown type specifier"),
        ("f(int x) -> int $", "expected eof"),
    ],
)
def test_what_is_no_schema_is_refused(text, what):
    with pytest.raises(RuntimeError, match=what):
        parse_schema(text)


CALLED = parse_schema('f(Tensor a, int b, float c=1.5, int[]? d=None, *, str e="x") -> Tensor')
X = weft.tensor(np.arange(3.0))


@pytest.mark.parametrize(
    ("args", "kwargs", "values"),
    [
        ((X, 2), {}, [2, 1.5, None, "x"]),
        ((X,), {"b": 3, "c": 2}, [3, 2.0, None, "x"]),
        ((X, 2, 0.5, (1, 2)), {"e": "y"}, [2, 0.5, [1, 2], "y"]),
    ],
)
def test_arguments_of_a_call(args, kwargs, values):
    assert CALLED.bound(args, kwargs)[1:] == values
    assert type(CALLED.bound(args, kwargs)[2]) is float


@pytest.mark.parametrize(
    ("args", "kwargs", "what"),
    [
        ((X,), {}, r"f\(\) is missing value for argument 'b'. Declaration: f\(Tensor a, int b"),
        ((X, 1, 2.0, None, 5), {}, r"f\(\) expected at most 4 argument\(s\) but received 5 argument\(s\)"),
        ((X, 1), {"k": 2}, "Unknown keyword argument 'k' for operator 'f'. Schema: f"),
        ((3, 1), {}, "Expected a value of type 'Tensor' for argument 'a' but instead found type 'int'"),
        ((X, 1.5), {}, "Expected a value of type 'int' for argument 'b' but instead found type 'float'"),
        ((X, True), {}, "Expected a value of type 'int' for argument 'b'"),
        ((X, 1), {"b": 2}, "multiple values for argument 'b'"),
        ((X, 1, 1.0, ["a"]), {}, "for argument 'd'"),
    ],
)
def test_calls_that_do_not_fit(args, kwargs, what):
    with pytest.raises(RuntimeError, match=what):
        CALLED.bound(args, kwargs)
