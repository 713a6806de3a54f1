"""Random trees of data with tensors in them, and their comparison across libraries."""

from collections import Counter, OrderedDict

import ml_dtypes
import numpy as np

from weft.eager.tensor import types
from weft.eager.tensor.parameter import Parameter
from weft.eager.tensor.tensor import Tensor, as_view, wrap

DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64".split()
WIDE = [*DTYPES, "complex128", "uint16", "uint32", "uint64"]


def random_array(rng, name, shape):
    bits = rng.integers(0, 256, (*shape, 16), np.uint8)
    kind = types.as_dtype(name).numpy
    if name == "bool":
        return np.asarray(bits[..., 0] > 127)
    if kind.kind in "iu":
        return np.asarray(bits[..., : kind.itemsize].copy().view(kind)[..., 0])
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4)
    if kind.kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values).astype(kind)


class Ours:
    """Makes weft's objects."""

    def tensor(self, array, requires_grad):
        made = wrap(array.copy())
        return made.requires_grad_() if requires_grad else made

    def view(self, tensor, index):
        return as_view(tensor._array[index], tensor)

    def transposed(self, tensor):
        return as_view(tensor._array.T, tensor)

    def parameter(self, array, requires_grad):
        return Parameter(wrap(array.copy()), requires_grad)

    dtype = staticmethod(types.as_dtype)
    device = types.device
    size = types.Size


class Theirs:
    """Makes PyTorch's objects."""

    def __init__(self, torch):
        self.torch = torch
        self.device = torch.device
        self.size = torch.Size

    def tensor(self, array, requires_grad):
        if array.dtype == ml_dtypes.bfloat16:
            made = self.torch.from_numpy(array.view(np.int16).copy()).view(self.torch.bfloat16)
        else:
            made = self.torch.from_numpy(array.copy())
        return made.requires_grad_() if requires_grad else made

    def view(self, tensor, index):
        return tensor.detach()[index]

    def transposed(self, tensor):
        return tensor.detach().permute(*reversed(range(tensor.ndim)))

    def parameter(self, array, requires_grad):
        return self.torch.nn.Parameter(self.tensor(array, False), requires_grad)

    def dtype(self, name):
        return getattr(self.torch, name)


def random_tree(seed, make, names=WIDE):
    """The same tree for the same seed, of one library's objects or the other's."""
    rng = np.random.default_rng(seed)
    tensors, shared = [], []

    def tensor():
        shape = tuple(rng.integers(0 if rng.random() < 0.1 else 1, 5, rng.integers(0, 4)))
        name = names[rng.integers(len(names))]
        array = random_array(rng, name, shape)
        floating = array.dtype.kind in "fc" or name == "bfloat16"
        requires_grad = bool(floating and rng.random() < 0.3)
        kind = rng.random()
        if floating and kind < 0.2:
            return make.parameter(array, requires_grad)
        made = make.tensor(array, requires_grad)
        if not requires_grad:
            tensors.append(made)
        return made

    def view():
        usable = [t for t in tensors if t.ndim > 0 and 0 not in t.shape]
        if not usable:
            return tensor()
        source = usable[rng.integers(len(usable))]
        if rng.random() < 0.3:
            return make.transposed(source)
        start = int(rng.integers(source.shape[0]))
        return make.view(source, slice(start, None))

    def leaf():
        choice = rng.integers(14)
        number = int(rng.integers(-(2**40), 2**40))
        return [
            tensor,
            tensor,
            tensor,
            view,
            view,
            lambda: number * 2 ** int(rng.integers(0, 80)),
            lambda: float(rng.standard_normal()),
            lambda: "text é\U0001f600" + str(number),
            lambda: [None, True, False][number % 3],
            lambda: make.dtype(names[number % len(names)]),
            lambda: make.device("cpu") if number % 2 else make.device("cuda", number % 8),
            lambda: make.size([number % 7, 3]),
            lambda: bytes(rng.integers(0, 256, 5, np.uint8)),
            lambda: complex(number, 0.5),
        ][choice]()

    def node(depth):
        if depth == 0 or rng.random() < 0.3:
            return leaf()
        if shared and rng.random() < 0.1:
            return shared[rng.integers(len(shared))]
        children = [node(depth - 1) for _ in range(rng.integers(0, 5))]
        kind = rng.integers(6)
        keys = [[f"k{i}", i, (i, "x"), 0.5 + i][i % 4] for i in range(len(children))]
        made = [
            lambda: children,
            lambda: tuple(children),
            lambda: dict(zip(keys, children)),
            lambda: OrderedDict(zip(keys, children)),
            lambda: {1, "a", (2, 3.5)},
            lambda: Counter("abca"),
        ][kind]()
        shared.append(made)
        return made

    return [node(4), node(3), tensor(), view(), view()]


def described(value, memo=None):
    """A tree as plain Python values, in which equal storages have equal numbers."""
    memo = {} if memo is None else memo
    kind = type(value).__name__
    if isinstance(value, Tensor) or kind in ("Tensor", "Parameter"):
        return describe_tensor(value, memo)
    if kind in ("dtype", "Size", "device"):
        return (kind, str(value).replace("torch", "weft"))
    if isinstance(value, dict):
        pairs = [(described(k, memo), described(v, memo)) for k, v in value.items()]
        return (kind, pairs)
    if isinstance(value, (list, tuple)):
        return (kind, [described(item, memo) for item in value])
    if isinstance(value, (set, frozenset)):
        return (kind, sorted(map(repr, value)))
    return (kind, repr(value))


def describe_tensor(tensor, memo):
    storage = tensor.untyped_storage()
    number = memo.setdefault(storage.data_ptr() or id(tensor), len(memo))
    if isinstance(tensor, Tensor):
        array = tensor._array
    else:
        plain = tensor.detach()
        plain = plain.float() if str(tensor.dtype) == "torch.bfloat16" else plain
        array = plain.numpy()
    if array.dtype == ml_dtypes.bfloat16:
        array = array.astype(np.float32)
    stride = None if 0 in tuple(tensor.shape) else tuple(tensor.stride())
    return (
        type(tensor).__name__,
        str(tensor.dtype).split(".")[1],
        tuple(tensor.shape),
        stride,
        tensor.storage_offset() if array.size else 0,
        bool(tensor.requires_grad),
        number if array.size else None,
        array.tobytes(),
    )
