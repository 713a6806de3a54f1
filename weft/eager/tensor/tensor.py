"""Tensor: a strided view over a storage, with a place in the autograd graph."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...base.dtype import DType, is_complex, is_float
from ...base.errors import InvalidType, InvalidValue, RunError, Unsupported
from ...base.forks import held_lock
from ...base.shown import as_html
from .. import native
from ..autograd.hooks import Hooks, RemovableHandle
from ..autograd.modes import modes
from ..autograd.node import NO_EDGE, Node, accumulator_of
from ..autograd.view_writes import AsStrided
from ..functions.around import LAYERS, LISTENERS, answered, layered
from .device import device
from .memory import (
    CHANNELS_LAST,
    Array,
    ForeignMemory,
    Memory,
    answer,
    array_of,
    device_of,
    in_memory,
    layout_of,
    read_from,
)
from .printing import format_tensor
from .size import Size
from .storage import UntypedStorage
from .types import OF_NUMPY, dtype, layout, strided

NO_GRAD = "was created in no_grad mode"
MULTIPLE = "is the output of a function that returns multiple views"
MAX_RANK = 64  # numpy's
_accumulating = held_lock("adding")
_new, _ndarray = object.__new__, np.ndarray  # every call asks for them


class Tensor:
    """An n-dimensional array that records what is done to it.

    `_array` is its memory, which only `array_of` hands out. What the library asks of it are `_shape`, a plain tuple,
    and `_dtype`, numpy's; `shape` and `dtype` are the objects that users see. Views of one memory share `_counter`,
    which counts in-place changes, and `_root`, the tensor whose storage they are parts of.
    """

    __module__ = "weft"
    _array: Memory
    _counter: list[int]
    _requires_grad: bool = False
    _grad: Tensor | None = None
    _grad_fn: Node | None = None
    _output_nr: int = 0
    _base: Tensor | None = None  # what it is a view of, for autograd
    _history: int = 0  # how often an in-place operator gave it another place in the graph
    _seen: int = 0  # a view's: the history of its base that its own place is of
    _creation: str | None = None  # why a view may not be written to
    _root: Tensor | None = None  # the tensor that owns the memory; None for itself
    _storage: UntypedStorage | None = None
    _start: int | None = None  # its first byte in the storage, once that is asked for
    _leaf_hooks: Hooks | None = None
    _after_hooks: Hooks | None = None
    _accumulator: weakref.ref[Any] | None = None
    _wrapped: bool = False  # a Python number, which does not decide the dtype
    _inference: bool = False
    _retains: bool = False
    __array_priority__ = 1000
    __hash__ = object.__hash__

    if TYPE_CHECKING:  # what `bind` and the table of functions give it

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __add__(self, other: Any) -> Tensor: ...
        def _cast(self, dtype: DType) -> Tensor: ...

        def __neg__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...

        __sub__ = __mul__ = __truediv__ = __floordiv__ = __radd__ = __rsub__ = __rmul__ = __lt__ = __gt__ = __or__ = (
            __and__
        ) = __le__ = __ge__ = __pow__ = __rtruediv__ = __rpow__ = __matmul__ = __add__

    # Shape and memory

    _shape: tuple[int, ...] = answer("shape")
    _dtype: DType = answer("dtype")
    ndim: int = answer("ndim")
    itemsize: int = answer("itemsize")
    nbytes: int = answer("nbytes")

    @property
    def shape(self) -> Size:
        found = Size.of(self._array.shape)
        return answered("shape", self, found) if LISTENERS else found

    @property
    def dtype(self) -> dtype:
        return OF_NUMPY[self._array.dtype]

    @property
    def device(self) -> device:
        return device_of(self._array)

    @property
    def layout(self) -> layout:
        return strided

    def dim(self) -> int:
        """How many dimensions there are.

        >>> import weft
        >>> weft.zeros(2, 3).dim()
        2
        """
        return self.ndim

    ndimension = dim

    def size(self, dim: int | None = None) -> Any:
        """The sizes of all dimensions, or of one.

        >>> import weft
        >>> x = weft.zeros(2, 3)
        >>> x.size(), x.size(-1)
        (weft.Size([2, 3]), 3)
        """
        if dim is None:
            return self.shape
        return self.shape[axis_of(dim, self.ndim)] if LISTENERS else self._shape[axis_of(dim, self.ndim)]

    def numel(self) -> int:
        """How many elements there are.

        >>> import weft
        >>> weft.zeros(2, 3).numel()
        6
        """
        return self._array.size

    nelement = numel

    def element_size(self) -> int:
        return self.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """Steps between neighbours, in elements."""
        strides = element_strides(self._array)
        return strides if dim is None else strides[axis_of(dim, self.ndim)]

    def storage_offset(self) -> int:
        start = self.untyped_storage().data_ptr()
        return (self.data_ptr() - start) // self.itemsize if self.numel() else 0

    def data_ptr(self) -> int:
        pointer: int = layout_of(self).__array_interface__["data"][0]
        return pointer

    def untyped_storage(self) -> UntypedStorage:
        """The bytes that this tensor and its views share."""
        root = root_of(self)
        storage = root._storage
        if storage is None:
            storage = root._storage = UntypedStorage._of_array(_held(root))
            if root is not self:
                root.untyped_storage()  # which knows the root by this, whatever becomes of its views
        if root is not self and self.numel() and not storage._spans(_held(self)):
            self._root = None  # the tensor it was a view of looks at other memory now
            storage = self._storage = UntypedStorage._of_array(_held(self))
        if self._start is None:
            self._storage = storage
            self._start = self.data_ptr() - storage.data_ptr() if self.numel() else 0
            storage._adopt(self)
        return storage

    def _moved(self, storage: UntypedStorage) -> None:
        """Follows its storage into other memory."""
        self._look_at(storage, self._shape, self._start or 0, self._array.strides)

    def _look_at(
        self, storage: UntypedStorage, shape: tuple[int, ...], start: int, strides: tuple[int, ...] | None = None
    ) -> None:
        """Has elements of a storage as its memory: the first at a byte, the others some bytes apart."""
        held: Any = storage._bytes
        if not isinstance(held, _ndarray):
            self._array = held.part(shape, self._dtype, start, strides)
            return
        memory, first = (np.empty(0, np.uint8), 0) if 0 in shape else (held, start)
        self._array = np.ndarray(shape, self._dtype, memory, first, strides)

    def _look_as(self, view: Tensor) -> None:
        """Looks at its memory as a view of it does."""
        self._array = view._array
        if self._start is not None:
            self._start = self.data_ptr() - self.untyped_storage().data_ptr() if self.numel() else 0

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether elements lie in order: row-major, or with channels after the pixels."""
        rank, array = CHANNELS_LAST.get(getattr(memory_format, "name", "")), layout_of(self)
        if rank is None:
            return array.flags.c_contiguous
        return array.ndim == rank and np.moveaxis(array, 1, -1).flags.c_contiguous

    # Autograd

    @property
    def requires_grad(self) -> bool:
        base = self._base
        if base is not None and base._history != self._seen:
            self._follow_base(base)
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Says whether operators on this leaf are recorded.

        >>> import weft
        >>> weft.ones(2).requires_grad_()
        tensor([1., 1.], requires_grad=True)
        """
        if self.grad_fn is not None:
            if not requires_grad:
                raise RunError(
                    "you can only change requires_grad flags of leaf variables.", hint="use var_no_grad = var.detach()"
                )
            return self
        kind = self._dtype
        if requires_grad and not (is_float(kind) or is_complex(kind)):
            raise RunError(
                "Only Tensors of floating point and complex dtype can require gradients",
                why=f"this one is {self.dtype}",
            )
        self._requires_grad = bool(requires_grad)
        return self

    @property
    def grad_fn(self) -> Node | None:
        base = self._base
        if base is not None and base._history != self._seen:
            self._follow_base(base)
        return self._grad_fn

    def _follow_base(self, base: Tensor) -> None:
        """A view's place in the graph after its base, or another view of it, was written to."""
        self._seen = base._history
        self._requires_grad = base._requires_grad
        self._output_nr = 0
        self._grad_fn = AsStrided(base, self._array) if base._requires_grad else None

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def output_nr(self) -> int:
        return self._output_nr

    @property
    def _version(self) -> int:
        return self._counter[0]

    def _edge(self) -> tuple[Node | None, int]:
        """The node that takes this tensor's gradient, and as which of its inputs."""
        base = self._base
        if base is not None and base._history != self._seen:
            self._follow_base(base)
        if not self._requires_grad:
            return NO_EDGE
        node = self._grad_fn
        return (accumulator_of(self), 0) if node is None else (node, self._output_nr)

    @property
    def grad(self) -> Tensor | None:
        if self._grad is None and self.grad_fn is not None and not self._retains:
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(); use .retain_grad() "
                "on it to have it populated.",
                stacklevel=2,
            )
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            self._check_grad(value)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def _check_grad(self, value: Any) -> None:
        if not isinstance(value, Tensor):
            raise InvalidType(f"assigned grad expected to be a Tensor or None but got {type(value).__name__}")
        if value is self:
            raise RunError("can't assign Variable as its own grad")
        if value._dtype != self._dtype:
            raise RunError(
                f"attempting to assign a gradient with dtype '{value.dtype}' to a tensor with dtype '{self.dtype}'",
                hint="the gradient must have the tensor's dtype",
            )
        if value._shape != self._shape:
            raise RunError(
                f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of "
                f"size '{list(self.shape)}'",
                hint="the gradient must have the tensor's size",
            )

    def _accumulate(self, grad: Tensor, is_ours: bool = False) -> None:
        """Adds to `grad`, in place unless the sum itself is recorded. A gradient that nobody else
        holds is kept as it is."""
        with _accumulating:
            if modes.trace is not None:
                modes.trace.asks_grad(self)
            have = self._grad
            if have is None:
                kept = modes.grad or (is_ours and grad.is_contiguous())
                self._grad = grad if kept else _kept(grad)
            elif modes.grad or modes.trace is not None:
                total = have + grad
                if modes.grad:
                    self._grad = total
                else:
                    modes.trace.put(have, total)
                    have._counter[0] += 1
            else:
                native.add_into(array_of(have), array_of(grad))
                have._counter[0] += 1

    def detach(self) -> Tensor:
        """The same memory, outside the graph.

        >>> import weft
        >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * 2).detach()
        tensor([2., 4.])
        """
        made: Tensor = (_SEEN if LAYERS else _detached)(self)
        return made

    def _owner(self) -> Tensor:
        """The root of its memory. One that has a graph gives the memory to a tensor without: whoever shares memory
        only, as what is detached does, lets the graph go."""
        root = root_of(self)
        if root._grad_fn is None:
            return root
        owner = root._root = tensor_of(root._array, root._counter, None, 0)
        if root._storage is not None:
            owner._storage = root._storage
            owner.untyped_storage()
        return owner

    @property
    def data(self) -> Tensor:
        made = self.detach()
        made._counter = [0]
        return made

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise InvalidType(f"Variable data has to be a tensor, but got {type(value).__name__}")
        kind = value._dtype
        if self.requires_grad and not (is_float(kind) or is_complex(kind)):
            raise RunError(
                "data set to a tensor that requires gradients must be floating point or complex dtype",
                why=f"this one is {value.dtype}",
            )
        owner = value._owner()
        if owner is self:
            if value._array is not self._array:
                self.untyped_storage()  # of all the memory, before it looks at a part
                self._look_as(value)
        else:
            self._array, self._root, self._storage, self._start = value._array, owner, None, None
        self._accumulator = None

    def _recorded(self) -> bool:
        """Whether an operator on this tensor would be recorded."""
        return modes.grad and self.requires_grad

    def _followed(self) -> bool:
        """Whether a gradient may be asked of what is made of this tensor: its own, or that of a batch it stands for."""
        return modes.grad and (self.requires_grad or isinstance(self._array, ForeignMemory))

    def _like(self, array: Memory) -> Tensor:
        """A fresh tensor over an array."""
        return wrap(array)

    # Values

    def item(self) -> Any:
        """The only element, as a Python number.

        >>> import weft
        >>> weft.tensor([2.5]).item()
        2.5
        """
        if self.numel() != 1:
            raise RunError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        found = read_from(self).item()
        return answered("item", self, found) if LISTENERS else found

    def tolist(self) -> Any:
        """The elements as Python numbers, in a list for each dimension.

        >>> import weft
        >>> weft.tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        found = read_from(self).tolist()
        return answered("tolist", self, found) if LISTENERS else found

    def numpy(self, *, force: bool = False) -> Array:
        """The same memory as a numpy array; with `force`, whatever it takes.

        >>> import weft
        >>> x = weft.tensor([1.0, 2.0])
        >>> x.numpy()[0] = 5
        >>> x
        tensor([5., 2.])
        """
        if self._requires_grad and not force:
            raise RunError(
                "Can't call numpy() on Tensor that requires grad.", hint="use tensor.detach().numpy() instead"
            )
        if not force and hasattr(self._array, "read"):
            raise InvalidType(
                f"can't convert {self.device} device type tensor to numpy.",
                hint="Use Tensor.cpu() to copy the tensor to host memory first.",
            )
        return answered("numpy", self, read_from(self)) if LISTENERS else read_from(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __bool__(self) -> bool:
        if self.numel() != 1:
            many = "no values" if not self.numel() else "more than one value"
            raise RunError(f"Boolean value of Tensor with {many} is ambiguous")
        found = bool(read_from(self).item())
        return bool(answered("bool", self, found)) if LISTENERS else found

    def _number(self, kind: Callable[[Any], Any]) -> Any:
        if self.numel() != 1:
            raise InvalidValue("only one element tensors can be converted to Python scalars")
        value = read_from(self).item()
        if kind is not complex and isinstance(value, complex):
            if value.imag != 0:
                raise RunError("value cannot be converted to type double without overflow")
            value = value.real
        found = kind(value)
        return answered(kind.__name__, self, found) if LISTENERS else found

    def __float__(self) -> float:
        made: float = self._number(float)
        return made

    def __int__(self) -> int:
        made: int = self._number(int)
        return made

    def __complex__(self) -> complex:
        made: complex = self._number(complex)
        return made

    def __index__(self) -> int:
        if self.numel() != 1 or self._dtype.kind not in "iub":
            raise InvalidType("only integer tensors of a single element can be converted to an index")
        found = int(read_from(self).item())
        return int(answered("index", self, found)) if LISTENERS else found

    def __len__(self) -> int:
        if not self.ndim:
            raise InvalidType("len() of a 0-d tensor")
        return int(answered("len", self, self._shape[0])) if LISTENERS else self._shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise InvalidType("iteration over a 0-d tensor")
        if LISTENERS:
            answered("iter", self, None)
        return iter([self[i] for i in range(self._shape[0])])

    def __repr__(self) -> str:
        if isinstance(self._array, ForeignMemory):
            return repr(self._array)
        node = self.grad_fn
        title = None if node is None else node.name()
        where = None if self.device.type == "cpu" else str(self.device)
        return format_tensor(read_from(self), requires_grad=self.requires_grad, grad_fn=title, device=where)

    def _repr_html_(self) -> str:
        return as_html(repr(self))

    def __format__(self, form: str) -> str:
        return format(self.item(), form) if self.ndim == 0 else object.__format__(self, form)


AnyTensor = TypeVar("AnyTensor", bound=Tensor)


def _detached(self: Tensor) -> Tensor:
    made = sharing(self, wrap(self._array))
    if isinstance(self._array, ForeignMemory):
        made._array = self._array.detached()
    return made


_SEEN = layered("weft.detach", _detached)


def wrap(array: Memory) -> Tensor:
    """A tensor over memory that is nobody else's."""
    made = _new(Tensor)
    made._array = array if type(array) is _ndarray else in_memory(array)
    made._counter = [0]
    if modes.inference:
        made._inference = True
    if modes.trace is not None:
        modes.trace.made(made)
    return made


