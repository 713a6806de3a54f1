"""weft._C and the names of weft: filled in order, all or nothing, and exactly what is promised."""

import copy
import pickle
import subprocess
import sys

import pytest
from oracles import oracle

import weft
from weft.eager.tensor.storage_copy import copy_pairs
from weft.eager.torch_core import namespace as core_namespace
from weft.eager.torch_core.namespace import STEPS, filled, public_names

# The public names of PyTorch 1.1's core, and what a user of today's expects beside them of the forms of programs.
PROGRAMS = (
    "AnyType Argument AwaitType Block BoolType ClassType ComplexType DeviceObjType DictType FileCheck FloatType "
    "FunctionSchema FutureType Graph IntType ListType Node NoneType NumberType OptionalType PyObjectType RRefType "
    "StreamObjType StringType SymIntType TensorType TupleType Type UnionType Use Value parse_ir parse_schema "
    "ArgumentSpec Code CompilationUnit CompleteArgumentSpec ExecutionPlanState Gradient GraphExecutor "
    "GraphExecutorState IODescriptor JITException ScriptFunction ScriptMethod ScriptModule TracingState "
    "import_ir_module import_ir_module_from_buffer merge_type_from_type_comment parse_type_comment"
).split()
CORE = (
    PROGRAMS
    + (
        "AVG AggregationType ExtraFilesMap FatalError Future Generator LockingLogger NoopLogger "
        "PyTorchFileReader PyTorchFileWriter SUM Size cpp default_generator device dtype finfo fork "
        "get_default_dtype get_num_threads has_cuda has_cudnn has_lapack has_mkl has_mkldnn has_openmp "
        "iinfo is_anomaly_enabled is_grad_enabled layout set_anomaly_enabled set_flush_denormal "
        "set_grad_enabled set_num_threads wait"
    ).split()
)
LITERAL = (
    "typename is_tensor is_storage set_default_tensor_type set_rng_state get_rng_state manual_seed "
    "initial_seed save load set_printoptions chunk split stack matmul no_grad enable_grad rand "
    "randn"
).split()
NINE = "Double Float Half Long Int Short Char Byte Bool".split()
TYPED = [f"{t}{kind}" for kind in ("Storage", "Tensor") for t in NINE if t not in ("Half", "Bool")]


def test_the_core_has_exactly_its_names():
    assert public_names(vars(weft._C)) == sorted(CORE)
    for title in NINE:
        assert getattr(weft._C, f"{title}StorageBase").__name__ == f"{title}StorageBase"
    assert weft._C.LoggerBase is weft.LoggerBase
    assert weft._C.default_generator is weft.default_generator
    assert weft._C._ImperativeEngine.__name__ == "_EngineBase"
    assert not hasattr(weft._C, "_EngineBase")
    assert isinstance(weft.autograd.Variable._execution_engine, weft._C._ImperativeEngine)


def test_all_is_the_written_list_and_the_core():
    rooms = "Error NNVMError __version__ symbol sym graph compiler frontend nd Op compile".split()
    assert {*CORE, *LITERAL, *TYPED, "Tensor", *rooms} <= set(weft.__all__)
    assert len(LITERAL) + len(TYPED) + 1 == 34
    assert len(weft.__all__) == len(set(weft.__all__))
    hidden = [n for n in weft.__all__ if n.startswith("_") or n.endswith("Base")]
    assert hidden == ["__version__"]
    for name in weft.__all__:
        assert hasattr(weft, name), name


def test_star_import_gives_exactly_all():
    code = (
        "before = set(globals()) | {'before'}\n"
        "from weft import *\n"
        "import weft\n"
        "found = set(globals()) - before - {'weft'}\n"
        "print(sorted(found ^ (set(weft.__all__))))"
    )
    assert child(code) == "[]"


def child(code, *options):
    run = [sys.executable, *options, "-c", code]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()


def test_fresh_imports():
    assert child("import weft._C; print(weft._C.SUM)", "-O") == "AggregationType.SUM"
    again = "import importlib, weft._C as c; s = c.Size; importlib.reload(c); print(c.Size is s)"
    assert child(again) == "True"
    light = "import sys, weft; print('weft.eager' in sys.modules, '_C' in dir(weft))"
    assert child(light).startswith("False")


def test_storages_are_entered_one_after_the_other():
    storages = [step for step in STEPS if step.__name__ == "add_storage"]
    assert len(storages) == 9
    namespace = {}
    for title, step in zip(NINE, storages):
        step(namespace)
        assert list(namespace)[-1] == f"{title}StorageBase"
    before = len(copy_pairs())
    for step in STEPS:
        step(namespace)
    assert len(copy_pairs()) == before


