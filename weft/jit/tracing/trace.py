"""`weft.jit.trace`: a function or module that is run on example inputs, as the program of what it did."""

from __future__ import annotations

import difflib
import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from ...base.errors import InvalidType, RunError
from ...eager.autograd.modes import no_grad
from ...eager.functions.all import FUNCTIONS
from ...eager.functions.around import LISTENERS, around_calls
from ...eager.random.generator import fork_rng
from ...eager.tensor.tensor import Tensor
from ...nn.modules.hooking import register_module_forward_hook, register_module_forward_pre_hook
from ...nn.modules.module import Module
from ..compile.structure import flattened
from ..constants import type_of
from ..frontend.compiler import qualified_name
from ..functions import Function
from ..graph import Graph
from ..modules import ScriptModule
from ..nodes import inside
from ..passes.dead_code import eliminate_dead_code
from ..passes.inlining import inline
from ..passes.renaming import canonicalize
from ..run.tracing_state import TracerWarning, get_tracing_state, set_tracing_state
from ..schema import Argument, FunctionSchema
from ..types import DictType, ListType, TensorType, TupleType, Type
from .modules import TracedModule, traced_tree
from .recorder import Recorder

_WRONG_INPUT = "Only Tensors and (possibly nested) Lists, Dicts, and Tuples of Tensors can be traced"


class TracingCheckError(RunError):
    """A function does something else each time."""


class TopLevelTracedModule(TracedModule):
    """A module as the programs of what its methods did to example inputs."""


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Sequence[Any] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    *,
    example_kwarg_inputs: Mapping[str, Any] | None = None,
) -> Any:
    """A function or module as the program of what it does to example inputs. Branches and loops of Python are not part
    of it; a warning tells where they depend on values. Unless `check_trace` is off, it is traced again, and results
    are compared with those of the function, on the examples and on `check_inputs`.

    >>> import weft
    >>> traced = weft.jit.trace(lambda x: (x * 2).relu(), weft.tensor([-1.0, 3.0]))
    >>> traced(weft.tensor([4.0, -5.0]))
    tensor([8., 0.])
    >>> [node.kind() for node in traced.graph.nodes()]
    ['prim::Constant', 'aten::mul', 'aten::relu']
    """
    inputs = _positional(func, example_kwarg_inputs) if example_kwarg_inputs is not None else _tuple(example_inputs)
    if isinstance(func, (Function, ScriptModule)):
        return func  # a program already
    if isinstance(func, Module):
        return trace_module(func, {"forward": inputs}, None, check_trace, _alone(check_inputs), check_tolerance, strict)
    owner = getattr(func, "__self__", None)
    if isinstance(owner, Module):
        if func.__name__ != "forward":
            raise RunError(f"the method {func.__name__} of a module is traced by trace_module")
        return trace(owner, inputs, None, check_trace, check_inputs, check_tolerance, strict)
    if not callable(func):
        raise InvalidType(f"trace takes a function or a module, not {type(func).__name__}")
    graph, _ = create_graph_by_tracing(func, inputs, None, strict)
    name = qualified_name(func).replace("<lambda>", "lambda_") if hasattr(func, "__qualname__") else "__torch__.traced"
    made = Function(name, schema_of(name.rpartition(".")[2], graph), lambda: graph)
    if check_trace:
        for given in [inputs, *map(_tuple, check_inputs or ())]:
            _check(made, func, given, check_tolerance, partial(create_graph_by_tracing, func, given, None, strict))
    return made


