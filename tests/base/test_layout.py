import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.base.errors import InvalidType, LayoutError
from weft.base.layout import UNDEFINED, Layout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NCHWC", "axis C is there twice"),
        ("NCHW4c8c", "axis c is there twice"),
        ("N16CHW", "character 1"),
        ("NCHWc", "character 4"),
        ("NCH16w", "missing axis W"),
        ("", "cannot be empty"),
        ("NC-HW", "character 2"),
        ("NC HW", "character 2"),
        ("NCHW0c", "character 4"),
        ("NCHW16", "character 4"),
        ("NCHÄ", "character 3"),
        ("NCHW99999999999c", "character 4"),
    ],
)
def test_malformed(name, message):
    with pytest.raises(LayoutError) as caught:
        Layout(name)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", [None, 4, ["N"]])
def test_not_text(name):
    with pytest.raises(InvalidType, match="a layout is a string"):
        Layout(name)


def test_reading():
    layout = Layout("NCHW16c")
    assert (layout.ndim, layout.index_of("H"), layout.index_of("c")) == (5, 2, 4)
    assert (layout.index_of("D"), layout.subsizeof("C"), layout.subsizeof("c")) == (-1, 16, 16)
    assert layout.subsizeof("H") == -1
    assert "c" in layout
    assert "h" not in layout
    assert (str(layout), repr(layout)) == ("NCHW16c", "Layout('NCHW16c')")
    assert layout == Layout("NCHW16c")
    assert len({layout, Layout("NCHW16c"), Layout("NCHW8c")}) == 2


def test_undefined():
    undefined = Layout()
    assert undefined == Layout(UNDEFINED)
    assert not undefined.defined
    assert undefined.ndim == 0
    assert not undefined.convertible(Layout("N"))
    assert undefined.reverse() == undefined
    assert undefined + Layout("NC") == Layout("NC") + undefined == Layout("NC")


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ("NCHW", "NHWC", True),
        ("NCHW", "NCHW16c", True),
        ("NCHW4c", "NCHW16c", True),
        ("NCHW", "CHW", False),
        ("NCHW", UNDEFINED, False),
    ],
)
def test_convertible(a, b, answer):
    assert Layout(a).convertible(Layout(b)) is Layout(b).convertible(Layout(a)) is answer


def test_parts_and_order():
    layout = Layout("NCHW16c")
    assert layout.sublayout(1, 3) == Layout("CHW")
    assert layout.sublayout(1, 4) == Layout("CHW16c")
    assert not layout.sublayout(3, 0).defined
    assert not layout.sublayout(3, 9).defined
    assert not layout.sublayout(-1, 2).defined
    assert layout.reverse() == Layout("16cWHCN")
    assert Layout("NC") + Layout("HW") == Layout("NCHW")
    with pytest.raises(LayoutError, match="axis C is there twice"):
        Layout("NC") + Layout("CH")


@pytest.mark.parametrize(("position", "name"), [(4, "NCHW8c"), (2, "NC8cHW"), (0, "8cNCHW")])
def test_split(position, name):
    assert Layout("NCHW").split("C", position, 8) == Layout(name)


@pytest.mark.parametrize(
    ("name", "axis", "position", "size"),
    [
        ("NCHW", "D", 0, 4),
        ("NCHW", "c", 0, 4),
        ("NCHW8c", "C", 0, 4),
        ("NCHW", "C", 0, 0),
        ("NCHW", "C", 5, 4),
        ("NCHW", "C", -1, 4),
        (UNDEFINED, "C", 0, 4),
    ],
)
def test_split_refused(name, axis, position, size):
    with pytest.raises(LayoutError, match="cannot"):
        Layout(name).split(axis, position, size)


@given(st.permutations("NCHW"), st.permutations("NCHW"))
def test_convert_shape_of_permutations_is_numpys_transpose(source, target):
    shape = (2, 3, 5, 7)
    order = [source.index(letter) for letter in target]
    expected = np.empty(shape).transpose(order).shape
    assert Layout("".join(source)).convert_shape(shape, Layout("".join(target))) == expected


@given(st.integers(1, 5), st.sampled_from([2, 4, 8]), st.sampled_from([2, 4, 8]))
def test_convert_shape_of_blocks(outer, block, other):
    plain, blocked = Layout("NCHW"), Layout(f"NCHW{block}c")
    assert plain.convert_shape((1, outer * block, 6, 7), blocked) == (1, outer, 6, 7, block)
    assert blocked.convert_shape((1, outer, 6, 7, block), plain) == (1, outer * block, 6, 7)
    again = Layout(f"NCHW{other}c")
    if outer * block % other == 0:
        expected = (1, outer * block // other, 6, 7, other)
        assert blocked.convert_shape((1, outer, 6, 7, block), again) == expected


def test_convert_shape_of_unknowns():
    blocked = Layout("NCHW16c")
    assert Layout("NCHW").convert_shape(("n", None, 6, 7), blocked) == ("n", None, 6, 7, 16)
    assert Layout("NCHW").convert_shape(None, blocked) is None


@pytest.mark.parametrize(
    ("source", "shape", "target", "message"),
    [
        ("NCHW", (1, 8, 4, 4), "NCHW16c", "dimension C of 8 cannot be split in blocks of 16"),
        ("NCHW", (1, 24, 4, 4), "NCHW16c", "cannot be split"),
        ("NCHW", (1, 2, 3), "NHWC", "is not in layout NCHW"),
        ("NCHW4c", (1, 2, 3, 3, 5), "NCHW", "its block 4c has 5 elements"),
        ("NCHW", (1, 2, 3, 4), "CHW", "layout NCHW does not convert to CHW"),
        ("NCHW", (1, 2, 3, 4), UNDEFINED, "does not convert"),
    ],
)
def test_convert_shape_refused(source, shape, target, message):
    with pytest.raises(LayoutError) as caught:
        Layout(source).convert_shape(shape, Layout(target))
    assert message in str(caught.value)
