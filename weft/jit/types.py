"""Types of values in the ordered form of a program: what a value of the IR is, which types are part of which, and how
types are spelled. `str()` is the spelling of the IR (`int[]`), `repr` that of annotations (`List[int]`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..base.errors import InvalidType, RunError
from ..eager.tensor.device import device as Device
from ..eager.tensor.tensor import Tensor
from ..eager.tensor.types import OF_NUMPY, dtype

Text = str  # where `str` is a method

# What the IR calls the elements of tensors.
SCALARS: dict[str, str] = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_NAMES = {numpy: name for name, numpy in SCALARS.items()}


def dtype_of(scalar: str) -> dtype:
    """The dtype that the IR calls by a name."""
    found: dtype = next(known for numpy, known in OF_NUMPY.items() if str(numpy) == SCALARS[scalar])
    return found


def scalar_of(kind: Any) -> str:
    """What the IR calls a dtype: one of weft's, or numpy's."""
    numpy = next((known for known, ours in OF_NUMPY.items() if ours is kind or known == kind), None)
    if numpy is None or str(numpy) not in _NAMES:
        raise InvalidType(f"the IR has no tensors of {kind}", hint=f"it has {', '.join(SCALARS)}")
    return _NAMES[str(numpy)]


class Type:
    """What all types have. Types are values: equal if they are spelled alike."""

    spelling: ClassVar[Text]  # of types without parts
    annotation: ClassVar[Text]

    def __new__(cls, *parts: Any, **named: Any) -> Any:
        if cls in _ALONE or cls is Type:
            raise InvalidType(f"weft._C.{cls.__name__}: No constructor defined!", hint=f"{cls.__name__}.get()")
        return super().__new__(cls)

    @classmethod
    def get(cls) -> Any:
        """The only one of its kind."""
        if cls not in _ALONE:
            raise InvalidType(f"there are many types of the kind {cls.__name__}", hint="make one from its parts")
        return _ALONE[cls]

    def kind(self) -> Text:
        return type(self).__name__

    def str(self) -> Text:
        """As the IR spells it."""
        return self.spelling

    @property
    def annotation_str(self) -> Text:
        """As an annotation of Python spells it."""
        return self.annotation

    def __repr__(self) -> Text:
        return self.annotation_str

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Type):
            return NotImplemented
        return type(self) is type(other) and self.str() == other.str()

    def __hash__(self) -> int:
        return hash((type(self), self.str()))

    def containedTypes(self) -> list[Type]:
        return []

    def isSubtypeOf(self, other: Type) -> bool:
        """Whether each value of this type is one of the other."""
        if isinstance(other, AnyType) or self == other:
            return True
        if isinstance(other, OptionalType):
            return self.isSubtypeOf(other.parts[0])
        if isinstance(other, UnionType):
            return all(any(part.isSubtypeOf(choice) for choice in other.choices()) for part in _choices(self))
        return isinstance(other, NumberType) and isinstance(self, (IntType, FloatType, ComplexType))

    def is_interface_type(self) -> bool:
        return False

    def holds(self, value: Any) -> bool:
        """Whether a value of Python is one of a type that a program defines."""
        return False

    # Of tensors only

    def _tensor(self) -> TensorType:
        if not isinstance(self, TensorType):
            raise RunError(f"{self} is not a type of tensors", hint="ask a type whose kind() is TensorType")
        return self

    def scalarType(self) -> Text | None:
        return self._tensor().scalar

    def dtype(self) -> dtype | None:
        scalar = self._tensor().scalar
        return None if scalar is None else dtype_of(scalar)

    def device(self) -> Any:
        return self._tensor().place

    def dim(self) -> int | None:
        extents = self._tensor().extents
        return None if extents is None else len(extents)

    def sizes(self) -> list[int] | None:
        """The sizes, if all are known."""
        return _known(self._tensor().extents)

    def varyingSizes(self) -> list[int | None] | None:
        """The sizes, with None for those that may be any; None if nothing is known of them."""
        extents = self._tensor().extents
        return None if extents is None else list(extents)

    symbolic_sizes = varyingSizes

    def strides(self) -> list[int] | None:
        tensor = self._tensor()
        return [] if tensor.extents == () else _known(tensor.steps)

    def contiguous(self) -> TensorType:
        """The same with the strides of elements in order."""
        tensor = self._tensor()
        if tensor.extents is None or None in tensor.extents:
            raise RunError(f"strides of {tensor.str()} are not known", why="not all of its sizes are")
        return replace(tensor, steps=_contiguous([size or 0 for size in tensor.extents]))

    def requires_grad(self) -> bool:
        """Whether a tensor may need a gradient; a container, whether something in it may."""
        if isinstance(self, TensorType):
            return self.needs_grad is not False
        return any(part.requires_grad() for part in self.containedTypes())

    def undefined(self) -> bool:
        return self._tensor().is_undefined is True

    def with_sizes(self, sizes: Sequence[int | None] | None) -> TensorType:
        extents = None if sizes is None else tuple(sizes)
        return replace(self._tensor(), extents=extents, steps=None)

    def with_dtype(self, kind: Any) -> TensorType:
        return replace(self._tensor(), scalar=scalar_of(kind))

    def with_device(self, place: Any) -> TensorType:
        return replace(self._tensor(), place=None if place is None else Device(place))


def _known(sizes: Sequence[int | None] | None) -> list[int] | None:
    if sizes is None or None in sizes:
        return None
    return [size for size in sizes if size is not None]


def _contiguous(sizes: Sequence[int]) -> tuple[int, ...]:
    steps, step = [], 1
    for size in reversed(sizes):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))


@dataclass(frozen=True, eq=False, repr=False)
class TensorType(Type):
    """A tensor, with what is known of it; of `TensorType.get()`, nothing is."""

    scalar: Text | None = None
    extents: tuple[int | None, ...] | None = None
    steps: tuple[int | None, ...] | None = None
    needs_grad: bool | None = None
    place: Any = None
    is_undefined: bool | None = None
    annotation: ClassVar[Text] = "Tensor"

    def __new__(cls, *parts: Any, **named: Any) -> Any:
        if not parts and not named:
            raise InvalidType("weft._C.TensorType: No constructor defined!", hint="TensorType.get()")
        return object.__new__(cls)

    @classmethod
    def of(cls, tensor: Tensor) -> TensorType:
        """The type of a tensor, with all that it has."""
        sizes = tuple(tensor.shape)
        return cls(scalar_of(tensor.dtype), sizes, tuple(tensor.stride()), bool(tensor.requires_grad), tensor.device)

    def str(self) -> Text:
        if self.is_undefined:
            return "Tensor" if self.scalar is None else f"{self.scalar}Tensor"
        known = self.needs_grad is not None or self.place is not None
        if self.extents is None and not known:
            return "Tensor" if self.scalar is None else f"{self.scalar}Tensor"
        parts = ["*" if size is None else repr(size) for size in self.extents or ()]
        if self.steps and None not in self.steps and self.extents:
            parts.append(f"strides=[{', '.join(map(repr, self.steps))}]")
        if self.needs_grad is not None:
            parts.append(f"requires_grad={int(self.needs_grad)}")
        if self.place is not None:
            parts.append(f"device={self.place}")
        return f"{self.scalar or 'Tensor'}({', '.join(parts)})"

    def isSubtypeOf(self, other: Type) -> bool:
        if not isinstance(other, TensorType):
            return super().isSubtypeOf(other)
        pairs = [
            (getattr(self, name), getattr(other, name)) for name in ("scalar", "needs_grad", "place", "is_undefined")
        ]
        if any(theirs not in (None, ours) for ours, theirs in pairs):
            return False
        return _fits(self.extents, other.extents) and _fits(self.steps, other.steps)


def _fits(ours: Sequence[int | None] | None, theirs: Sequence[int | None] | None) -> bool:
    if theirs is None:
        return True
    return ours is not None and len(ours) == len(theirs) and all(b in (None, a) for a, b in zip(ours, theirs))


class IntType(Type):
    spelling = annotation = "int"


class FloatType(Type):
    spelling = annotation = "float"


class ComplexType(Type):
    spelling = annotation = "complex"


class BoolType(Type):
    spelling = annotation = "bool"


class StringType(Type):
    spelling = annotation = "str"


class NumberType(Type):
    """An int, a float or a complex number; a bool is none."""

    spelling, annotation = "Scalar", "number"


class NoneType(Type):
    spelling = annotation = "NoneType"

    def isSubtypeOf(self, other: Type) -> bool:
        return isinstance(other, OptionalType) or super().isSubtypeOf(other)


class AnyType(Type):
    spelling = annotation = "Any"


class DeviceObjType(Type):
    spelling = annotation = "Device"


class _GeneratorType(Type):
    spelling = annotation = "Generator"


class StreamObjType(Type):
    spelling = annotation = "Stream"


class PyObjectType(Type):
    spelling = annotation = "PyObject"


class ScalarTypeType(Type):
    """A dtype, which is passed as its number."""

    spelling = annotation = "ScalarType"


class LayoutType(Type):
    spelling = annotation = "Layout"


class MemoryFormatType(Type):
    spelling = annotation = "MemoryFormat"


class SymIntType(Type):
    """An int that may be a size that is not known yet."""

    spelling = annotation = "SymInt"


class QSchemeType(Type):
    spelling = annotation = "QScheme"


class AnyClassType(Type):
    spelling = annotation = "AnyClassType"


class AnyEnumType(Type):
    spelling = annotation = "AnyEnumType"


class StorageType(Type):
    spelling = annotation = "Storage"


NUMBERED = (ScalarTypeType, LayoutType, MemoryFormatType, SymIntType)  # kinds of values that programs have as ints


class VarType(Type):
    """A type that a schema leaves open, by its name."""

    def __init__(self, name: Text) -> None:
        self.name = name

    def str(self) -> Text:
        return self.name

    annotation_str = property(str)


class ClassType(Type):
    """A class of values that a program or a library has, by its qualified name."""

    def __init__(self, name: Text) -> None:
        self._name = name

    def name(self) -> Text:
        return self._name.rpartition(".")[2]

    def qualified_name(self) -> Text:
        return self._name

    def str(self) -> Text:
        return self._name

    annotation_str = property(str)


class FunctionType(Type):
    """A function that a program calls."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def str(self) -> Text:
        return "Function"

    annotation_str = property(str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionType) and self.function is other.function

    def __hash__(self) -> int:
        return hash((FunctionType, id(self.function)))


