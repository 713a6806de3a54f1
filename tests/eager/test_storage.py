"""Storages: bytes and elements, conversion between every pair of types, growth, buffers, copies."""

import copy
import math
import os
import pickle
import random
import struct
import weakref

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.eager.tensor import types
from weft.eager.tensor.convert import convert, from_python
from weft.eager.tensor.storage import UntypedStorage
from weft.eager.tensor.storage_copy import COPY_HANDLERS, copy_pairs, find_copy, insert_storage_copy_function
from weft.eager.tensor.typed_storage import (
    STORAGE_BASES,
    STORAGE_NAMES,
    STORAGE_OF,
    init_storage,
    is_storage,
    storage_class,
)

NINE = "Double Float Half Long Int Short Char Byte Bool".split()
TITLES = [*NINE, "BFloat16", "ComplexFloat", "ComplexDouble"]
CLASS = {title: STORAGE_NAMES[f"{title}Storage"] for title in TITLES}
FloatStorage, IntStorage, ByteStorage = CLASS["Float"], CLASS["Int"], CLASS["Byte"]


def random_values(rng, dtype, n):
    if dtype.kind == "b":
        return rng.random(n) < 0.5
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, n, dtype, endpoint=True)
    scale = 10.0 ** rng.integers(-8, 9, n)
    values = rng.standard_normal(n) * scale
    values[rng.integers(0, n, 6)] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 300.0]
    if dtype.kind == "c":
        values = values + 1j * rng.standard_normal(n)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def to_torch(torch, values):
    if values.dtype.name == "bfloat16":
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)


def from_torch(torch, tensor):
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy()
    return tensor.numpy()


def filled(title, values):
    storage = CLASS[title](len(values))
    np.asarray(storage)[...] = values
    return storage


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("target", TITLES)
@pytest.mark.parametrize("source", TITLES)
def test_every_pair_converts_elements_as_pytorchs_tensors_do(source, target):
    torch = oracle("torch")
    rng = np.random.default_rng(TITLES.index(source) * 100 + TITLES.index(target))
    values = random_values(rng, CLASS[source].dtype.numpy, 200)
    theirs = to_torch(torch, values).to(getattr(torch, CLASS[target].dtype.name))
    ours = CLASS[target](200).copy_(filled(source, values))
    exact = np.float32 if target == "BFloat16" else ours.dtype.numpy
    np.testing.assert_array_equal(np.asarray(ours, exact), from_torch(torch, theirs))
    assert filled(source, values).type(CLASS[target]).tolist() == pytest.approx(
        ours.tolist(), abs=0, rel=0, nan_ok=True
    )


def test_conversions_that_pytorch_1_1_documented():
    assert IntStorage(2).copy_(FloatStorage([1.7, -2.9])).tolist() == [1, -2]
    assert ByteStorage(2).copy_(CLASS["Long"]([-1, 300])).tolist() == [255, 44]
    assert CLASS["Half"](1).copy_(FloatStorage([1e6])).tolist() == [math.inf]
    assert CLASS["Bool"](3).copy_(FloatStorage([0.0, 0.1, math.nan])).tolist() == [False, True, True]
    assert CLASS["Half"](2).copy_(FloatStorage([2049.0, 2051.0])).tolist() == [2048.0, 2052.0]


def test_floats_beyond_every_integer():
    values = np.array([2.0**63, -1.0, 1e30, 2.0**63 + 4096])
    assert convert(values, np.dtype("uint64")).tolist()[:2] == [2**63, 2**64 - 1]
    assert convert(values, np.dtype("uint64")).tolist()[3] == 2**63 + 4096
    assert convert(values, np.dtype("int64")).tolist() == [-(2**63), -1, -(2**63), -(2**63)]


def test_the_registry_has_81_pairs_of_the_nine():
    nine = {STORAGE_BASES[CLASS[title].dtype] for title in NINE}
    pairs = [(to, source) for to, source in copy_pairs() if {to, source} <= nine]
    assert len(pairs) == len(set(pairs)) == 81
    assert len(copy_pairs()) == len(TITLES) ** 2