def test_grad_mode_is_a_raw_function_in_the_core():
    assert weft._C.set_grad_enabled is not weft.set_grad_enabled
    assert weft._C._set_grad_enabled is weft._C.set_grad_enabled
    try:
        assert weft._C.set_grad_enabled(False) is None
        assert not weft.is_grad_enabled()
    finally:
        weft._C.set_grad_enabled(True)
    with pytest.raises(TypeError):
        weft._C.set_grad_enabled(1)


@pytest.mark.parametrize("broken", range(len(STEPS)))
def test_a_step_that_fails_leaves_nothing(broken):
    def fail(namespace):
        raise ValueError("no memory")

    with pytest.raises(ImportError, match="fail failed: no memory"):
        filled([*STEPS[:broken], fail, *STEPS[broken:]])


def test_a_failed_import_leaves_no_module():
    code = (
        "import sys\n"
        "from weft.eager.torch_core import namespace\n"
        "def fail(): raise ImportError('weft._C: broken')\n"
        "namespace.filled = fail\n"
        "try:\n"
        "    import weft._C\n"
        "except ImportError as error:\n"
        "    print(error, 'weft._C' in sys.modules)\n"
    )
    assert child(code) == "weft._C: broken False"
    assert core_namespace.filled is filled


def test_the_engine_can_be_replaced():
    class Counting(weft._C._ImperativeEngine):
        runs = 0

        def run_backward(self, *args, **kwargs):
            Counting.runs += 1
            return super().run_backward(*args, **kwargs)

    before = weft._C._get_default_engine()
    try:
        weft._C._set_default_engine(Counting())
        x = weft.ones(2, requires_grad=True)
        (x * 2).sum().backward()
        assert Counting.runs == 1
        assert x.grad.tolist() == [2, 2]
    finally:
        weft._C._set_default_engine(before)


@pytest.fixture
def default_engine():
    engine = weft.autograd.engine
    before = engine.set_default_engine_stub(engine.get_python_engine)
    yield
    engine.set_default_engine_stub(before)


def gradient():
    x = weft.tensor([3.0], requires_grad=True)
    (x * x).sum().backward()
    return x.grad.tolist()


def test_a_stub_says_which_engine_runs(default_engine):
    engine, asked = weft.autograd.engine, []

    def stub():
        asked.append(len(asked))
        return engine.get_base_engine()

    assert weft.autograd.Variable._execution_engine is engine.get_python_engine()
    assert engine.set_default_engine_stub(stub) is engine.get_python_engine
    assert asked == []
    assert gradient() == [6.0]
    assert asked == [0]
    assert weft.autograd.Variable._execution_engine is engine.get_base_engine()
    assert weft._C._set_default_engine_stub(weft._C._get_python_engine) is stub
    assert isinstance(engine.get_default_engine(), weft._C._ImperativeEngine)
    assert not isinstance(engine.get_base_engine(), weft._C._ImperativeEngine)


def test_what_is_no_engine(default_engine):
    engine, kind = weft.autograd.engine, weft._C._ImperativeEngine
    for wrong in (kind, 3, None, "engine", object()):
        with pytest.raises(weft.Error):
            engine.set_default_engine(wrong)
        with pytest.raises(weft.Error):
            weft.autograd.Variable._execution_engine = wrong
    with pytest.raises(TypeError, match="is a class"):
        engine.set_default_engine(kind)
    for wrong in (3, None, "engine", kind()):
        with pytest.raises(TypeError, match="function that gives an engine"):
            engine.set_default_engine_stub(wrong)
    engine.set_default_engine_stub(lambda: 3)
    with pytest.raises(TypeError, match="int is no engine"):
        gradient()
    engine.set_default_engine_stub(engine.get_python_engine)
    assert gradient() == [6.0]


def run_backward(lib, wrong):
    """What an engine says of arguments that it cannot take."""
    y, one = lib.ones(2, requires_grad=True).sum(), lib.ones(())
    arguments = {
        "tensors": ((3,), (4,)),
        "gradients": ((y,), (4,)),
        "no gradient": ((y,), (None,)),
        "no tuple of gradients": ((y,), 4),
        "no tuple": ([y], (one,)),
        "too few": ((y,), ()),
        "inputs": ((y,), (one,), (3,)),
        "no tuple of inputs": ((y,), (one,), 3),
    }[wrong]
    tensors, grads, *inputs = arguments
    lib._C._ImperativeEngine().run_backward(tensors, grads, False, False, *inputs)


