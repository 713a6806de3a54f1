"""Which operator a call of the function table is, with a value for each of its arguments; and programs for functions
that are several operators, by what is known of the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...base.errors import RunError
from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.device import CPU
from ...eager.tensor.device import device as Device
from ...eager.tensor.tensor import Tensor
from ..calls.numbered import OF_NUMBER, in_programs
from ..frontend.compiler import library
from ..frontend.library import RENAMED
from ..functions import Function
from ..graph import Graph
from ..matching import bind
from ..operators import Operator, find, operators_of
from ..passes.constants import propagate_constants
from ..passes.dead_code import eliminate_dead_code
from ..passes.peephole import peephole
from ..schema import Argument
from ..types import TensorType, scalar_of
from .extents import Extent

_SPACES = {"weft.linalg.": "linalg_", "weft.special.": "special_", "weft.fft.": "fft_"}
_FUNCTIONAL = "weft.nn.functional."
# Results of these are constants of a trace, whatever they were made of.
CONSTANTS = frozenset("tensor as_tensor asarray from_numpy frombuffer from_dlpack scalar_tensor".split())
_CASTS = {"byte": 0, "char": 1, "short": 2, "int": 3, "long": 4, "half": 5, "float": 6, "double": 7, "bool": 11}
_CASTS["bfloat16"] = 15
# Functions whose numbers become tensors, as PyTorch's do.
_OF_TENSORS = frozenset(
    f"aten::{name}{end}"
    for name in "add sub subtract mul multiply div divide true_divide floor_divide".split()
    for end in ("", "_")
)
_NUMBERS: dict[type, tuple[int, int]] = {bool: (0, 11), int: (1, 4), float: (2, 7), complex: (3, 10)}  # rank, dtype
_RANKS = {"b": 0, "i": 1, "u": 1, "c": 3}  # of dtypes by numpy's kinds; floats are 2
# Operators of Python, and names that mean the same as others, which PyTorch has in traces.
_NAMES = {"weft.inverted": "bitwise_not", "weft.magnitude": "abs"}
_NAMES |= {f"weft.bitwise_{name}": f"__{name}__" for name in ("and", "or", "xor")}
_NAMES |= {f"weft.bitwise_{name}_shift": f"__{name[0]}shift__" for name in ("left", "right")}
_NAMES |= dict(
    pair.split("=")
    for pair in (
        "absolute=abs clip=clamp multiply=mul subtract=sub divide=div true_divide=div greater=gt greater_equal=ge "
        "less=lt less_equal=le not_equal=ne concat=cat concatenate=cat negative=neg fix=trunc swapaxes=transpose "
        "ger=outer swapdims=transpose moveaxis=movedim arccos=acos arcsin=asin arctan=atan arccosh=acosh arcsinh=asinh "
        "arctanh=atanh weft.special.expit=sigmoid weft.special.exp2=exp2 weft.special.expm1=expm1 "
        "weft.special.log1p=log1p weft.special.erf=erf weft.special.softmax=softmax "
        "det=linalg_det slogdet=linalg_slogdet"
    ).split()
)
_KEYWORDS = {"input": "self", "axis": "dim", "keepdims": "keepdim"}
_UNSAID = frozenset(("generator", "out", "names", "requires_grad"))  # of which None or False says nothing


class Call(NamedTuple):
    """An operator, with the value of each of its arguments."""

    operator: Operator
    values: list[Any]


class Program(NamedTuple):
    """A graph that does what a function does, and what it takes."""

    graph: Graph
    values: list[Any]


def spelled(key: str) -> tuple[str, bool]:
    """The name of an operator for a name of the table, and whether it is one of `nn.functional`."""
    if key in _NAMES:
        return _NAMES[key], False
    if key.startswith(_FUNCTIONAL):
        return key.removeprefix(_FUNCTIONAL), True
    for space, prefix in _SPACES.items():
        if key.startswith(space):
            return prefix + key.removeprefix(space), False
    name = key.removeprefix("weft.")
    name = name.removeprefix("_") if not operators_of(f"aten::{name}") else name
    return name, False


def planned(key: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call] | Program | None:
    """What a call is in a program: operators, each of which may be given what the one before it gives (`BEFORE`), or a
    program; None if nothing there is called so."""
    name, functional = spelled(key)
    kwargs = {
        word: value for word, value in kwargs.items() if not (word in _UNSAID and (value is None or value is False))
    }
    if functional:
        if name in library():
            return _specialised(library()[name], args, kwargs)
        if name in _RESIZED:
            return [_resized(name, args, kwargs)]
        name = RENAMED.get(name, name).removeprefix("aten::")
    if name in _CASTS and len(args) == 1:
        return [Call(*bind("aten::to", [args[0], _CASTS[name], False, False, None]))]
    if not operators_of(f"aten::{name}"):
        return None
    if args and isinstance(args[0], (int, float, complex)) and name in _SWAPPED:
        return _swapped(name, args)
    if name == "to" and len(args) == 2 and isinstance(args[1], (str, Device)):
        return [Call(*bind("aten::to", [args[0], Device(args[1]), args[0].dtype, False, False, None]))]
    if name == "tensordot":
        return [_contracted(*args, **kwargs)]
    if name == "split" and isinstance((*args, *kwargs.values())[1], (list, tuple)):
        name = "split_with_sizes"
    operator, values = _bound(f"aten::{name}", args, kwargs)
    return [Call(operator, _placed(operator, values))]


BEFORE = object()  # what the call before gives
_SWAPPED = frozenset(("add", "mul", "sub", "div"))


def _swapped(name: str, args: Sequence[Any]) -> list[Call]:
    """A number with a tensor: `2 - x` is a reversed difference, `2 / x` a product with 1 / x."""
    number, tensor = args[0], args[1]
    if name == "div":
        inverse = Call(*bind("aten::reciprocal", [tensor]))
        product, values = _bound("aten::mul", [tensor, number], {})
        return [inverse, Call(product, [BEFORE, *values[1:]])]
    if name == "sub":
        return [Call(*bind("aten::rsub", [tensor, number]))]
    return [Call(*_bound(f"aten::{name}", [tensor, number], {}))]


def _bound(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Operator, list[Any]]:
    given = _with_tensors(name, [list(arg) if isinstance(arg, tuple) else arg for arg in args])
    named = {word: list(value) if isinstance(value, tuple) else value for word, value in kwargs.items()}
    try:
        return bind(name, given, named)
    except RunError as first:
        try:
            return bind(name, given, {_KEYWORDS.get(word, word): value for word, value in named.items()})
        except RunError:
            raise first from None


def _with_tensors(name: str, args: list[Any]) -> list[Any]:
    """Arguments of arithmetic with tensors for numbers, unless the number decides the dtype of the result."""
    if name not in _OF_TENSORS or len(args) < 2 or not isinstance(args[0], Tensor) or type(args[1]) not in _NUMBERS:
        return args
    rank, _ = _NUMBERS[type(args[1])]
    return args if rank > _RANKS.get(args[0]._dtype.kind, 2) else [args[0], tensor_of(args[1]), *args[2:]]


def tensor_of(number: Any) -> Tensor:
    """A number as the tensor that programs have for it."""
    made: Tensor = FUNCTIONS["weft"]["tensor"](number, dtype=OF_NUMBER[_NUMBERS[type(number)][1]])
    made._wrapped = True  # it decides no dtype either
    return made


def _placed(operator: Operator, values: list[Any]) -> list[Any]:
    """Values of arguments; operators that make tensors say where, as PyTorch's do."""
    names = [argument.name for argument in operator.schema.arguments]
    usual: dict[str, Any] = {"pin_memory": False}
    if not isinstance(operator.schema.arguments[0].type, TensorType):
        usual["device"] = CPU
    if "pin_memory" in names and operator.schema.name != "aten::to":
        for name, value in usual.items():
            place = names.index(name)
            values[place] = value if values[place] is None else values[place]
    return values