def test_the_registry_fills_step_by_step_and_twice_is_once():
    registry, counts = {}, []
    for title in NINE:
        for _ in range(2):
            base = init_storage(CLASS[title].dtype, registry)
        counts.append(sum(map(len, registry.values())))
        assert base.__name__ == f"{title}StorageBase"
        assert issubclass(CLASS[title], base)
    assert counts == [9 * i for i in range(1, 10)]


def test_a_copy_function_of_ones_own():
    class Ramp:
        def __len__(self):
            return 3

    with pytest.raises(TypeError, match=r"copy from Ramp to weft\.FloatStorage isn't implemented"):
        FloatStorage(3).copy_(Ramp())
    handlers = COPY_HANDLERS[STORAGE_BASES[types.float32]]
    before = list(handlers)
    try:
        insert_storage_copy_function(Ramp, handlers, lambda to, _: to._elements().__setitem__(..., [7, 8, 9]))
        assert FloatStorage(3).copy_(Ramp(), non_blocking=True).tolist() == [7, 8, 9]
        insert_storage_copy_function(Ramp, handlers, lambda to, _: to.fill_(1), non_blocking=True)
        assert FloatStorage(3).copy_(Ramp(), non_blocking=True).tolist() == [1, 1, 1]
        assert FloatStorage(3).copy_(Ramp()).tolist() == [7, 8, 9]
        assert find_copy(FloatStorage, Ramp, True).non_blocking
    finally:
        handlers[:] = before


def test_copy_of_another_size_raises():
    with pytest.raises(RuntimeError, match="size does not match, self has 3 elements but src has 2"):
        FloatStorage(3).copy_(FloatStorage(2))
    with pytest.raises(TypeError, match=r"copy from list to weft\.IntStorage isn't implemented"):
        IntStorage(1).copy_([1])
    with pytest.raises(RuntimeError, match="self was 4 bytes but src was 8 bytes"):
        UntypedStorage(4).copy_(FloatStorage(2))
    with pytest.raises(TypeError, match=r"must be weft\.UntypedStorage, not list"):
        UntypedStorage(4).copy_([1])


@pytest.mark.parametrize("title", TITLES)
def test_a_typed_storage_is_a_sequence(title):
    kind = CLASS[title]
    rng = np.random.default_rng(len(title))
    values = random_values(rng, kind.dtype.numpy, 9).astype(kind.dtype.numpy)
    storage = filled(title, values)
    expected = values.astype(np.float32 if title == "BFloat16" else values.dtype).tolist()
    assert str(storage.tolist()) == str(list(storage)) == str(expected)
    assert len(storage) == storage.size() == 9
    assert storage.nbytes() == 9 * storage.element_size() == values.nbytes
    assert storage.data_ptr() % 64 == 0
    assert storage.data_ptr() == np.asarray(storage).ctypes.data
    assert storage.type() == f"weft.{title}Storage"
    assert str(storage[3]) == str(expected[3])
    assert str(storage[-9]) == str(expected[0])
    assert type(storage[0]) is type(expected[0])
    lines = "\n ".join(map(str, expected))
    assert repr(storage) == str(storage) == f" {lines}\n[weft.{title}Storage of size 9]"
    part = storage[2:5]
    part.fill_(1)
    assert storage.tolist()[2:5] == [1, 1, 1]
    assert part.data_ptr() == storage.data_ptr() + 2 * storage.element_size()
    storage[1:] = 0
    storage[0] = 1
    assert storage.tolist() == [1] + [0] * 8
    assert part.tolist() == [0, 0, 0]


