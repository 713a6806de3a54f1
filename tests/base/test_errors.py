import pickle

import pytest

from weft.base import errors
from weft.base.errors import Error

BUILTIN_OF = {
    "InvalidValue": ValueError,
    "InvalidType": TypeError,
    "NotFound": KeyError,
    "OutOfRange": IndexError,
    "ShapeError": ValueError,
    "DTypeError": TypeError,
    "LayoutError": ValueError,
    "RegistryError": ValueError,
    "GraphError": ValueError,
    "FormatError": ValueError,
    "Unsupported": NotImplementedError,
    "RunError": RuntimeError,
}


@pytest.mark.parametrize("name", BUILTIN_OF)
def test_children_are_caught_as_the_builtin_and_print_alike(name):
    kind = getattr(errors, name)
    error = kind("no", where="here", why="because", hint="that")
    assert isinstance(error, Error)
    assert isinstance(error, BUILTIN_OF[name])
    assert str(error) == "no\n  where: here\n  why:   because\n  try:   that"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, "what"),
        ({"where": "w"}, "what\n  where: w"),
        ({"why": "y"}, "what\n  why:   y"),
        ({"hint": "h"}, "what\n  try:   h"),
        ({"where": "w", "hint": "h"}, "what\n  where: w\n  try:   h"),
    ],
)
def test_absent_parts_leave_no_line(parts, text):
    assert str(Error("what", **parts)) == text


def test_at_puts_the_outer_place_first():
    error = Error("x").at("node b").at("file a")
    assert error.where == "file a, node b"


def test_survives_pickling():
    error = pickle.loads(pickle.dumps(errors.ShapeError("x", why="y", hint="z")))
    assert (type(error), str(error)) == (errors.ShapeError, "x\n  why:   y\n  try:   z")
