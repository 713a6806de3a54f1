"""The table of operators against PyTorch's own: the texts of schemas, their order, what they compute, and which
overload a call means."""

import math
import random

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.jit.matching import bind, match
from weft.jit.operators import find, full_name, names, operators_of
from weft.jit.schema import parse_schema
from weft.jit.types import (
    BoolType,
    DeviceObjType,
    FloatType,
    IntType,
    ListType,
    NumberType,
    OptionalType,
    ScalarTypeType,
    StringType,
    SymIntType,
    TensorType,
    TupleType,
)

SHAPES = [(3, 3), (2, 3), (3,), (2, 3, 3), (2, 3, 4, 4)]
RANDOM_NUMBERS = (
    "rand randn randint randperm bernoulli normal dropout rrelu multinomial poisson uniform exponential cauchy "
    "geometric log_normal random empty binomial"
).split()


@pytest.fixture
def torch():
    return oracle("torch")


def test_every_schema_is_one_of_pytorch_in_its_order(torch):
    for name in names():
        ours = [str(operator.schema) for operator in operators_of(name)]
        theirs = [str(parse_schema(str(schema))) for schema in torch._C._jit_get_schemas_for_operator(name)]
        assert [text for text in theirs if text in ours] == ours, name
    assert len(names()) > 900


# Tensors


def sample(kind, name, rng, shape):
    """A random value of a type, or _NONE_ if there is no way to make one."""
    if isinstance(kind, OptionalType):
        return None if rng.random() < 0.5 else sample(kind.getElementType(), name, rng, shape)
    if isinstance(kind, TensorType):
        made = np.random.default_rng(rng.getrandbits(32)).uniform(0.1, 0.9, shape).astype("float32")
        return made if "ind" not in name else (made * 2).astype("int64")
    if isinstance(kind, ListType):
        return [sample(kind.getElementType(), name, rng, shape) for _ in range(2)]
    if isinstance(kind, (IntType, SymIntType)):
        return rng.choice([0, 1, 2])
    if isinstance(kind, FloatType):
        return rng.choice([0.1, 0.5, 1.0])
    if isinstance(kind, BoolType):
        return rng.random() < 0.5
    if isinstance(kind, NumberType):
        return rng.choice([1, 2, 0.5])
    if isinstance(kind, StringType):
        return rng.choice(["mean", "none", "floor", "linear", "sum"])
    if isinstance(kind, ScalarTypeType):
        return rng.choice([6, 7])
    if isinstance(kind, DeviceObjType):
        return "cpu"
    return None


def on(library, value, kind):
    if isinstance(value, np.ndarray):
        return library.tensor(value.copy()) if library is weft else library.from_numpy(value.copy())
    if isinstance(value, list):
        return [on(library, item, kind) for item in value]
    if isinstance(value, str) and isinstance(kind, DeviceObjType):
        return library.device(value)
    inner = kind.getElementType() if isinstance(kind, OptionalType) else kind
    if library is not weft and isinstance(inner, ScalarTypeType) and value is not None:
        return {4: library.int64, 6: library.float32, 7: library.float64}[value]
    return value


def check_alike(ours, theirs, torch, values=True):
    if isinstance(theirs, torch.Tensor):
        assert tuple(ours.shape) == tuple(theirs.shape)
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        if values:
            np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().resolve_conj().numpy(), 1e-3, 1e-4)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, two in zip(ours, theirs):
            check_alike(one, two, torch, values)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, 1e-5, nan_ok=True)
    elif not isinstance(theirs, (torch.dtype, torch.device, torch.layout)):
        assert type(ours) is type(theirs)
        assert ours == theirs


# Samples that are no samples: signs of vectors, what PyTorch leaves undefined (sorted boundaries, equal elements).
UNDEFINED = frozenset(
    f"aten::{name}"
    for name in (
        "svd linalg_svd linalg_eigh linalg_eig linalg_qr qr geqrf linalg_lstsq searchsorted bucketize kthvalue topk "
        "sort argsort msort as_strided_scatter index_put logit special_logit linalg_pinv lobpcg "
        "scaled_dot_product_attention hardtanh hardtanh_ logit_ special_logit empty_like new_empty empty_strided "
        "empty_permuted resize_ median nanmedian mode linalg_householder_product"
    ).split()
)


# PyTorch itself does not check what these are given, and crashes.
UNCHECKED = frozenset(
    f"aten::{name}"
    for name in (
        "native_batch_norm native_group_norm native_layer_norm to lstm gru rnn_tanh rnn_relu embedding_bag set_ "
        "_convolution convolution as_strided as_strided_ as_strided_copy set_data backward grad"
    ).split()
)