def untraced(array: Memory) -> Tensor:
    """The same where nothing is recorded, as `apply_pair` knows."""
    made = _new(Tensor)
    made._array = array if type(array) is _ndarray else in_memory(array)
    made._counter = [0]
    if modes.inference:
        made._inference = True
    return made


def tensor_of(array: Memory, counter: list[int], grad_fn: Node | None, output_nr: int) -> Tensor:
    """A tensor that was saved, again."""
    made = _new(Tensor)
    made._array = array
    made._counter = counter
    if grad_fn is not None:
        made._grad_fn = grad_fn
        made._output_nr = output_nr
        made._requires_grad = True
    return made


def sharing(source: Tensor, other: AnyTensor) -> AnyTensor:
    """Another tensor, which from then on has the memory of a source."""
    other._array = source._array
    other._counter = source._counter
    other._root = source._owner()
    return other


def root_of(tensor: Tensor) -> Tensor:
    """The tensor that owns the memory of another, or of itself."""
    while tensor._root is not None:
        tensor = tensor._root
    return tensor


def as_view(array: Memory, source: Tensor) -> Tensor:
    """A tensor over a part of another's memory."""
    made = untraced(array)
    made._counter = source._counter
    made._root = source if source._root is None else source._root
    made._base = base = source if source._base is None else source._base
    made._seen = base._history
    if not modes.grad:
        made._creation = NO_GRAD
    if modes.trace is not None:
        modes.trace.viewed(made, source)
    return made