class _Parts(Type):
    """A type made of others."""

    template: ClassVar[Text]
    annotation_template: ClassVar[Text]

    def __init__(self, *parts: Type) -> None:
        for part in parts:
            if not isinstance(part, Type):
                raise InvalidType(f"{type(self).__name__} is made of types, not of {part!r:.60}")
        self.parts = parts

    def str(self) -> Text:
        return self.template.format(", ".join([part.str() for part in self.parts]))

    @property
    def annotation_str(self) -> Text:
        return self.annotation_template.format(", ".join([part.annotation_str for part in self.parts]))

    def containedTypes(self) -> list[Type]:
        return list(self.parts)


class _OfOne(_Parts):
    def __init__(self, element: Type) -> None:
        super().__init__(element)

    def getElementType(self) -> Type:
        return self.parts[0]


class ListType(_OfOne):
    template, annotation_template = "{}[]", "List[{}]"

    @staticmethod
    def ofInts() -> ListType:
        return ListType(IntType.get())

    @staticmethod
    def ofTensors() -> ListType:
        return ListType(TensorType.get())

    @staticmethod
    def ofFloats() -> ListType:
        return ListType(FloatType.get())

    @staticmethod
    def ofComplexDoubles() -> ListType:
        return ListType(ComplexType.get())

    @staticmethod
    def ofBools() -> ListType:
        return ListType(BoolType.get())

    @staticmethod
    def ofStrings() -> ListType:
        return ListType(StringType.get())


