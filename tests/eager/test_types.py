"""dtype, Size, device, layout, finfo and iinfo behave and print as PyTorch's do."""

import copy
import doctest
import pickle
import random

import numpy as np
import pytest
from oracles import oracle

from weft.base.errors import Error
from weft.eager.tensor import device as device_module
from weft.eager.tensor import size as size_module
from weft.eager.tensor import types
from weft.eager.tensor.types import Size, device, finfo, iinfo

NAMES = (
    "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128"
).split()
ALIASES = "short int long half float double cfloat cdouble".split()


def renamed(text):
    return text.replace("torch", "weft")


@pytest.mark.parametrize("name", NAMES)
def test_dtype_says_what_pytorch_says(name):
    theirs = getattr(oracle("torch"), name)
    ours = types.as_dtype(name)
    assert repr(ours) == str(ours) == renamed(repr(theirs))
    for field in "abbr is_floating_point is_complex is_signed itemsize".split():
        assert getattr(ours, field) == getattr(theirs, field), field
    assert repr(ours.to_real()) == renamed(repr(theirs.to_real()))
    if name == "float16":  # whose complex form weft does not have
        with pytest.raises(RuntimeError, match="Unknown Complex ScalarType for Half"):
            ours.to_complex()
    elif theirs.is_floating_point or theirs.is_complex:
        assert repr(ours.to_complex()) == renamed(repr(theirs.to_complex()))
    else:
        with pytest.raises(RuntimeError) as theirs_raised:
            theirs.to_complex()
        with pytest.raises(RuntimeError) as ours_raised:
            ours.to_complex()
        assert str(ours_raised.value) == str(theirs_raised.value)


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_are_the_same_objects(alias):
    name = repr(getattr(oracle("torch"), alias)).removeprefix("torch.")
    assert types.ALIASES[alias] is types.DTYPE_NAMES[name]


def test_dtypes_are_constants():
    with pytest.raises(TypeError, match=r"cannot create 'weft\.dtype' instances"):
        types.dtype()
    with pytest.raises(TypeError, match=r"cannot create 'weft\.layout' instances"):
        types.layout("strided")
    with pytest.raises(AttributeError, match="not writable"):
        types.float32.name = "float64"
    for one in [*types.DTYPE_NAMES.values(), types.strided, types.preserve_format]:
        assert pickle.loads(pickle.dumps(one)) is one
        assert copy.deepcopy(one) is one
    assert repr(types.dtype) == "<class 'weft.dtype'>"
    assert repr(types.strided) == "weft.strided"
    assert repr(types.channels_last) == "weft.channels_last"


def test_dtypes_of_numpy_and_python():
    for name in NAMES:
        assert types.OF_NUMPY[types.as_dtype(name).numpy] is types.as_dtype(name)
    assert types.as_dtype(np.dtype("uint16")).name == "uint16"
    assert [types.as_dtype(kind).name for kind in (bool, int, float, complex)] == [
        "bool",
        "int64",
        "float64",
        "complex128",
    ]
    for wrong in (None, "float31", np.dtype("U3"), 3, np.dtype("O"), object()):
        with pytest.raises(TypeError, match="no dtype"):
            types.as_dtype(wrong)


def test_default_dtype():
    assert types.get_default_dtype() is types.float32
    try:
        types.set_default_dtype(types.bfloat16)
        assert types.get_default_dtype() is types.bfloat16
        assert finfo() == finfo(types.bfloat16)
        for wrong in (types.int32, types.complex64, "float32"):
            with pytest.raises(TypeError, match="only floating-point types are supported"):
                types.set_default_dtype(wrong)
        assert types.get_default_dtype() is types.bfloat16
    finally:
        types.set_default_dtype(types.float32)


@pytest.mark.parametrize("name", "float16 bfloat16 float32 float64 complex64 complex128".split())
def test_finfo(name):
    theirs = oracle("torch").finfo(getattr(oracle("torch"), name))
    ours = finfo(types.as_dtype(name))
    assert repr(ours) == repr(theirs)
    for field in "bits eps max min tiny resolution smallest_normal dtype".split():
        assert getattr(ours, field) == getattr(theirs, field), field


@pytest.mark.parametrize("name", "uint8 int8 int16 int32 int64 uint16 uint32 uint64".split())
def test_iinfo(name):
    theirs = oracle("torch").iinfo(getattr(oracle("torch"), name))
    ours = iinfo(types.as_dtype(name))
    assert repr(ours) == repr(theirs)
    assert [ours.bits, ours.max, ours.min, ours.dtype] == [theirs.bits, theirs.max, theirs.min, theirs.dtype]


