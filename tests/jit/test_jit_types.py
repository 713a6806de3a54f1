"""Types of values in programs, against PyTorch's own."""

import itertools

import pytest
from oracles import oracle

import weft
from weft.jit.type_text import type_of_text

ALONE = "TensorType IntType FloatType ComplexType BoolType StringType NumberType NoneType AnyType DeviceObjType".split()

# Expressions of types; C is the namespace that has them.
TYPES = [
    *[f"C.{name}.get()" for name in ALONE],
    "C.ListType(C.IntType.get())",
    "C.ListType(C.NumberType.get())",
    "C.ListType.ofTensors()",
    "C.ListType.ofStrings()",
    "C.OptionalType(C.TensorType.get())",
    "C.OptionalType(C.IntType.get())",
    "C.OptionalType(C.OptionalType(C.IntType.get()))",
    "C.OptionalType(C.ListType.ofInts())",
    "C.ListType(C.OptionalType.ofTensor())",
    "C.TupleType([])",
    "C.TupleType([C.IntType.get(), C.TensorType.get()])",
    "C.TupleType([C.NumberType.get(), C.OptionalType(C.TensorType.get())])",
    "C.DictType(C.StringType.get(), C.IntType.get())",
    "C.DictType(C.StringType.get(), C.ListType.ofTensors())",
    "C.FutureType(C.IntType.get())",
    "C.UnionType([C.IntType.get(), C.TensorType.get()])",
    "C.UnionType([C.IntType.get(), C.NoneType.get()])",
]
TENSORS = [
    "Tensor",
    "Float(2, 3, strides=[3, 1], requires_grad=0, device=cpu)",
    "Float(2, *)",
    "Long()",
    "Float(*, *, device=cpu)",
    "Half(1, 2, requires_grad=1)",
    "Double(4)",
]


@pytest.fixture(scope="module")
def theirs():
    return oracle("torch")._C


@pytest.mark.parametrize("text", TYPES)
def test_a_type_is_spelled_and_asked_as_theirs(text, theirs):
    ours, other = (eval(text, {"C": core}) for core in (weft._C, theirs))
    for question in ("kind()", "str()", "annotation_str", "requires_grad()"):
        assert eval(f"x.{question}", {"x": ours}) == eval(f"x.{question}", {"x": other})
    assert repr(ours) == repr(other)
    assert [part.str() for part in ours.containedTypes()] == [part.str() for part in other.containedTypes()]
    assert ours == eval(text, {"C": weft._C})
    assert hash(ours) == hash(eval(text, {"C": weft._C}))


def test_which_types_are_part_of_which(theirs):
    ours, others = ([eval(text, {"C": core}) for text in TYPES] for core in (weft._C, theirs))
    for one, two in itertools.product(range(len(TYPES)), repeat=2):
        assert ours[one].isSubtypeOf(ours[two]) == others[one].isSubtypeOf(others[two]), (TYPES[one], TYPES[two])
        assert (ours[one] == ours[two]) == (others[one] == others[two])


@pytest.mark.parametrize("text", TENSORS)
def test_what_is_known_of_tensors(text, theirs):
    ours = type_of_text(text)
    (value,) = theirs.parse_ir(f"graph(%x : {text}):\n  return (%x)").inputs()
    other = value.type()
    assert ours.str() == other.str()
    for question in "scalarType dim sizes strides requires_grad undefined varyingSizes".split():
        assert getattr(ours, question)() == getattr(other, question)(), question
    assert str(ours.dtype()).rpartition(".")[2] == str(other.dtype()).rpartition(".")[2]
    assert str(ours.device()) == str(other.device())
    if ours.sizes() is not None:
        assert ours.contiguous().str() == other.contiguous().str()
    if ours.strides() in (None, []):  # those of other sizes, which they keep, mean nothing
        assert ours.with_sizes([3, None]).str() == other.with_sizes([3, None]).str()
    assert ours.isSubtypeOf(weft._C.TensorType.get())
    assert weft._C.TensorType.get().isSubtypeOf(ours) == (text == "Tensor")


def test_the_type_of_a_tensor():
    x = weft.ones(2, 3, dtype=weft.float64).t()
    found = weft._C.TensorType.of(x)
    assert found.str() == "Double(3, 2, strides=[1, 3], requires_grad=0, device=cpu)"
    assert found.with_dtype(weft.int8).scalarType() == "Char"


@pytest.mark.parametrize("name", ["Type", *ALONE])
def test_types_that_nobody_makes(name):
    with pytest.raises(TypeError, match="No constructor defined!"):
        getattr(weft._C, name)()


@pytest.mark.parametrize("text", ["Floaty", "Dict(str)", "int[", "Tensor(2", "Tensor(color=3)", "", "(" * 1000])
def test_what_is_no_type_is_refused(text):
    with pytest.raises(RuntimeError, match="HERE"):
        type_of_text(text)


def test_questions_that_only_tensors_answer():
    with pytest.raises(RuntimeError, match="int is not a type of tensors"):
        weft._C.IntType.get().sizes()