class OptionalType(_OfOne):
    """A value, or None. An optional of an optional is that optional."""

    template, annotation_template = "{}?", "Optional[{}]"

    def __new__(cls, element: Type) -> Any:
        return element if isinstance(element, OptionalType) else super().__new__(cls)

    def __init__(self, element: Type) -> None:
        if element is not self:
            super().__init__(element)

    @staticmethod
    def ofTensor() -> OptionalType:
        return OptionalType(TensorType.get())

    def isSubtypeOf(self, other: Type) -> bool:
        if isinstance(other, OptionalType):
            return self.parts[0].isSubtypeOf(other.parts[0])
        return super().isSubtypeOf(other)


class FutureType(_OfOne):
    template = annotation_template = "Future[{}]"

    def str(self) -> Text:
        return f"Future[{self.parts[0].annotation_str}]"


class AwaitType(_OfOne):
    template = annotation_template = "Await[{}]"

    def str(self) -> Text:
        return f"Await[{self.parts[0].annotation_str}]"


class RRefType(_OfOne):
    template = annotation_template = "RRef[{}]"


class TupleType(_Parts):
    template, annotation_template = "({})", "Tuple[{}]"

    def __init__(self, elements: Iterable[Type]) -> None:
        super().__init__(*elements)

    def elements(self) -> list[Type]:
        return list(self.parts)

    def made(self, values: Iterable[Any]) -> Any:
        """The tuple of some values."""
        return tuple(values)

    @property
    def annotation_str(self) -> Text:
        return super().annotation_str if self.parts else "Tuple[()]"

    def isSubtypeOf(self, other: Type) -> bool:
        if isinstance(other, TupleType):
            alike = len(self.parts) == len(other.parts)
            return alike and all(a.isSubtypeOf(b) for a, b in zip(self.parts, other.parts))
        return super().isSubtypeOf(other)