@pytest.mark.parametrize("share", range(12))
def test_operators_on_tensors_compute_what_pytorch_does(torch, share):
    """Random arguments by the schema; PyTorch says which of them make sense."""
    compared, wrong = 0, list[str]()
    for number, name in enumerate(names()):
        if number % 12 != share or name in UNDEFINED | UNCHECKED or not name.startswith("aten::"):
            continue
        for operator in operators_of(name):
            schema = operator.schema
            if not any("Tensor" in str(part.type) for part in (*schema.arguments, *schema.returns)):
                continue
            if any("Generator" in str(argument.type) or "Dict" in str(argument.type) for argument in schema.arguments):
                continue
            compared += compare(torch, operator, random.Random(f"{schema}"), wrong)
    assert wrong == []
    assert compared > 40


def compare(torch, operator, rng, wrong):
    """How many calls of an operator were compared; what is wrong with them goes to a list."""
    schema = operator.schema
    space, name = schema.name.split("::")
    overload = getattr(getattr(getattr(torch.ops, space), name), schema.overload_name or "default", None)
    if overload is None:
        return 0
    for _ in range(12):
        shape = rng.choice(SHAPES)
        values = [
            argument.default_value or sample(argument.real_type, argument.name, rng, shape)
            if isinstance(argument.real_type, OptionalType)  # None is no dtype where another one is the default
            else sample(argument.real_type, argument.name, rng, shape)
            for argument in schema.arguments
        ]
        kinds = [argument.real_type for argument in schema.arguments]
        given = [on(torch, value, kind) for value, kind in zip(values, kinds)]
        positional = [v for v, argument in zip(given, schema.arguments) if not argument.kwarg_only]
        named = {argument.name: v for v, argument in zip(given, schema.arguments) if argument.kwarg_only}
        try:
            theirs = overload(*positional, **named)
        except Exception:
            continue  # no call that makes sense
        mine = [on(weft, value, kind) for value, kind in zip(values, kinds)]
        drawn = any(part in name for part in RANDOM_NUMBERS)
        try:
            ours = operator.call(*mine)
            check_alike(ours, theirs, torch, not drawn)
        except Exception as error:  # whatever an operator raises
            wrong.append(f"{schema} with {values}: {error}")
        return 1
    return 0


# Numbers, texts and containers


def random_value(kind, rng):
    if isinstance(kind, IntType):
        return rng.choice([0, 1, 2, 3, 7, -4])
    if isinstance(kind, FloatType):
        return rng.choice([0.0, 1.0, 2.5, -1.25, 0.1])
    if isinstance(kind, BoolType):
        return rng.random() < 0.5
    if isinstance(kind, NumberType):
        return rng.choice([1, 2.5, -3])
    if isinstance(kind, StringType):
        return rng.choice(["abc", "b", " a bc ", "Ab1", "a"])  # PyTorch searches for an empty text forever
    if isinstance(kind, ListType) and not isinstance(kind.getElementType(), (ListType, TupleType)):
        return [random_value(kind.getElementType(), rng) for _ in range(rng.choice([1, 2, 3]))]
    if isinstance(kind, OptionalType):
        return random_value(kind.getElementType(), rng)
    raise LookupError(kind)


AROUND = "seed grad warn TimePoint AddStat hash Uninitialized device chr Size factorial".split()
AROUND.append("divmod")  # which PyTorch computes with 32 bits
NOT_NEGATIVE = ("aten::__lshift__", "aten::__rshift__", "aten::center")
DIVIDING = ("aten::remainder", "aten::__round_to_zero_floordiv")
ENDED = ("aten::count", "aten::startswith")  # of texts: PyTorch's find what reaches behind an end


def test_operators_on_values_compute_what_pytorch_does(torch):
    compared, wrong, rng = set(), list[str](), random.Random(0)
    for name in names():
        for operator in operators_of(name):
            schema = operator.schema
            if any(part in name for part in AROUND) or schema.is_vararg or "complex" in str(schema):
                continue
            if any("Tensor" in str(part.type) for part in (*schema.arguments, *schema.returns)):
                continue
            for _ in range(8):
                try:
                    values = [random_value(argument.type, rng) for argument in schema.arguments]
                except LookupError:
                    break
                if (name in NOT_NEGATIVE and values[1] < 0) or (name in DIVIDING and values[1] == 0):
                    continue  # which no machine defines: PyTorch's process ends
                if name in ENDED and isinstance(values[0], str):
                    values[3] = -1
                space, short = name.split("::")
                overload = getattr(getattr(getattr(torch.ops, space), short), schema.overload_name or "default")
                try:
                    theirs = overload(*values)
                except Exception:
                    continue
                try:
                    ours = operator.call(*values)
                except Exception as error:  # whatever an operator raises
                    ours = error
                if not same(ours, theirs) and schema.overload_name != "int_to_int":  # theirs gives a float there
                    wrong.append(f"{schema} of {values}: {ours!r}, not {theirs!r}")
                compared.add(full_name(schema))
    assert wrong == []
    assert len(compared) > 300