@pytest.mark.parametrize(
    "wrong",
    [
        "tensors",
        "gradients",
        "no gradient",
        "no tuple of gradients",
        "no tuple",
        "too few",
        "inputs",
        "no tuple of inputs",
    ],
)
def test_arguments_of_an_engine(wrong):
    with pytest.raises(RuntimeError) as theirs:
        run_backward(oracle("torch"), wrong)
    with pytest.raises(weft.Error) as ours:
        run_backward(weft, wrong)
    assert isinstance(ours.value, RuntimeError)
    assert str(ours.value).split("\n")[0] == str(theirs.value).split("\n")[0]


def test_variables_are_made_from_tensors():
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got int"):
        weft.autograd.Variable(3)


def test_anomaly_mode_is_on_or_off():
    for wrong in (3, None, "on"):
        with pytest.raises(weft.Error, match=r"'enabled'.*must be bool"):
            weft.set_anomaly_enabled(wrong)
        with pytest.raises(weft.Error, match="must be bool"):
            weft.autograd.detect_anomaly(check_nan=wrong)
    assert not weft.is_anomaly_enabled()


def test_rebuild_functions_are_named():
    assert callable(weft._utils._rebuild_tensor_v2)
    assert list(weft._utils._accumulate([1, 2, 3])) == [1, 3, 6]


def test_ordered_dicts():
    module, part = weft.cpp.nn.Module(), weft.cpp.nn.Module()
    module.register_module("part", part)
    a = module.register_parameter("a", weft.ones(1))
    b = part.register_parameter("b", weft.ones(2))
    part.register_buffer("c", weft.ones(3))
    found = module.named_parameters()
    assert isinstance(found, weft.cpp.OrderedTensorDict)
    assert found.keys() == ["a", "part.b"]
    assert found["a"] is found[0] is a
    assert found[-1] is b
    assert len(found) == 2
    assert "a" in found
    assert [name for name, _ in found] == found.keys()
    assert module.named_modules().keys() == ["", "part"]
    assert module.named_children()["part"] is part
    assert module.named_buffers().keys() == ["part.c"]
    module.eval()
    assert not part.training
    for wrong, error in (("x", KeyError), (2, IndexError), (None, TypeError), (1.0, TypeError)):
        with pytest.raises(error):
            found[wrong]
    assert repr(found) == "OrderedTensorDict([a, part.b])"
    again = pickle.loads(pickle.dumps(found))
    assert type(again) is type(found)
    assert again["part.b"].tolist() == [1, 1]
    assert pickle.loads(pickle.dumps(module)).named_modules().keys() == ["", "part"]


def test_what_ordered_dicts_refuse():
    tensors, module = weft.cpp.OrderedTensorDict, weft.cpp.nn.Module()
    for wrong in (
        lambda: tensors([("a", 3)]),
        lambda: tensors([(3, weft.ones(1))]),
        lambda: tensors(3),
        lambda: tensors(["a"]),
        lambda: weft.cpp.OrderedModuleDict([("a", weft.ones(1))]),
        lambda: module.register_parameter("a", 3),
        lambda: module.register_parameter(3, weft.ones(1)),
        lambda: module.register_buffer("a", None),
        lambda: module.register_module("a", weft.ones(1)),
    ):
        with pytest.raises(weft.Error) as raised:
            wrong()
        assert isinstance(raised.value, TypeError)
    assert len(module.named_parameters()) == len(module.named_children()) == 0


@pytest.mark.parametrize("title", NINE)
def test_base_storages_travel(title):
    base = getattr(weft._C, f"{title}StorageBase")
    storage = base([1, 0, 1])
    for again in (pickle.loads(pickle.dumps(storage)), copy.deepcopy(storage)):
        assert type(again) is base
        assert [again[i] for i in range(3)] == [1, 0, 1]
        again[1] = 1
    assert storage[1] == 0


TENSOR_TITLES = "Double Float Half Long Int Short Char Byte Bool BFloat16".split()