class DictType(_Parts):
    template, annotation_template = "Dict({})", "Dict[{}]"

    def __init__(self, key: Type, value: Type) -> None:
        super().__init__(key, value)

    def getKeyType(self) -> Type:
        return self.parts[0]

    def getValueType(self) -> Type:
        return self.parts[1]


_RANKS = {  # of kinds of types in a union
    kind: place
    for place, kind in enumerate(
        "AnyType EnumType AnyEnumType TensorType StorageType TupleType ListType DictType NumberType FloatType "
        "ComplexType FutureType AwaitType RRefType IntType NoneType StringType _GeneratorType BoolType OptionalType "
        "VarType DeviceObjType StreamObjType FunctionType ClassType".split()
    )
}


class UnionType(_Parts):
    """A value of one of several types; of one type and None, it is an optional."""

    template, annotation_template = "Union({})", "Union[{}]"

    def __new__(cls, choices: Iterable[Type]) -> Any:
        found = sorted(set(choices), key=lambda choice: (_RANKS.get(choice.kind(), len(_RANKS)), choice.str()))
        if len(found) == 1:
            return found[0]
        if len(found) == 2 and any(isinstance(choice, NoneType) for choice in found):
            return OptionalType(next(choice for choice in found if not isinstance(choice, NoneType)))
        made = super().__new__(cls)
        made.parts = tuple(found)
        return made

    def __init__(self, choices: Iterable[Type]) -> None:
        """The parts are there: in order, each once."""

    def choices(self) -> list[Type]:
        return list(self.parts)


def _choices(kind: Type) -> Sequence[Type]:
    if isinstance(kind, UnionType):
        return kind.parts
    return (kind.parts[0], NoneType.get()) if isinstance(kind, OptionalType) else (kind,)


_ALONE: dict[type[Type], Any] = {}
_ALONE |= {
    kind: object.__new__(kind)
    for kind in (
        TensorType,
        IntType,
        FloatType,
        ComplexType,
        BoolType,
        StringType,
        NumberType,
        NoneType,
        AnyType,
        DeviceObjType,
        _GeneratorType,
        StreamObjType,
        PyObjectType,
        AnyClassType,
        AnyEnumType,
        StorageType,
        QSchemeType,
        *NUMBERED,
    )
}