def test_wrong_indices_and_values():
    storage = FloatStorage([1, 2, 3, 4])
    with pytest.raises(IndexError, match=r"^index 4 out of range for storage of size 4$"):
        storage[4]
    with pytest.raises(IndexError, match=r"^index -5 out of range for storage of size 4$"):
        storage[-5] = 1
    with pytest.raises(TypeError, match=r"^can't index a weft\.FloatStorage with str$"):
        storage["a"]
    with pytest.raises(TypeError, match=r"^can't index a weft\.UntypedStorage with str$"):
        storage.untyped()["a"]
    with pytest.raises(RuntimeError, match="slice with a step of 2, but only a step of 1"):
        storage[::2]
    with pytest.raises(TypeError, match="content with a float, but got str instead"):
        storage[0] = "x"
    with pytest.raises(TypeError, match="content with an int, but got list instead"):
        IntStorage(1).fill_([1])
    with pytest.raises(RuntimeError, match="cannot be converted to type uint8 without overflow"):
        ByteStorage([256])
    with pytest.raises(RuntimeError, match="without overflow"):
        ByteStorage([-256])
    with pytest.raises(RuntimeError, match="without overflow"):
        CLASS["Long"]([2**63])
    with pytest.raises(RuntimeError, match="without overflow"):
        IntStorage([math.nan])
    with pytest.raises(TypeError, match="complex"):
        storage[0] = 1j
    for wrong in (["a"], "abc", 2.5, [[1]], None, [object()], [[1], [1, 2]]):
        with pytest.raises((TypeError, ValueError)):
            FloatStorage(wrong)
    with pytest.raises(RuntimeError, match="cannot allocate -4 bytes"):
        FloatStorage(-1)
    with pytest.raises(RuntimeError, match="cannot allocate"):
        FloatStorage(2**61)
    assert storage.tolist() == [1, 2, 3, 4]


def test_making_from_python_numbers():
    assert IntStorage([1.7, True, np.int8(-3)]).tolist() == [1, 1, -3]
    assert FloatStorage(range(3)).tolist() == [0, 1, 2]
    assert CLASS["Bool"]([2, 0, 0.5]).tolist() == [True, False, True]
    assert FloatStorage([2**70]).tolist() == [float(2**70)]
    assert CLASS["Long"]([2**63 - 1, -(2**63)]).tolist() == [2**63 - 1, -(2**63)]
    assert len(FloatStorage()) == len(FloatStorage([])) == 0
    assert not FloatStorage()
    assert CLASS["ComplexFloat"]([1j, 2]).tolist() == [1j, 2]
    assert from_python((x for x in (1, 2)), np.dtype("int8")).tolist() == [1, 2]
    assert not any(CLASS["Bool"](1000).tolist())


class Watcher:
    def __init__(self):
        self.moves = []

    def _moved(self, storage):
        self.moves.append(storage.data_ptr())


def test_growing_keeps_the_first_elements_and_tells_the_tensors():
    storage = FloatStorage([1, 2, 3])
    watchers = [Watcher() for _ in range(100)]
    for watcher in watchers:
        storage.untyped()._adopt(watcher)
    del watchers[1:]
    storage.resize_(2)
    assert storage.tolist() == [1, 2]
    assert watchers[0].moves == []
    storage.resize_(1000)
    assert storage.tolist()[:2] == [1, 2]
    assert watchers[0].moves == [storage.data_ptr()]
    for _ in range(1000):
        storage.untyped()._adopt(Watcher())
    assert len(storage.untyped()._tensors) < 100
    for wrong in (1.5, "2", None):
        with pytest.raises(RuntimeError, match="resize_ expects an int"):
            storage.resize_(wrong)
    with pytest.raises(RuntimeError):
        storage.resize_(-1)
    with pytest.raises(RuntimeError, match="not resizable"):
        storage[1:3].resize_(9)


def test_faces_of_the_same_bytes():
    untyped = UntypedStorage(8)
    ints, bytes_ = IntStorage(wrap_storage=untyped), ByteStorage(wrap_storage=untyped)
    ints[0], ints[1] = 1, -1
    assert bytes_.tolist() == [1, 0, 0, 0, 255, 255, 255, 255] == untyped.tolist()
    assert ints.untyped() is untyped
    assert ints == IntStorage(wrap_storage=untyped)
    assert hash(ints) == hash(IntStorage(wrap_storage=untyped))
    assert ints != IntStorage(ints.tolist())
    assert ints != bytes_
    with pytest.raises(RuntimeError, match="no whole number of int64 elements"):
        CLASS["Long"](wrap_storage=UntypedStorage(9))
    with pytest.raises(TypeError, match="must be UntypedStorage, not list"):
        IntStorage(wrap_storage=[1])
    untyped.byteswap(types.int32)
    assert ints.tolist() == [1 << 24, -1]


