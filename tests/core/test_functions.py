"""Operators as functions of a module: signature, docstring, namespaces, late registration."""

import inspect

import pytest
from core.core_ops import fresh, fresh_name, linear, scale

from weft.core.functions import docstring, fill_namespace, signature
from weft.core.op import VARIADIC, Op
from weft.core.symbol import Symbol, Variable


class Other(Symbol):
    __slots__ = ()


def test_functions_make_symbols_of_the_class_given():
    public = {}
    op = scale()
    fill_namespace(Other, public)
    made = public[op.name](Variable("x"), factor=3)
    assert type(made) is Other
    assert made.attr("factor") == "3"


def test_an_operator_registered_later_appears_at_once():
    public, internal, contrib = {}, {}, {}
    fill_namespace(Symbol, public, internal, contrib)
    name = fresh_name("late")
    assert name not in public
    op = Op.register(name)
    assert public[name](Variable("x")).attr("op_name") == name
    op.add_alias(f"_{name}").add_alias(f"_contrib_{name}")
    assert public[f"_{name}"] is internal[f"_{name}"]
    assert contrib[name] is public[f"_contrib_{name}"]
    assert name not in internal
    alias = public[f"_{name}"](Variable("x"))
    assert alias.attr("op_name") == name
    assert alias.attr("name").startswith(f"_{name}")


def test_functions_follow_what_is_registered_about_the_operator():
    public = {}
    fill_namespace(Symbol, public)
    op = fresh().describe("first")
    function = public[op.name]
    op.describe("second").add_argument("data", "Tensor", "what comes in")
    assert public[op.name] is function
    assert function.__doc__.startswith("second\n")
    assert "data : Tensor\n    what comes in" in function.__doc__
    assert (function.__name__, function.__qualname__) == (op.name, op.name)


def test_names_of_the_module_itself_are_kept():
    name = fresh_name("taken")
    public = {name: "mine"}
    fill_namespace(Symbol, public)
    Op.register(name)
    assert public[name] == "mine"


def test_docstring():
    op = fresh().describe("Adds things.")
    op.add_arguments([("a", "Tensor", "one"), ("a", "Tensor", "again"), ("b", "int", "two")])
    assert docstring(op) == (
        "Adds things.\n\nParameters\n----------\na : Tensor\n    one\nb : int\n    two\n\n"
        "Returns\n-------\nresult : Tensor\n    The result."
    )


def test_signature_of_named_inputs_and_attributes():
    assert str(signature(linear())) == ("(data=None, weight=None, bias=None, *, factor=2.0, name=None, attr=None)")


def test_signature_of_positional_inputs():
    assert str(signature(fresh())) == "(data=None, *, name=None, attr=None, **kwargs)"
    two = fresh().set_num_inputs(2)
    assert str(signature(two)) == "(*data, name=None, attr=None, **kwargs)"
    assert str(signature(fresh().set_num_inputs(VARIADIC))).startswith("(*data")
    assert str(signature(fresh().set_num_inputs(0))) == "(*, name=None, attr=None, **kwargs)"


def test_inputs_that_depend_on_attributes_are_those_documented():
    op = fresh().set_num_inputs(lambda p: 2)
    op.input_names = lambda p: ["data", "bias"]
    op.add_arguments([("data", "Tensor", ""), ("bias", "Tensor", ""), ("data", "Tensor", "")])
    assert str(signature(op)).startswith("(data=None, bias=None, *,")


@pytest.mark.parametrize("names", [["class", "x"], ["name", "x"], ["kwargs", "x"], ["a b", "x"]])
def test_names_that_python_cannot_have_as_parameters_do_not_stop_registration(names):
    public = {}
    fill_namespace(Symbol, public)
    op = fresh().set_num_inputs(2)
    op.input_names = names
    assert isinstance(inspect.signature(public[op.name]), inspect.Signature)
    assert "x" in inspect.signature(public[op.name]).parameters