def trace_module(
    mod: Module,
    inputs: Mapping[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Sequence[Mapping[str, Any]] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
) -> Any:
    """A module as the programs of what some of its methods do to example inputs, by the names of the methods.

    >>> import weft
    >>> class Scaled(weft.nn.Module):
    ...     def forward(self, x):
    ...         return x * 2
    ...     def inverse(self, x):
    ...         return x / 2
    >>> traced = trace_module(Scaled(), {"forward": weft.ones(2), "inverse": weft.ones(2)})
    >>> traced.inverse(traced(weft.tensor([1.0, 3.0])))
    tensor([1., 3.])
    """
    if not isinstance(mod, Module):
        raise InvalidType(f"trace_module takes a module, not {type(mod).__name__}")
    if not isinstance(inputs, Mapping):
        raise InvalidType("inputs of trace_module are a dict: example inputs by the name of a method")
    examples = {name: _tuple(given) for name, given in inputs.items()}
    made = _traced_module(mod, examples, strict)
    for given in [examples, *(check_inputs or ())] if check_trace else []:
        for name, values in given.items():
            function = mod if name == "forward" else getattr(mod, name)
            again = partial(_method_again, mod, name, _tuple(values), strict)
            _check(getattr(made, name), function, _tuple(values), check_tolerance, again)
    return made


def _method_again(mod: Module, name: str, inputs: tuple[Any, ...], strict: bool) -> tuple[Graph, None]:
    return _traced_module(mod, {name: inputs}, strict)._get_method(name).inlined_graph, None


def _traced_module(mod: Module, examples: Mapping[str, tuple[Any, ...]], strict: bool) -> TopLevelTracedModule:
    tree = traced_tree(mod, TopLevelTracedModule)
    made = tree[id(mod)]
    assert isinstance(made, TopLevelTracedModule)
    for name, given in examples.items():
        method = mod if name == "forward" else getattr(mod, name)
        graph, _ = _recorded(method, given, _names(getattr(mod, name), len(given)), strict, mod, tree)
        kind = made._type
        schema = schema_of(name, graph)
        kind.add_method(Function(f"{kind.qualified_name()}.{name}", schema, lambda graph=graph: graph))  # type: ignore[misc]
    return made


def create_graph_by_tracing(
    func: Callable[..., Any],
    inputs: Any,
    var_name_lookup_fn: Any = None,
    strict: bool = True,
    force_outplace: bool = False,
    self: Any = None,
    argument_names: Sequence[str] = (),
) -> tuple[Graph, Any]:
    """The graph of what a function does to some inputs, and what it gives."""
    given = _tuple(inputs)
    names = list(argument_names) or _names(func, len(given))
    return _recorded(func, given, names, strict)


def _recorded(
    function: Any, inputs: tuple[Any, ...], names: Sequence[str], strict: bool, module: Any = None, tree: Any = None
) -> tuple[Graph, Any]:
    if get_tracing_state() is not None:
        raise RunError("a function is being traced already", hint="trace one after the other")
    graph = Graph()
    recorder = Recorder(graph, module, tree)
    if module is not None:
        recorder.root.owner = graph.addInput("self").setType(tree[id(module)]._type)
    examples = [copied(value) for value in inputs]
    values = [graph.addInput(name).setType(input_type(value)) for name, value in zip(names, examples)]
    for value, example in zip(values, examples):
        recorder.scatter(value, example)
    with ExitStack() as stack:
        stack.callback(set_tracing_state, None)
        set_tracing_state(recorder.state)
        stack.callback(LISTENERS.remove, recorder.answer)
        LISTENERS.append(recorder.answer)
        stack.enter_context(register_module_forward_pre_hook(recorder.enter))
        stack.enter_context(register_module_forward_hook(recorder.leave))
        stack.enter_context(around_calls(recorder))
        result = function(*examples)
        graph.registerOutput(recorder.gather(result, strict))
    for frame in recorder.closed:
        frame.finish()
        eliminate_dead_code(frame.graph)
        frame.function.schema = schema_of(frame.function.name, frame.graph)
    eliminate_dead_code(graph)
    return graph, result


# Inputs and schemas


def _tuple(inputs: Any) -> tuple[Any, ...]:
    if isinstance(inputs, (Tensor, dict)):
        return (inputs,)
    if not isinstance(inputs, (tuple, list)):
        raise InvalidType(f"example inputs are a tensor or a tuple of tensors, not {type(inputs).__name__}")
    return tuple(inputs)


def _alone(inputs: Sequence[Any] | None) -> list[dict[str, Any]] | None:
    return None if inputs is None else [{"forward": _tuple(given)} for given in inputs]


def _positional(func: Any, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Inputs by name, in the order of the parameters."""
    bound = inspect.signature(func.forward if isinstance(func, Module) else func).bind(**inputs)
    return bound.args


def _names(function: Any, count: int) -> list[str]:
    """The names of the parameters of a function, for so many inputs."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in parameters if each.kind in kinds][:count]
    return names + [f"argument_{place + 1}" for place in range(len(names), count)]


def copied(value: Any) -> Any:
    """Inputs of their own: a function may be given one twice, and may write to it."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (tuple, list)) and value:
        return type(value)([copied(item) for item in value])
    if isinstance(value, dict) and value:
        return {key: copied(item) for key, item in value.items()}
    raise RunError(f"Type '{type(value).__name__}' cannot be traced. {_WRONG_INPUT}")


def input_type(value: Any) -> Type:
    """The type of an input: that of a tensor has all that it tells."""
    if isinstance(value, tuple):
        return TupleType([input_type(item) for item in value])
    return type_of(value)


def plain_type(kind: Type) -> Type:
    """A type without what is known of tensors."""
    if isinstance(kind, TensorType):
        plain: Type = TensorType.get()
        return plain
    if isinstance(kind, TupleType) and type(kind) is TupleType:
        return TupleType([plain_type(part) for part in kind.parts])
    if isinstance(kind, (ListType, DictType)):
        return type(kind)(*[plain_type(part) for part in kind.containedTypes()])
    return kind


def schema_of(name: str, graph: Graph) -> FunctionSchema:
    """What a graph takes and gives."""
    arguments = []
    for place, value in enumerate(graph.inputs()):
        called = value.debugName().partition(".")[0] if value.hasDebugName() else f"argument_{place}"
        arguments.append(Argument(called, plain_type(value.type())))
    return FunctionSchema(name, "", arguments, [Argument("", plain_type(value.type())) for value in graph.outputs()])


# Whether it can be relied on


def _check(made: Any, function: Any, inputs: tuple[Any, ...], tolerance: float, again: Callable[[], Any]) -> None:
    """Traces a second time, which has to give the same graph, and compares results, of which a difference is warned."""
    with fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore", TracerWarning)
        ours, theirs = _text(made.inlined_graph), _text(again()[0])
        found, wanted = list[Tensor](), list[Tensor]()
        flattened(function(*[copied(value) for value in inputs]), wanted)
        flattened(made(*[copied(value) for value in inputs]), found)
    if ours != theirs:
        lines = difflib.ndiff(ours.splitlines(keepends=True), theirs.splitlines(keepends=True))
        raise TracingCheckError(
            "Tracing failed sanity checks!\nERROR: Graphs differed across invocations!\n\tGraph diff:\n"
            + "".join([f"\t\t{line}" for line in lines])
        )
    random = [node for node in inside(made.inlined_graph.block()) if node.isNondeterministic()]
    if random:
        shown = "".join([f"\t{node}" for node in random[:20]])
        warnings.warn(
            "Trace had nondeterministic nodes. Did you forget call .eval() on your model? Nodes:\n"
            f"{shown}\nThis may cause errors in trace checking. To disable trace checking, pass check_trace=False to "
            "torch.jit.trace()",
            TracerWarning,
            stacklevel=3,
        )
    _compare(found, wanted, tolerance)


def _text(graph: Graph) -> str:
    """A graph as text. Classes of modules are others each time: their numbers do not matter."""
    whole = graph.copy()
    inline(whole)
    return re.sub(r"\.___torch_mangle_\d+", "", canonicalize(whole).str(False))


def _compare(found: Sequence[Tensor], wanted: Sequence[Tensor], tolerance: float) -> None:
    close = FUNCTIONS["weft"]["allclose"]
    for number, (one, other) in enumerate(zip(found, wanted), 1):
        with no_grad():
            fits = one._shape == other._shape and one._dtype == other._dtype
            fits = fits and bool(close(one, other, tolerance, tolerance, True))
        if not fits:
            warnings.warn(
                f"Output nr {number}. of the traced function does not match the corresponding output of the Python "
                "function. Detailed error:\nTensor-likes are not close!",
                TracerWarning,
                stacklevel=4,
            )