def test_casts_and_classes():
    storage = CLASS["Double"]([1.5, 0, -2])
    names = "double float half long int short char byte bool bfloat16 complex_float".split()
    for name, title in zip(names, TITLES):
        assert type(getattr(storage, name)()) is CLASS[title]
    assert storage.double() is storage.type("weft.DoubleStorage") is storage.cpu() is storage
    assert storage.type(types.int32).tolist() == [1, 0, -2]
    assert storage_class("FloatStorage") is FloatStorage is STORAGE_OF[types.float32]
    with pytest.raises(KeyError, match="no storage type"):
        storage.type("foo")
    assert storage.new([1]).type() == "weft.DoubleStorage"
    assert is_storage(storage)
    assert is_storage(storage.untyped())
    assert not is_storage([1])
    with pytest.raises(TypeError, match="cannot create"):
        STORAGE_BASES[types.float32].__mro__[1]()
    assert (storage.is_pinned(), storage.is_cuda, str(storage.device)) == (False, False, "cpu")


@pytest.mark.parametrize("seed", range(10))
def test_from_buffer_reads_what_struct_writes(seed):
    rng = random.Random(seed)
    letters = {"Double": "d", "Float": "f", "Half": "e", "Long": "q", "Int": "i", "Short": "h"}
    letters |= {"Char": "b", "Byte": "B", "Bool": "?"}
    for title, letter in letters.items():
        values = [rng.randrange(2 if title == "Bool" else 100) for _ in range(rng.randrange(1, 8))]
        order, mark = rng.choice([("little", "<"), ("big", ">"), ("native", "=")])
        data = struct.pack(f"{mark}{len(values)}{letter}", *values)
        lead = rng.randrange(5)
        found = CLASS[title].from_buffer(b"x" * lead + data, order, offset=lead)
        assert found.tolist() == values
        count = rng.randrange(len(values) + 1)
        some = CLASS[title].from_buffer(bytearray(data), order, count)
        assert some.tolist() == values[:count]
    pair = struct.pack(">ff", 1.5, -2.0)
    assert CLASS["ComplexFloat"].from_buffer(pair, "big").tolist() == [1.5 - 2j]
    assert CLASS["Bool"].from_buffer(b"\0\2\1").tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((b"abcd",), "missing required argument 'byte_order'"),
        ((b"abcd", "foo"), r"invalid byte_order 'foo' \(expected 'big', 'little', or 'native'\)"),
        ((b"abc", "native"), r"buffer size \(3\) must be a multiple of element size \(4\)"),
        ((b"x" * 16, "native", 9), "only 4 elements after offset 0, but specified a size of 9"),
        ((b"x" * 8, "native", -1, 9), r"no greater than buffer length \(8\), but got 9"),
        ((b"x" * 8, "native", -1, -1), r"no greater than buffer length \(8\), but got -1"),
        (("abcd", "native"), "a bytes-like object is required, not 'str'"),
    ],
)
def test_from_buffer_refuses(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        FloatStorage.from_buffer(*arguments)


def test_files(tmp_path):
    path = tmp_path / "f.bin"
    storage = FloatStorage.from_file(str(path), shared=True, size=4)
    storage.copy_(FloatStorage([1, 2, 3, 4]))
    assert storage.is_shared()
    assert np.fromfile(path, np.float32).tolist() == [1, 2, 3, 4]
    private = FloatStorage.from_file(path, False, 2)
    private.fill_(9)
    assert np.fromfile(path, np.float32).tolist() == [1, 2, 3, 4]
    assert private.tolist() == [9, 9]
    with pytest.raises(RuntimeError, match="has 16 bytes, 40 are asked for"):
        FloatStorage.from_file(path, False, 10)
    with pytest.raises(FileNotFoundError):
        FloatStorage.from_file(tmp_path / "none", False, 1)
    with pytest.raises(RuntimeError, match="not resizable"):
        storage.resize_(5)
    assert len(UntypedStorage.from_file(path, False, 0)) == 0


def test_shared_memory_is_seen_by_a_forked_process():
    storage, watcher = IntStorage([1, 2]), Watcher()
    storage.untyped()._adopt(watcher)
    assert not storage.is_shared()
    assert storage.share_memory_() is storage
    assert watcher.moves == [storage.data_ptr()]
    assert storage.is_shared()
    child = os.fork()
    if child == 0:
        storage[0] = 41
        os._exit(0)
    os.waitpid(child, 0)
    assert storage.tolist() == [41, 2]
    with pytest.raises(RuntimeError, match="belong to another"):
        IntStorage([1, 2])[1:].share_memory_()


def test_copies_and_pickles():
    storage = FloatStorage([1, 2, 3])
    twins = [storage, FloatStorage(wrap_storage=storage.untyped()), storage.untyped()]
    for made in (copy.deepcopy(twins), pickle.loads(pickle.dumps(twins))):
        assert [type(one) for one in made] == [type(one) for one in twins]
        assert made[0].untyped() is made[1].untyped() is made[2]
        made[0][1] = 7
        assert made[1].tolist() == [1, 7, 3]
    for other in (storage.clone(), copy.copy(storage), storage.untyped().clone()):
        other.fill_(0)
    assert storage.tolist() == [1, 2, 3]


def test_the_memory_outlives_a_storage_that_moves():
    storage = IntStorage([1, 2, 3])
    seen = np.asarray(storage)
    assert np.shares_memory(seen, storage.untyped()._bytes)
    storage.resize_(10**6)
    assert seen.tolist() == [1, 2, 3]
    assert np.array(storage, dtype=np.float64)[:3].tolist() == [1, 2, 3]
    assert np.asarray(CLASS["BFloat16"]([1.5])).dtype == types.bfloat16.numpy
    assert storage.__buffer__(0).tolist()[:3] == [1, 2, 3]
    assert CLASS["BFloat16"]([1.0]).__buffer__(0).tobytes() == b"\x80\x3f"
    assert np.asarray(UntypedStorage([1, 2])).tolist() == [1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_a_storage_spans_any_array(seed):
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 255, (4, 5, 6)).astype(rng.choice(["u1", "i4", "f8"]))
    view = base.transpose(rng.permutation(3))[:: rng.choice([-1, 1, 2])][1:]
    found = UntypedStorage._of_array(view)
    low, high = np.lib.array_utils.byte_bounds(view)
    assert (found.data_ptr(), len(found)) == (low, high - low)
    del base
    lowest = view[tuple(0 if s > 0 else n - 1 for s, n in zip(view.strides, view.shape))]
    assert found._bytes[: view.itemsize].tobytes() == lowest.tobytes()
    assert len(UntypedStorage._of_array(np.empty((0, 3)))) == 0


def test_bytes_refuse_what_is_no_byte():
    for wrong in (256, -1):
        with pytest.raises(RuntimeError, match="uint8 without overflow"):
            UntypedStorage(2).fill_(wrong)
    for wrong in ("a", 1.5, None):
        with pytest.raises(TypeError, match="content with an int"):
            UntypedStorage(2)[0] = wrong
    for wrong in ("abc", b"abc", 1.5, None):
        with pytest.raises(TypeError):
            UntypedStorage(wrong)
    assert UntypedStorage([1, 2, 3])[1:].tolist() == [2, 3]
    assert repr(UntypedStorage([1, 2])) == " 1\n 2\n[weft.UntypedStorage of size 2]"
    with pytest.raises(RuntimeError, match="no device 'cuda'"):
        UntypedStorage(1, device="cuda")


def test_the_storage_of_a_tensor():
    base = weft.arange(6, dtype=weft.float32)
    part = base[2:]
    assert part.storage() == base.storage()
    assert part.storage().tolist() == [0, 1, 2, 3, 4, 5]
    assert part.storage_type() is FloatStorage
    part.storage()[3] = 50
    assert base.tolist() == [0, 1, 2, 50, 4, 5]
    with pytest.raises(NotImplementedError, match="no storage of uint16"):
        weft.ones(2, dtype=weft.uint16).storage()
    assert not base.is_shared()
    assert not base.is_pinned()
    assert base.share_memory_() is base
    assert base.is_shared()
    part[0] = 9
    assert base.tolist() == [0, 1, 9, 50, 4, 5]
    with pytest.raises(RuntimeError, match="none is available"):
        base.pin_memory()


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(
    "place",
    [
        (),
        (1, (2, 2)),
        (1, (2, 2), (1, 2)),
        (3, (2, 2), (2, 1)),
        (0, (2, 0)),
        (0, ()),
        (0, (4,), (0,)),
        (-1, (2,)),
        (0, (2,), (1, 1)),
    ],
)
def test_set(place):
    torch = oracle("torch")
    results = []
    for library in (torch, weft):
        storage = library.FloatStorage([1, 2, 3, 4, 5, 6])
        tensor = library.empty(0)
        try:
            tensor.set_(storage, *place)
        except RuntimeError as error:
            results.append(str(error))
            continue
        known = tensor.flatten()[:3].tolist() if tensor.numel() else []
        results.append((tuple(tensor.shape), tensor.stride(), known, len(storage)))
        if tensor.numel():
            storage[tensor.storage_offset()] = 70
            assert tensor.flatten()[0].item() == 70
    assert results[1] == results[0]


def test_set_to_others():
    tensor, source = weft.zeros(2), weft.arange(4, dtype=weft.float32)[1:]
    version = tensor._version
    assert tensor.set_(source) is tensor
    source[0] = 9
    assert tensor.tolist() == [9, 2, 3]
    assert tensor._version > version
    assert tensor.set_().tolist() == []
    assert tuple(tensor.set_(UntypedStorage(8)).shape) == (2,)
    for wrong, error in [(IntStorage(2), RuntimeError), (weft.ones(2).long(), RuntimeError), (3, TypeError)]:
        with pytest.raises(error):
            tensor.set_(wrong)
    with pytest.raises(RuntimeError, match="negative size"):
        tensor.set_(FloatStorage(2), 0, (-2,))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        weft.ones(2, requires_grad=True).set_()


def moved_by_growing(tensor):
    tensor.untyped_storage().resize_(10_000)


def moved_by_sharing(tensor):
    tensor.share_memory_()


@pytest.mark.parametrize("move", [moved_by_growing, moved_by_sharing])
@pytest.mark.parametrize("asked", range(4))
def test_every_view_moves_with_its_storage(move, asked):
    base = weft.arange(6, dtype=weft.float32)
    part = base[2:]
    views = [base, part, part[1:], weft.Tensor(base)]
    move(views[asked])
    base[3] = 50
    assert part.tolist() == [2, 50, 4, 5]
    assert views[2].tolist() == [50, 4, 5]
    assert views[3].tolist() == [0, 1, 2, 50, 4, 5]
    assert all(view.untyped_storage() is base.untyped_storage() for view in views)


@pytest.mark.parametrize("move", [moved_by_growing, moved_by_sharing])
@pytest.mark.parametrize("asked", range(1, 5))
def test_what_is_detached_moves_with_the_graph_it_left(move, asked):
    result = weft.arange(6, dtype=weft.float32).requires_grad_() * 2
    part = result[2:]  # a view from before the memory went to an owner without a graph
    detached = result.detach()
    views = [result, detached, part.detach(), detached[1:], result.data]
    move(views[asked])
    detached[3] = 50
    assert result.tolist() == [0, 2, 4, 50, 8, 10]
    assert part.tolist() == [4, 50, 8, 10]
    assert all(view.untyped_storage() is result.untyped_storage() for view in [part, *views])


def with_data(source):
    made = weft.zeros(1)
    made.data = source
    return made


SHARING = {
    "detach": lambda source: source.detach(),
    "detach of a view": lambda source: source[1:].detach(),
    "view of a detached": lambda source: source.detach()[1:],
    "data": lambda source: source.data,
    "set data": with_data,
    "Parameter": weft.nn.Parameter,
}


@pytest.mark.parametrize("how", SHARING)
@pytest.mark.parametrize("asked", [False, True], ids=["quiet", "storage asked before"])
def test_who_shares_memory_only_lets_the_graph_go(how, asked):
    source = weft.ones(3, requires_grad=True) * 2
    storage = source.untyped_storage() if asked else None
    shared = SHARING[how](source)
    shared.data[0] = 7
    assert 7 in source.tolist()
    graph = weakref.ref(source)
    del source
    assert graph() is None
    if storage is not None:
        assert shared.untyped_storage() is storage


OWN_DATA = {
    "itself": lambda x: x,
    "detached": lambda x: x.detach(),
    "its data": lambda x: x.data,
    "turned": lambda x: x.data.t(),
    "a part": lambda x: x.data[1:],
    "a column": lambda x: x.data[:, 1],
    "spread": lambda x: x.data[1:].expand(2, 3),
}


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("how", OWN_DATA)
def test_a_tensor_may_look_at_its_own_memory_as_a_view_does(how, requires_grad):
    def looked(library):
        x = library.arange(6, dtype=library.float32).view(2, 3).clone().requires_grad_(requires_grad)
        before = x.detach()
        x.data = OWN_DATA[how](x)
        before[1, 1] = 50
        return x.tolist(), x.stride(), x.storage_offset(), x.untyped_storage().nbytes(), before.storage_offset()

    assert looked(weft) == looked(oracle("torch"))


def test_two_tensors_may_take_the_data_of_one_another():
    first, second = weft.zeros(2), weft.ones(2)
    first.data = second
    second.data = first
    first.fill_(3)
    assert second.tolist() == [3, 3]
    assert first.untyped_storage() is second.untyped_storage()


def test_a_storage_knows_the_root_of_the_view_that_asked_for_it():
    base = weft.zeros(4)
    storage = base[1:].untyped_storage()
    storage.resize_(32)
    base.fill_(1)
    assert storage.tolist()[:16] == [0, 0, 128, 63] * 4


def test_a_storage_that_shrinks_leaves_its_tensors_readable():
    long = weft.arange(6, dtype=weft.float32)
    short = long[:2]
    storage = long.storage()
    storage.resize_(2)
    storage.resize_(4)
    storage[0] = 9
    assert short.tolist() == [9, 1]
    assert long.tolist() == [0, 1, 2, 3, 4, 5]
    storage.resize_(6)
    assert long.tolist()[:2] == [9, 1]


@pytest.mark.parametrize(("shape", "form"), [((2, 3, 4, 5), "channels_last"), ((2, 3, 4, 2, 3), "channels_last_3d")])
def test_memory_formats_order_memory(shape, form):
    torch = oracle("torch")
    values = np.random.default_rng(len(shape)).random(shape)
    results = []
    for library in (weft, torch):
        x, order = library.tensor(values, requires_grad=True), getattr(library, form)
        made = [x.contiguous(memory_format=order), x.to(memory_format=order), x.clone(memory_format=order)]
        made += [made[0].contiguous(), made[0].clone(), library.empty(shape, memory_format=order), made[0] * 2]
        assert made[0].contiguous(memory_format=order) is made[0]
        (made[0] * made[0]).sum().backward()
        np.testing.assert_array_equal(made[0].detach().numpy(), values)
        results.append([(one.stride(), one.is_contiguous(memory_format=order)) for one in made])
        np.testing.assert_allclose(x.grad.numpy(), 2 * values)
        with pytest.raises(RuntimeError, match="required rank"):
            x[0].contiguous(memory_format=order)
        with pytest.raises(RuntimeError, match="required rank"):
            library.empty(3, memory_format=order)
    assert results[0] == results[1]
