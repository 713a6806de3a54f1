"""A format of one's own on what all importers share: a table, a class of nodes and a walk. numpy says what is right."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.base.dtype import FLOAT32
from weft.base.errors import FormatError, NotFound, RegistryError, Unsupported
from weft.core.interpret import evaluate
from weft.core.symbol import Symbol
from weft.frontend.building import Building, alike_rows
from weft.frontend.converters import ConverterTable
from weft.frontend.deferred import DEFERRED, converted
from weft.frontend.emitter import Emitter, Value
from weft.frontend.nodes import ImportedNode
from weft.frontend.reading import reading

TOY: ConverterTable[Building] = ConverterTable(alike_rows("Tanh tanh\nLeaky leaky_relu slope=alpha"), {"Hyper": "Tanh"})


class ToyNode(ImportedNode):
    importer = "toy"
    table = TOY

    def __init__(self, op_type: str, name: str, attrs: dict[str, float]) -> None:
        super().__init__(op_type, name, num_outputs=1, wanted=[0])
        self._attrs = attrs

    @property
    def attributes(self) -> dict[str, float]:
        return self._attrs

    def written(self) -> dict:
        return {"row": [self.op_type, self.name, self._attrs]}

    @classmethod
    def read(cls, fields: dict) -> ToyNode:
        return cls(*fields["row"])


def from_toy(rows: list[tuple[str, str, str, dict]], shape: tuple, **brought) -> tuple[Symbol, dict]:
    """Rows are an operator, the name of its result, names of its inputs, and attributes."""
    emitter = Emitter()
    values: dict[str, Value | None] = {"x": emitter.input("x", shape, FLOAT32)}
    for op_type, name, sources, attributes in rows:
        node = ToyNode(op_type, name, attributes)
        with reading(node.label, op_type):
            (values[name],) = node.results(emitter, [values[source] for source in sources.split()], brought)
    symbol = emitter.output(values[rows[-1][1]], rows[-1][1])
    return symbol, emitter.used_params(symbol)


@TOY.converter("Shift")
def shift(call: Building) -> Value:
    return call.shifted(call[0], call.attr("by"))


@TOY.converter("Ravel")
def ravel(call: Building) -> Value:
    """By a shape of numbers: an open one makes the node wait."""
    return call.flat(call[0])


@TOY.converter("Rows", by_shape=True)
def rows(call: Building) -> Value:
    return call.make([call.shape(call[0])[0]])


@TOY.converter("First", decides=(1,))
def first(call: Building) -> Value:
    (stop,) = call.ints(1, "how many there are")
    return call.sliced(call[0], {0: (0, stop, 1)})


@TOY.converter("Curious")
def curious(call: Building) -> Value:
    return call.shifted(call[0], call.number(0, "its own value"))


@TOY.host_step("Distinct")
def distinct(node: ToyNode, x: np.ndarray) -> list[np.ndarray]:
    return [np.unique(x)]


def ops_of(symbol: Symbol) -> list[str]:
    return [part.attr("op_name") for part in symbol.get_internals() if part.attr("op_name") != "null"]


CHAIN = [
    ("Hyper", "t", "x", {}),
    ("Leaky", "l", "t", {"slope": 0.25}),
    ("Shift", "s", "l", {"by": 1.5}),
    ("Ravel", "y", "s", {}),
]


def chain(x: np.ndarray) -> np.ndarray:
    t = np.tanh(x)
    return np.where(t < 0, 0.25 * t, t).ravel() + 1.5


def test_a_model_of_known_shapes_is_operators(rng):
    x = rng.standard_normal((3, 4)).astype("float32")
    symbol, params = from_toy(CHAIN, (3, 4))
    assert ops_of(symbol) == ["tanh", "leaky_relu", "__add_scalar__", "reshape"]
    np.testing.assert_allclose(evaluate(symbol, {"x": x})[0], chain(x), rtol=1e-6)
    np.testing.assert_allclose(weft.compile((symbol, params))(x)[0], chain(x), rtol=1e-5)


def test_what_needs_numbers_waits_for_them(rng):
    symbol, params = from_toy(CHAIN, ("rows", "columns"))
    assert ops_of(symbol) == ["tanh", "leaky_relu", "__add_scalar__", "deferred"]
    model = weft.compile((symbol, params))
    for shape in ((2, 3), (5, 1), tuple(rng.integers(1, 9, 2))):
        x = rng.standard_normal(shape).astype("float32")
        np.testing.assert_allclose(model(x)[0], chain(x), rtol=1e-5)


def test_shapes_values_and_host_steps_in_one_model(rng):
    """Of the distinct numbers, as many as there are rows."""
    nodes = [("Rows", "n", "x", {}), ("Distinct", "d", "x", {}), ("First", "y", "d n", {})]
    symbol, params = from_toy(nodes, ("rows", "columns"))
    assert ops_of(symbol) == ["host_step", "deferred", "deferred"]
    model = weft.compile((symbol, params))
    for shape in ((2, 3), (4, 5), tuple(rng.integers(2, 9, 2))):
        x = rng.standard_normal(shape).astype("float32")
        np.testing.assert_array_equal(model(x)[0], np.unique(x)[: len(x)])


def test_callers_bring_converters(rng):
    x = rng.standard_normal((2, 3)).astype("float32")
    symbol, _ = from_toy([("Mine", "y", "x", {"by": 2})], (2, 3), Mine=lambda ins, attrs: ins[0] * float(attrs["by"]))
    np.testing.assert_array_equal(evaluate(symbol, {"x": x})[0], x * 2)


@pytest.mark.parametrize(
    ("row", "kind", "said"),
    [
        (("Shift", "y", "x", {}), FormatError, "attribute 'by' is missing"),
        (("Shift", "y", "x", {"by": 1, "twist": 2}), Unsupported, "Shift with attribute 'twist' = 2"),
        (("Shift", "y", "x x", {"by": 1}), Unsupported, r"Shift with input 1 \('x'\)"),
        (("Curious", "y", "x", {}), RegistryError, r"asks for the value of input 0(?s:.*)decides=\(..., 0\)"),
        (("Nothing", "y", "x", {}), Unsupported, "operator Nothing is not supported"),
    ],
)
def test_errors_name_the_node(row, kind, said):
    with pytest.raises(kind, match=said) as caught:
        from_toy([row], (2, 3))
    assert caught.value.where == f"node 'y' ({row[0]})"


def test_one_converter_an_operator_and_version():
    table: ConverterTable[Building] = ConverterTable(alike_rows("Tanh tanh"))
    with pytest.raises(RegistryError, match="Tanh has a converter already"):
        table.converter("Tanh")(ravel)
    table.converter("Tanh", since=7)(ravel)
    table.converter("Tanh", domain="another")(ravel)
    assert [table.find("Tanh", version).convert is ravel for version in (1, 6, 7, 8)] == [False, False, True, True]
    assert table.operators() == [("", "Tanh"), ("another", "Tanh")]
    assert table.supported() == ["Tanh"]
    assert table.find("Ravel") is None


def test_a_node_of_an_importer_that_is_not_there():
    params = DEFERRED.parse({"importer": "nobody", "node": "{}", "num_outputs": "1"})
    with pytest.raises(NotFound, match="no importer 'nobody'"):
        converted(params, Emitter(), [])