def _held(tensor: Tensor) -> Any:
    """The memory that a storage is made of."""
    return tensor._array if hasattr(tensor._array, "whole") else array_of(tensor)


def _kept(grad: Tensor) -> Tensor:
    """A gradient to keep: memory of its own, row-major, outside the graph."""
    memory: Any = grad._array
    return wrap(native.ordered_copy(memory) if type(memory) is _ndarray else memory.copy())


def axis_of(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    bound = max(rank, 1)
    if not -bound <= dim < bound:
        raise out_of_range(dim, bound)
    return dim + bound if dim < 0 else dim


def out_of_range(dim: int, bound: int) -> IndexError:
    return DimensionError(f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], but got {dim})")


def too_many_axes(what: str, why: str) -> Unsupported:
    return Unsupported(f"{what}: a tensor has at most {MAX_RANK} dimensions", why=why)


class DimensionError(InvalidValue, IndexError):
    """A dimension that a tensor does not have."""


def element_strides(array: Memory) -> tuple[int, ...]:
    return tuple(stride // array.itemsize for stride in array.strides)


def bind(**made_of_functions: Any) -> None:
    """Gives the class of tensors methods and properties that are made of functions on tensors."""
    for name, value in made_of_functions.items():
        setattr(Tensor, name, value)


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Tensor)


__all__ = [
    "Array",
    "RemovableHandle",
    "Tensor",
    "as_view",
    "axis_of",
    "bind",
    "is_tensor",
    "sharing",
    "tensor_of",
    "wrap",
]
