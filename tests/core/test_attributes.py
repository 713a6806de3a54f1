"""Typed attributes: what text is read as, how it is written back, and what is refused."""

import contextlib
import math

import numpy as np
import pytest
from bounds import ends
from hypothesis import given
from hypothesis import strategies as st

from weft.base.errors import Error, InvalidValue
from weft.core import schema as s
from weft.core.schema import attr, canonical, fields_of, is_hidden, parse, schema, text_of


@schema
class EverythingAttrs:
    count: int = attr(s.INT, "a number", low=0, high=10)
    slope: float = attr(s.FLOAT, "a slope", default=0.25, low=0)
    flag: bool = attr(s.BOOL, "a switch", default=False)
    shape: tuple[int, ...] = attr(s.INTS, "a shape", default=(1, 2))
    pads: tuple[tuple[int, ...], ...] = attr(s.PAIRS, "pads", default=(), low=0)
    axis: int | None = attr(s.optional(s.INT), "an axis", default=None)
    mode: str = attr(s.choice("up", "down"), "a mode", default="up")
    dtype: np.dtype = attr(s.DTYPE, "a dtype", default=np.dtype("float32"))
    layout: str = attr(s.LAYOUT, "a layout", default="NCHW")
    text: str = attr(s.STR, "anything", default="")


def read(**attrs):
    return parse(EverythingAttrs, {"count": "1", **attrs}, "operator every")


INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1,2)", (1, 2)),
        ("[1, 2]", (1, 2)),
        ("3", (3,)),
        ("()", ()),
        ("[]", ()),
        ("( )", ()),
        ("(1,)", (1,)),
        ("(2L, 3L)", (2, 3)),
        (" [ -1 , +2 ] ", (-1, 2)),
        ("7L", (7,)),
    ],
)
def test_tuples_are_read(text, value):
    assert read(shape=text).shape == value


@pytest.mark.parametrize(
    "text", ["(1", "1)", "(1,,2)", "(,)", "1,2", "(1 2)", "(1.5)", "((1,2))", "(1)x", "", " ", "[1)"]
)
def test_what_is_no_tuple_of_ints(text):
    with pytest.raises(InvalidValue, match="'shape' cannot be"):
        read(shape=text)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("1", True), ("FALSE", False), ("0", False), ("False", False)]
)
def test_bools_are_read(text, value):
    assert read(flag=text).flag is value


@pytest.mark.parametrize("text", ["yes", "2", "", "t", "None"])
def test_what_is_no_bool(text):
    with pytest.raises(InvalidValue, match="expected bool"):
        read(flag=text)


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1.0), ("1e-5", 1e-5), ("0.5f", 0.5), (".5", 0.5), ("5.", 5.0), ("inf", math.inf)]
)
def test_floats_are_read(text, value):
    assert read(slope=text).slope == value


@pytest.mark.parametrize("text", ["1x", "1e", "--1", "1_0", "0x10", "1e999", "", "nan(1)", "1ff"])
def test_what_is_no_float(text):
    with pytest.raises(InvalidValue, match="'slope' cannot be"):
        read(slope=text)


def test_ranges_are_inclusive():
    assert read(count="0").count == 0
    assert read(count="10").count == 10
    for text in ("-1", "11"):
        with pytest.raises(InvalidValue, match=r"within \[0, 10\]|'count' cannot be"):
            read(count=text)
    with pytest.raises(InvalidValue, match="'slope' cannot be"):
        read(slope="-0.5")
    with pytest.raises(InvalidValue, match="'slope' cannot be"):
        read(slope="nan")


def test_range_of_nested_tuples():
    assert read(pads="((0,1),(2,3))").pads == ((0, 1), (2, 3))
    with pytest.raises(InvalidValue, match="'pads' cannot be -1"):
        read(pads="((0,-1),)")


def test_others():
    assert read(axis="None").axis is None
    assert read(axis="-1").axis == -1
    assert read(mode="down").mode == "down"
    assert read(dtype="int8").dtype == np.dtype("int8")
    assert read(layout="NCHW16c").layout == "NCHW16c"
    assert read(layout="__undef__").layout == "__undef__"
    for bad in ({"mode": "left"}, {"dtype": "float31"}, {"layout": "NN"}, {"axis": "none"}):
        with pytest.raises(InvalidValue, match="cannot be"):
            read(**bad)