def test_infos_refuse_the_wrong_family_as_pytorch_does():
    torch = oracle("torch")
    calls = [("finfo", "int32"), ("finfo", "bool"), ("iinfo", "float32"), ("iinfo", "bool")]
    for info, name in calls:
        with pytest.raises(TypeError) as theirs:
            getattr(torch, info)(getattr(torch, name))
        with pytest.raises(TypeError) as ours:
            getattr(types, info)(types.as_dtype(name))
        assert str(ours.value) == renamed(str(theirs.value))
    with pytest.raises(TypeError, match=r"must be weft\.dtype, not str"):
        finfo("float32")
    with pytest.raises(TypeError):
        iinfo()
    assert finfo(types.float32) != finfo(types.float64)
    assert finfo(types.float32) != iinfo(types.int32)
    with pytest.raises(TypeError, match="unhashable"):
        hash(finfo())


def random_ints(rng):
    return [rng.randrange(-3, 9) for _ in range(rng.randrange(5))]


@pytest.mark.parametrize("seed", range(20))
def test_size_computes_as_pytorch_does(seed):
    rng = random.Random(seed)
    theirs = oracle("torch").Size
    a, b = random_ints(rng), random_ints(rng)
    n, cut = rng.randrange(3), slice(rng.randrange(-3, 4), rng.randrange(-3, 4))
    calls = [
        lambda S: S(a),
        lambda S: S(a) + S(b),
        lambda S: tuple(a) + S(b),
        lambda S: S(a) + tuple(b),
        lambda S: S(a) * n,
        lambda S: n * S(a),
        lambda S: S(a)[cut],
        lambda S: S(a).numel(),
        lambda S: S(a) == tuple(a),
        lambda S: hash(S(a)) == hash(tuple(a)),
        lambda S: list(S(a)),
        lambda S: S(np.array(a, int)),
        lambda S: pickle.loads(pickle.dumps(S(a))),
        lambda S: copy.deepcopy(S(a)),
    ]
    for call in calls:
        assert repr(call(Size)) == renamed(repr(call(theirs)))


@pytest.mark.parametrize(
    "call",
    [
        lambda S: S([2, "a"]),
        lambda S: S([2.0]),
        lambda S: S("ab"),
        lambda S: S([1]) + (1.5,),
        lambda S: (1.5,) + S([1]),
        lambda S: S([1, 2, 3]) + [1],
    ],
)
def test_size_refuses_what_pytorch_refuses(call):
    with pytest.raises((TypeError, ValueError)) as theirs:
        call(oracle("torch").Size)
    with pytest.raises(type(theirs.value)) as ours:
        call(Size)
    assert str(ours.value) == renamed(str(theirs.value))


def test_size_does_not_join_lists_nor_numbers():
    for call in (lambda: [1] + Size([1]), lambda: Size(3), lambda: Size([1]) * 2.0):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="Overflow when unpacking long long"):
        Size([2**70])


GOOD_DEVICES = [("cpu",), ("cpu:0",), ("cuda",), ("cuda:1",), ("meta",), ("cuda", 1), ("cpu", None)]


@pytest.mark.parametrize("arguments", GOOD_DEVICES)
def test_device_prints_as_pytorch_does(arguments):
    theirs, ours = oracle("torch").device(*arguments), device(*arguments)
    assert (repr(ours), str(ours)) == (repr(theirs), str(theirs))
    assert (ours.type, ours.index) == (theirs.type, theirs.index)
    assert pickle.loads(pickle.dumps(ours)) == ours == device(ours) == copy.deepcopy(ours)
    assert hash(ours) == hash(device(*arguments))


BAD_DEVICES = [("foo",), ("cuda:x",), ("cuda:-1",), ("cuda:01",), ("cpu:",), ("",), (":1",)]
BAD_DEVICES += [("cpu:1:2",), ("CPU",), ("cuda", -1), ("cuda:0", 0), (1,), (-1,), ("cpu", "x")]


@pytest.mark.parametrize("arguments", BAD_DEVICES)
def test_device_refuses_with_pytorchs_words(arguments):
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        oracle("torch").device(*arguments)
    with pytest.raises(type(theirs.value)) as ours:
        device(*arguments)
    assert str(ours.value) == str(theirs.value)
    assert isinstance(ours.value, Error)


def test_devices_differ_and_have_no_order():
    assert device("cpu") != device("cpu:0")
    assert device("cpu") != "cpu"
    with pytest.raises(TypeError):
        sorted([device("cpu"), device("cuda")])
    with pytest.raises(AttributeError):
        device("cpu").type = "cuda"
    for wrong in [(), (1.5,), (None,), (device("cpu"), 1)]:
        with pytest.raises(TypeError):
            device(*wrong)
    with pytest.raises(RuntimeError, match="greater than 127"):
        device("cuda:300")


def test_only_the_processor_computes():
    with device("cpu") as here:
        assert here == device("cpu")
    with pytest.raises(RuntimeError, match="no device 'cuda:1'"), device("cuda:1"):
        pass


@pytest.mark.parametrize("module", [types, size_module, device_module])
def test_examples_of_classes_that_name_weft_as_their_module(module):
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == "weft":
            for test in finder.find(value, globs=vars(module).copy(), module=False):
                runner.run(test)
    assert runner.summarize().failed == 0
    assert runner.tries > 0