@pytest.mark.parametrize("title", TENSOR_TITLES)
def test_typed_tensors(title):
    torch = oracle("torch")
    ours, theirs = getattr(weft, f"{title}Tensor"), getattr(torch, f"{title}Tensor")
    assert repr(ours) == repr(theirs).replace("torch", "weft")
    assert repr(ours.dtype) == repr(theirs.dtype).replace("torch", "weft")
    assert repr(type(ours)) == "<class 'weft.tensortype'>"
    assert ours.__mro__ == (ours, object)
    assert (ours.layout, ours.is_cuda, ours.is_sparse) == (weft.strided, False, False)
    assert not issubclass(ours, weft.Tensor)
    for call in (
        lambda kind, _: kind(),
        lambda kind, _: kind([1, 0, 1]),
        lambda kind, _: kind([[1, 0], [0, 1]]),
        lambda kind, _: kind((2, 3)),
        lambda kind, _: kind(range(3)),
    ):
        assert repr(call(ours, weft)) == repr(call(theirs, torch)).replace("torch", "weft")
    assert tuple(ours(2, 3).shape) == (2, 3)
    assert tuple(ours(weft.Size([4])).shape) == (4,)
    made = ours([1, 0])
    assert isinstance(made, ours)
    assert isinstance(made, weft.Tensor)
    assert not any(isinstance(made, getattr(weft, f"{other}Tensor")) for other in TENSOR_TITLES if other != title)
    assert weft.typename(made) == f"weft.{title}Tensor" == made.type()
    alias = ours(made)
    alias[0] = 0
    assert made.tolist() == [0, 0]
    storage = getattr(weft, f"{title}Storage")([1, 1, 0])
    over = ours(storage)
    storage[2] = 1
    assert over.tolist() == [1, 1, 1]


def test_what_typed_tensors_refuse():
    for wrong, error in [
        (lambda: weft.FloatTensor(weft.ones(2).long()), TypeError),
        (lambda: weft.FloatTensor(weft.IntStorage(1)), TypeError),
        (lambda: weft.FloatTensor("a"), TypeError),
        (lambda: weft.FloatTensor(3.5), TypeError),
        (lambda: weft.FloatTensor(-1), RuntimeError),
        (lambda: weft.ByteTensor([256]), RuntimeError),
        (lambda: weft.FloatTensor([1], [2]), TypeError),
    ]:
        with pytest.raises(error):
            wrong()
    assert weft.LongTensor([1.5]).tolist() == [1]


def test_tensors_of_the_default_dtype():
    assert weft.Tensor().tolist() == []
    assert tuple(weft.Tensor(2, 3).shape) == (2, 3)
    assert repr(weft.Tensor([1, 2])) == "tensor([1., 2.])"
    source = weft.ones(2)
    alias = weft.Tensor(source)
    alias[0] = 5
    assert source.tolist() == [5, 1]
    held = weft.FloatStorage([1, 2])
    over = weft.Tensor(held)
    held.resize_(1000)
    held[0] = 7
    assert over.tolist() == [7, 2]
    with pytest.raises(TypeError):
        weft.Tensor(weft.ones(2).double())


def test_the_default_tensor_type():
    torch = oracle("torch")
    try:
        weft.set_default_tensor_type("weft.DoubleTensor")
        assert weft.get_default_dtype() is weft.float64
        weft.set_default_tensor_type(weft.HalfTensor)
        assert weft.get_default_dtype() is weft.float16
        for wrong, error in [
            (weft.IntTensor, TypeError),
            ("weft.FooTensor", AttributeError),
            (3, TypeError),
            (weft.float32, TypeError),
        ]:
            with pytest.raises(error) as ours:
                weft.set_default_tensor_type(wrong)
            mirrored = torch.float32 if wrong is weft.float32 else wrong
            if wrong is weft.IntTensor:
                mirrored = torch.IntTensor
            elif wrong == "weft.FooTensor":
                mirrored = "torch.FooTensor"
            with pytest.raises(error) as theirs:
                torch.set_default_tensor_type(mirrored)
            first = str(ours.value).split("\n")[0]
            assert first == str(theirs.value).replace("torch", "weft")
        assert weft.get_default_dtype() is weft.float16
    finally:
        weft.set_default_tensor_type(weft.FloatTensor)


def test_typenames():
    torch = oracle("torch")
    for value in (3, int, [], list, None, print, dict.get):
        assert weft.typename(value) == torch.typename(value)
    assert weft.typename(weft.float32) == "weft.dtype"
    assert weft.typename(weft.ones(1, dtype=weft.uint16)) == "weft.UInt16Tensor"
    assert weft.typename(weft.serialization.load) == "weft.eager.archive.load.load"
    assert weft.typename(weft.FloatStorage(1)) == "weft.FloatStorage"