def same(ours, theirs):
    """Whether results are alike; PyTorch computes those of Scalar with 32 bits."""
    if isinstance(theirs, (list, tuple)):
        return type(ours) is type(theirs) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    if isinstance(theirs, float) and isinstance(ours, float):
        return ours == theirs or math.isclose(ours, theirs, rel_tol=1e-6) or (ours != ours and theirs != theirs)
    return type(ours) is type(theirs) and ours == theirs


def test_ints_have_64_bits():
    assert find("aten::mul.int").call(2**62, 4) == 0
    assert find("aten::add.int").call(2**63 - 1, 1) == -(2**63)


def test_a_name_that_is_not_there_is_told():
    with pytest.raises(KeyError, match=r"no operator is 'aten::add\.Banana'.*\n.*aten::add\.Tensor"):
        find("aten::add.Banana")
    with pytest.raises(RuntimeError, match="Unknown builtin op: aten::banana"):
        match("aten::banana", [])


# Which overload

CALLS = [
    ("aten::add", [TensorType.get(), TensorType.get()], {}, "Tensor"),
    ("aten::add", [TensorType.get(), IntType.get()], {}, "Scalar"),
    ("aten::add", [IntType.get(), FloatType.get()], {}, "int_float"),
    ("aten::add", [TensorType.get(), TensorType.get()], {"alpha": IntType.get()}, "Tensor"),
    ("aten::sum", [TensorType.get()], {}, ""),
    ("aten::sum", [TensorType.get(), ListType.ofInts()], {}, "dim_IntList"),
    ("aten::max", [TensorType.get(), IntType.get()], {}, "dim"),
    ("aten::len", [StringType.get()], {}, "str"),
    ("aten::__getitem__", [ListType.ofTensors(), IntType.get()], {}, "t"),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "overload"), CALLS)
def test_the_overload_of_types(name, args, kwargs, overload):
    assert match(name, args, kwargs).operator.schema.overload_name == overload


def test_types_that_a_schema_leaves_open_follow_from_the_call():
    found = match("aten::__getitem__", [ListType(ListType.ofInts()), IntType.get()])
    assert found.returns == [ListType.ofInts()]


def test_conversions_of_arguments():
    pool = match("aten::max_pool2d", [TensorType.get(), IntType.get()])
    assert pool.arguments[1].conversion.kind == "repeat"
    assert pool.arguments[1].conversion.times == 2
    view = match("aten::view", [TensorType.get(), IntType.get(), IntType.get()])
    assert view.arguments[1].conversion.kind == "collect"
    assert view.arguments[1].conversion.times == 2
    power = match("aten::dropout", [TensorType.get(), TensorType.get(), BoolType.get()])
    assert power.arguments[1].conversion.name == "aten::FloatImplicit"
    turned = match("aten::permute", [TensorType.get(), TupleType([IntType.get(), IntType.get()])])
    assert turned.arguments[1].conversion.kind == "list"


def test_calls_by_values_agree_with_pytorch(torch):
    rng = np.random.default_rng(random.getrandbits(32))
    array = rng.standard_normal((4, 6)).astype("float32")
    ours, theirs = weft.tensor(array), torch.from_numpy(array)
    for name, args in [
        ("view", [2, 12]),
        ("permute", [(1, 0)]),
        ("sum", [1]),
        ("add", [2.5]),
        ("transpose", [0, 1]),
        ("to", [weft.float64]),
        ("softmax", [-1]),
    ]:
        operator, values = bind(f"aten::{name}", [ours, *args])
        expected = getattr(theirs, name)(*[torch.float64 if arg is weft.float64 else arg for arg in args])
        check_alike(operator.call(*values), expected, torch)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (["Tensor", "str"], {}, "Expected a value of type 'Tensor' for argument 'other' but instead found type 'str'."),
        (["Tensor"], {}, "Argument other not provided."),
        (["Tensor", "Tensor"], {"beta": "int"}, "Keyword argument beta unknown."),
        (["Tensor"] * 4, {}, "Expected at most 2 arguments but found 4 positional arguments."),
    ],
)
def test_errors_of_calls_are_those_of_pytorch(args, kwargs, message):
    kinds = {"Tensor": TensorType.get(), "str": StringType.get(), "int": IntType.get()}
    with pytest.raises(RuntimeError) as caught:
        match("aten::add", [kinds[arg] for arg in args], {key: kinds[arg] for key, arg in kwargs.items()})
    assert "Arguments for call are not valid.\nThe following variants are available:" in str(caught.value)
    assert message in str(caught.value)