def test_unknown_attribute_lists_the_known_and_names_the_nearest():
    with pytest.raises(InvalidValue, match="unknown attribute 'cont'") as caught:
        parse(EverythingAttrs, {"count": "1", "cont": "1"}, "operator every")
    shown = str(caught.value)
    assert "operator every" in shown
    assert "did you mean 'count'" in shown
    assert "slope (float, optional, default=0.25)" in shown


def test_missing_required_attribute():
    with pytest.raises(InvalidValue, match=r"required attribute 'count' \(int\)"):
        parse(EverythingAttrs, {}, "operator every")


def test_hidden_keys_are_accepted_and_ignored():
    assert parse(EverythingAttrs, {"count": "1", "__group__": "a"}, "x").count == 1
    assert is_hidden("__a__")
    assert not any(map(is_hidden, ["____", "__a", "a__", "_a_", "a"]))


def test_canonical_text_has_every_attribute():
    assert canonical(read(shape="(3, 4)", flag="True")) == {
        "count": "1",
        "slope": "0.25",
        "flag": "1",
        "shape": "[3,4]",
        "pads": "[]",
        "axis": "None",
        "mode": "up",
        "dtype": "float32",
        "layout": "NCHW",
        "text": "",
    }


def test_parsed_params_are_frozen_and_hashable():
    params = read()
    with pytest.raises(AttributeError):
        params.count = 2
    assert params == read()
    assert hash(params) == hash(read())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (False, "False"),
        ((1, 2), "(1, 2)"),
        ((1,), "(1,)"),
        ([1], "[1]"),
        ((), "()"),
        (np.float32, "float32"),
        (np.dtype("int8"), "int8"),
        (np.int64(3), "3"),
        (-1.0, "-1.0"),
        (1, "1"),
        (None, "None"),
        ("as it is", "as it is"),
        (np.array([1, 2]), "(1, 2)"),
        (((0, 1), (2, 3)), "((0, 1), (2, 3))"),
        (np.array(2.5), "2.5"),
    ],
)
def test_text_of_python_values(value, text):
    assert text_of(value) == text


ROUND_TRIPS = [
    (s.INT, INT64),
    (s.FLOAT, st.floats(allow_nan=False)),
    (s.BOOL, st.booleans()),
    (s.INTS, st.lists(INT64, max_size=5).map(tuple)),
    (s.FLOATS, st.lists(st.floats(allow_nan=False), max_size=5).map(tuple)),
    (s.PAIRS, st.lists(st.tuples(INT64, INT64), max_size=4).map(tuple)),
    (s.optional(s.INT), st.none() | INT64),
    (s.DTYPE, st.sampled_from(["float32", "bfloat16", "int8"]).map(s.DTYPE.parse)),
]


@pytest.mark.parametrize(("kind", "values"), ROUND_TRIPS, ids=[k.name for k, _ in ROUND_TRIPS])
@given(data=st.data())
def test_text_is_read_back_as_the_value(kind, values, data):
    value = data.draw(values)
    assert kind.parse(text_of(value)) == value
    assert kind.parse(kind.print(value)) == value


@given(key=st.sampled_from([f.name for f in fields_of(EverythingAttrs)]), text=st.text())
def test_garbage_raises_only_errors_of_weft(key, text):
    with contextlib.suppress(InvalidValue):
        parsed = parse(EverythingAttrs, {"count": "1", key: text}, "operator every")
        again = parse(EverythingAttrs, canonical(parsed), "operator every")
        assert again == parsed or math.isnan(again.slope)


GARBAGE = ["9" * 200_000 + "x", "(" * 200_000, "1," * 100_000, " " * 200_000, "(" + "1," * 100_000]


@pytest.mark.parametrize("text", GARBAGE, ids=["digits", "brackets", "items", "spaces", "open"])
@pytest.mark.parametrize("key", ["count", "slope", "shape", "pads", "layout", "dtype", "flag"])
def test_long_garbage_is_refused(key, text):
    with ends(), pytest.raises(Error):
        read(**{key: text})
