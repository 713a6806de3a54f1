"""The gradient of a graph, as two graphs: one that computes, and one that takes gradients of its results and gives
those of its inputs. Gradients of operators are those of eager tensors: `weft::vjp` asks for those of one operator."""

from __future__ import annotations

from dataclasses import dataclass

from ...base.errors import RunError
from ..graph import Graph
from ..nodes import Node, Value
from ..types import TensorType

_FLOATING = frozenset(("Float", "Double", "Half", "BFloat16", "ComplexFloat", "ComplexDouble"))


@dataclass(frozen=True)
class Gradient:
    """`f` gives its real results first, then what `df` captures of what it computed. The inputs of `df` are, in order:
    gradients of the results in `df_input_vjps`, the inputs of `f` in `df_input_captured_inputs`, the results of `f` in
    `df_input_captured_outputs`. It gives gradients of the inputs of `f` in `df_output_vjps`."""

    f: Graph
    df: Graph
    f_real_outputs: int
    df_input_vjps: list[int]
    df_input_captured_inputs: list[int]
    df_input_captured_outputs: list[int]
    df_output_vjps: list[int]


def differentiate(graph: Graph) -> Gradient:
    """The gradient of a graph of operators, without blocks and without writes to memory.

    >>> from ..parse import parse_ir
    >>> gradient = differentiate(parse_ir('''
    ... graph(%x : Float(2), %y : Float(2)):
    ...   %z : Float(2) = aten::mul(%x, %y)
    ...   %w : Float(2) = aten::tanh(%z)
    ...   return (%w)
    ... '''))
    >>> gradient.f_real_outputs, gradient.df_input_captured_inputs, gradient.df_input_captured_outputs
    (1, [0, 1], [1])
    >>> print(gradient.df)
    graph(%0 : Tensor,
          %x : Float(2),
          %y : Float(2),
          %z : Float(2)):
      %1 : Tensor = prim::GradOf[name="aten::tanh"](%0)
        block0():
          %3 : Tensor = weft::vjp[name="aten::tanh", wanted=[0], given=[0]](%z, %0)
          -> (%3)
      %4 : Tensor, %5 : Tensor = prim::GradOf[name="aten::mul"](%1)
        block0():
          %8 : Tensor, %9 : Tensor = weft::vjp[name="aten::mul", wanted=[0, 1], given=[0]](%x, %y, %1)
          -> (%8, %9)
      return (%4, %5)
    <BLANKLINE>
    """
    return _Differentiation(graph.copy()).gradient()


class _Differentiation:
    def __init__(self, graph: Graph) -> None:
        self.f, self.df = graph, Graph()
        self.wanted: set[Value] = set()  # values that need gradients
        self.known: dict[Value, Value] = {}  # gradients in df, by values of f
        self.captured: dict[Value, Value] = {}  # what df takes of f

    def gradient(self) -> Gradient:
        real = list(self.f.outputs())
        inputs = list(self.f.inputs())
        self.wanted |= {value for value in inputs if _may_have_gradient(value)}
        for node in self.f.nodes():
            self.note(node)
        vjps = [place for place, value in enumerate(real) if value in self.wanted]
        for place in vjps:
            self.add(real[place], self.df.addInput())
        for node in reversed(list(self.f.nodes())):
            self.backward(node)
        given = [place for place, value in enumerate(inputs) if value in self.known]
        for place in given:
            self.df.registerOutput(self.known[inputs[place]])
        outputs = self.capture_results(inputs)
        captured = [place for place, value in enumerate(inputs) if value in self.captured]
        self.order_inputs(len(vjps), [inputs[place] for place in captured], outputs)
        results = list(self.f.outputs())
        return Gradient(self.f, self.df, len(real), vjps, captured, [results.index(value) for value in outputs], given)

    def note(self, node: Node) -> None:
        """Finds out which results of a node need gradients."""
        operator = node._operator()
        if node._blocks or (operator is not None and operator.schema.is_mutable):
            raise RunError(
                f"{node.kind()} cannot be differentiated",
                why="it has blocks" if node._blocks else "it writes to what it reads",
                hint="weft._C._jit_pass_create_autodiff_subgraphs takes out what can be",
            )
        if any(value in self.wanted for value in node._inputs):
            if operator is None:
                raise RunError(f"{node.kind()} cannot be differentiated", why="no operator takes what it reads")
            self.wanted |= {value for value in node._outputs if _may_have_gradient(value)}

    def add(self, value: Value, gradient: Value) -> None:
        """A gradient of a value, besides those that are there."""
        if value in self.known:
            gradient = self.df.insert("prim::AutogradAdd", [self.known[value], gradient])
        self.known[value] = gradient

    def backward(self, node: Node) -> None:
        """The gradients of what a node reads, by those of what it gives."""
        given = [place for place, value in enumerate(node._outputs) if value in self.known]
        wanted = [place for place, value in enumerate(node._inputs) if value in self.wanted]
        if not given or not wanted:
            return
        gradients = [self.known[node._outputs[place]] for place in given]
        outer = self.df.insertNode(self.df.create("prim::GradOf", gradients, len(wanted)))
        outer._set("s", "name", node.kind())
        block = outer.addBlock()
        with self.df.insert_point_guard(block):
            values = [self.captured_value(value) for value in node._inputs]
            inner = self.df.insertNode(self.df.create("weft::vjp", [*values, *gradients], len(wanted)))
        inner._set("s", "name", node.kind())
        inner._set("is", "wanted", wanted)
        inner._set("is", "given", given)
        for place, result, total in zip(wanted, inner._outputs, outer._outputs):
            block.registerOutput(result)
            self.add(node._inputs[place], total)

    def captured_value(self, value: Value) -> Value:
        """A value of f in df: a constant is made again, others come in."""
        if value.node().kind() == "prim::Constant":
            return self.df.insertNode(self.df.createClone(value.node(), lambda other: other)).output()
        if value not in self.captured:
            self.captured[value] = self.df.addInput().copyMetadata(value)
        return self.captured[value]

    def capture_results(self, inputs: list[Value]) -> list[Value]:
        """Has f give what df captures and is no input; gives those values."""
        results, found = set(self.f.outputs()), [value for value in self.captured if value not in set(inputs)]
        for value in found:
            if value not in results:
                self.f.registerOutput(value)
        return found

    def order_inputs(self, vjps: int, inputs: list[Value], outputs: list[Value]) -> None:
        places = {value: place for place, value in enumerate(self.df.inputs())}
        self.df.permuteInputs([*range(vjps), *[places[self.captured[value]] for value in (*inputs, *outputs)]])


def _may_have_gradient(value: Value) -> bool:
    kind = value.type()
    return isinstance(kind, TensorType) and kind.requires_grad() and (kind.scalar is None or kind.scalar in _FLOATING)