def _contracted(input: Tensor, other: Tensor, dims: Any = 2) -> Call:
    """`tensordot`, over so many axes or over some of each."""
    if isinstance(dims, int):
        dims = [list(range(input.ndim - dims, input.ndim)), list(range(dims))]
    return Call(*bind("aten::tensordot", [input, other, list(dims[0]), list(dims[1])]))


# Functions that are several operators


def _specialised(program: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program:
    """A program with what is known of its arguments: numbers and texts are constants, tensors have dtypes and ranks."""
    arguments = {argument.name: argument for argument in program.schema.arguments}
    given = [_listed(argument, value) for argument, value in zip(arguments.values(), args)]
    named = {word: _listed(arguments[word], value) if word in arguments else value for word, value in kwargs.items()}
    bound = program.schema.bound(given, named)
    graph, values, fixed = program.inlined_graph, list[Any](), list[int]()
    start = next(iter(graph.nodes()), graph.return_node())
    for place, (value, given) in enumerate(zip(list(graph.inputs()), bound)):
        if isinstance(given, Tensor):
            value.setType(TensorType(scalar_of(given._dtype), (None,) * given.ndim))
        if isinstance(given, (Tensor, Extent)):
            values.append(given)
            continue
        with graph.insert_point_guard(start):
            value.replaceAllUsesWith(graph.insertConstant(given))
        fixed.append(place)
    for place in reversed(fixed):
        graph.eraseInput(place)
    for improve in (propagate_constants, peephole, propagate_constants, eliminate_dead_code):
        improve(graph)
    return Program(graph, values)


def _listed(argument: Argument, value: Any) -> Any:
    """An argument as a program has it: one number stands for a list of fixed length."""
    if argument.N and isinstance(value, (int, float)):
        return [value] * argument.N
    return in_programs(value)


_RESIZED = frozenset(("interpolate", "upsample", "upsample_nearest", "upsample_bilinear"))


def _resized(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """The operator that resizes so, for inputs of that rank."""
    signature = inspect.signature(FUNCTIONS["weft.nn.functional"][name])
    given = signature.bind(*args, **kwargs)
    given.apply_defaults()
    settings = given.arguments
    image, size, scales = settings["input"], settings.get("size"), settings.get("scale_factor")
    mode = {"upsample_nearest": "nearest", "upsample_bilinear": "bilinear"}.get(name) or settings["mode"]
    corners = True if name == "upsample_bilinear" else bool(settings.get("align_corners"))
    rank = image.ndim - 2
    if mode not in ("nearest", "linear", "bilinear", "bicubic", "trilinear") or settings.get("antialias"):
        raise RunError(f"no operator resizes by {mode!r}", hint="nearest, linear, bilinear ... without antialias")
    listed = [size] * rank if isinstance(size, int) else size
    factors = [float(scales)] * rank if isinstance(scales, (int, float)) else scales
    factors = None if listed is not None else [float(factor) for factor in factors or ()]
    flags = [] if mode == "nearest" else [corners]
    sizes = None if listed is None else list(listed)
    return Call(find(f"aten::upsample_{mode}{rank}d.vec"), [image, sizes, *flags, factors])
