"""Parameters and buffers: tensors that a module trains or keeps, and those whose size is not known yet."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.errors import InvalidType, InvalidValue, RunError
from .copying import copied
from .device import CPU, require_cpu
from .tensor import Tensor, sharing, wrap
from .types import as_dtype, dtype, get_default_dtype


class Parameter(Tensor):
    """A tensor that belongs to a module and, if not told otherwise, has a gradient.

    It shares the memory of the tensor it is made from.
    """

    __module__ = "weft.nn"

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if data is not None and not isinstance(data, Tensor):
            raise InvalidType(f"a Parameter is made from a Tensor, not a {type(data).__name__}")
        if data is None:
            data = wrap(np.empty(0, get_default_dtype().numpy))
        return sharing(data, object.__new__(cls)).requires_grad_(requires_grad)

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        pass

    def __repr__(self) -> str:
        return "Parameter containing:\n" + Tensor.__repr__(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        """A copy without the gradient, as PyTorch's is."""
        if id(self) not in memo:
            memo[id(self)] = type(self)(copied(self.detach(), memo), self.requires_grad)
        found: Parameter = memo[id(self)]
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.detach(), self.requires_grad)


def _rebuild(data: Tensor, requires_grad: bool) -> Parameter:
    made: Parameter = Parameter(data, requires_grad)
    return made


class _BufferMeta(type):
    """Tensors that were made by `Buffer` are instances of it, and of no other class than Tensor."""

    def __instancecheck__(cls, instance: object) -> bool:
        if cls is Buffer:
            return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)
        return super().__instancecheck__(instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that becomes a buffer of the module it is an attribute of; it is not trained.

    It shares the memory of the tensor it is made from. One that is not persistent stays out of `state_dict`.
    """

    __module__ = "weft.nn"
    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        source = wrap(np.empty(0, get_default_dtype().numpy)) if data is None else data
        if not isinstance(source, Tensor):
            raise InvalidType(f"a Buffer is made from a Tensor, not a {type(data).__name__}")
        made: Any = source.detach().requires_grad_(source.requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made


class NotMaterialised(InvalidValue, RunError):
    """A parameter or buffer is used before its size is known."""


class _NoMemory:
    """What a tensor of unknown size has in the place of memory: a dtype, and nothing else."""

    device = CPU

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    @property
    def itemsize(self) -> int:
        size: int = self.dtype.itemsize
        return size

    def __getattr__(self, name: str) -> Any:
        raise NotMaterialised(
            "Can't access the shape, or the elements, of an uninitialized parameter or buffer.",
            why="its size follows from the first input of the module",
            hint="call the module once, on a batch of the right size, before its parameters are used",
        )


class UninitializedTensorMixin:
    """A tensor of unknown size: it can change its dtype, and `materialize` gives it memory."""

    cls_to_become: type
    _like_itself = (
        "bfloat16 bool byte char cdouble cfloat cpu cuda detach double float half int long short to type".split()
    )

    def materialize(self: Any, shape: Any, device: Any = None, dtype: dtype | None = None) -> None:
        """Gives it memory of a shape, whose content is anything."""
        require_cpu(device)
        kind = self._array.dtype if dtype is None else as_dtype(dtype).numpy
        self.data = wrap(np.empty(tuple(shape), kind))
        self.__class__ = self.cls_to_become

    def share_memory_(self) -> Any:
        raise NotMaterialised("Can't share memory on an uninitialized parameter or buffer.")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = self._again()
        return memo[id(self)]

    def __reduce__(self: Any) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, None, self.dtype)

    def _again(self: Any) -> Any:
        """Another one of the same kind."""
        make, arguments = self.__reduce__()
        return make(*arguments)


def _converting(name: str) -> Any:
    """A method of tensors that changes the dtype at most, for a tensor without elements."""

    def method(self: Any, *args: Any, **options: Any) -> Any:
        kind = getattr(wrap(np.empty(0, self._array.dtype)), name)(*args, **options)
        made = self._again().requires_grad_(False)
        made._array = _NoMemory(kind._dtype)
        return made

    return method


for _name in UninitializedTensorMixin._like_itself:
    setattr(UninitializedTensorMixin, _name, _converting(_name))


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose size is not known yet.

    >>> weight = UninitializedParameter()
    >>> weight
    <UninitializedParameter>
    >>> weight.materialize((2, 3))
    >>> weight.shape
    weft.Size([2, 3])
    """

    __module__ = "weft.nn"
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: dtype | None = None) -> Any:
        return _without_memory(cls, device, dtype).requires_grad_(requires_grad)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: dtype | None = None) -> None:
        pass


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose size is not known yet."""

    __module__ = "weft.nn"
    cls_to_become = Tensor
    _is_buffer = True

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: dtype | None = None, persistent: bool = True
    ) -> Any:
        made = _without_memory(cls, device, dtype).requires_grad_(requires_grad)
        made.persistent = persistent
        return made

    def __init__(
        self, requires_grad: bool = False, device: Any = None, dtype: dtype | None = None, persistent: bool = True
    ) -> None:
        pass

    def __reduce__(self: Any) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, None, self.dtype, self.persistent)


def _without_memory(cls: type, device: Any, kind: dtype | None) -> Any:
    require_cpu(device)
    made: Any = object.__new__(cls)
    made._array = _NoMemory((get_default_dtype() if kind is None else as_dtype(kind)).numpy)
    made._counter = [0]
    return made


def is_lazy(param: object) -> bool:
    """Whether a parameter or buffer has no size yet."""
    return isinstance(param, UninitializedTensorMixin)
