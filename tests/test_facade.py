"""Public names: where they are, and that importing weft loads nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft

HEAVY = ("llvmlite", "onnx", "rich", "click", "weft.codegen", "weft.ops", "weft.compiler.model")


def child(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_is_light():
    code = f"import sys, weft; print(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    assert child(code) == ""


def test_symbolic_work_needs_no_llvm():
    code = (
        "import sys, weft; x = weft.symbol.Variable('x');"
        "weft.compiler.graph_util.infer_shape(weft.symbol.relu(x), x=(2, 3));"
        "print('llvmlite' in sys.modules)"
    )
    assert child(code) == "False"


def test_small_tensors_need_no_llvm_and_large_ones_do():
    code = (
        "import sys, weft; x = weft.tensor([1.0, -2.0], requires_grad=True); y = (x * 2 + 1).relu() @ x.exp();"
        "print(y.item() > 0, 'llvmlite' in sys.modules, 'weft.lower' in sys.modules);"
        "print(weft.ones(1 << 18).exp().sum().item() > 0, 'llvmlite' in sys.modules, 'weft.lower' in sys.modules)"
    )
    assert child(code).splitlines() == ["True False False", "True True True"]


def test_a_first_tensor_loads_neither_the_loop_language_nor_the_pool_nor_archives():
    late = "te.loops te.build base.plan runtime.cpu.pool eager.archive eager.transforms".split()
    code = (
        f"import sys, weft; weft.tensor([1.0]); print([m for m in {late} if f'weft.{{m}}' in sys.modules]);"
        "print(weft.save.__name__, weft.vmap.__name__, weft.te.KernelBuilder.__name__, weft.pi)"
    )
    assert child(code).splitlines() == ["[]", "save vmap KernelBuilder 3.141592653589793"]


def test_every_public_name_is_there():
    for module in (weft, weft.compiler, weft.runtime):
        for name in module.__all__:
            assert getattr(module, name) is not None, name
            assert name in dir(module)
        with pytest.raises(AttributeError, match="nonsense"):
            module.nonsense


def test_functions_and_modules_of_like_names():
    """Loading a module must not put it where a function of that name is."""
    code = (
        "import weft, weft.compiler.model, weft.compiler.build_module;"
        "c = weft.compiler;"
        "print(callable(weft.compile), callable(c.build_config), callable(c.build),"
        "callable(c.compile),"
        "c.build_module.__name__, weft.save_param_dict is c.save_param_dict)"
    )
    assert child(code) == "True True True True weft.compiler.build_module True"


MODULES = (
    "weft symbol graph compiler frontend runtime testing top top.registry te autograd "
    "autograd.engine autograd.functional autograd.graph nn nn.functional linalg fft special signal.windows "
    "serialization random amp cuda cuda.amp backends backends.cudnn accelerator distributions profiler hub "
    "futures loggers cpp config nd name attribute _C _utils "
    "compiler.build_module compiler.graph_attr compiler.graph_functions compiler.graph_util "
    "compiler.lr_scheduler compiler.optimizer "
    "nn.init nn.utils optim optim.lr_scheduler optim.swa_utils utils utils.data distributions"
).split()


@pytest.mark.parametrize("path", MODULES)
def test_completion_shows_what_users_call(path):
    """Every name is there, and none that a module only imported for itself."""
    module = weft
    for part in path.split(".") if path != "weft" else ():
        module = getattr(module, part)
    shown = [name for name in dir(module) if not name.startswith("_")]
    for name in shown:
        assert hasattr(module, name), name
        value = getattr(module, name)
        root = getattr(value, "__name__", "weft").split(".")[0]
        assert type(value) is not type(weft) or root == "weft", name
    own = {"Any", "Callable", "InvalidType", "annotations", "fill_namespace", "import_module"}
    assert not own & set(shown)


def test_completion_is_whole_and_loads_nothing():
    code = (
        "import sys, weft\n"
        "shown = set(dir(weft))\n"
        "print('weft.eager' in sys.modules,"
        " {'tensor', 'zeros', 'float32', 'symbol', 'Error', 'compile', 'cpp', 'nn'} <= shown,"
        " {'Any', 'find_spec', 'import_module', 'base'} & shown,"
        " set(weft.__all__) - shown,"
        " {'set_grad_enabled', 'LoggerBase', 'nan_to_num', 'cfloat', 'HalfStorage'} - shown)"
    )
    assert child(code) == "False True set() set() set()"


def test_asking_for_a_wrong_name_loads_nothing():
    code = "import sys, weft; print(hasattr(weft, 'nonsense'), 'weft.eager' in sys.modules)"
    assert child(code) == "False False"


def test_representations_are_short(tmp_path):
    x = weft.symbol.Variable("x")
    y = weft.symbol.relu(x, name="y")
    model = weft.compile(y, shape={"x": (2, 3)})
    flow = "x: float32[2, 3] -> y_output: float32[2, 3]; 1 kernel for "
    assert repr(model).startswith(f"CompiledModel({flow}")
    assert repr(model.program).startswith(f"Program({flow}")
    assert repr(model.report()) == str(model.report())
    path = tmp_path / "model.weft"
    model.save(path)
    assert repr(weft.runtime.load(path)).startswith(f"LoadedModel({flow}")
    graph, library, _ = weft.compiler.build(y, "cpu", shape={"x": (2, 3)})
    module = weft.runtime.create(graph, library, weft.cpu(0))
    for value in (graph, library, module, weft.graph.create(y)):
        assert len(repr(value)) < 120
        assert repr(value).strip("<").startswith(type(value).__name__)
    many = weft.symbol.elemwise_sum(*[weft.symbol.Variable(f"x{i}") for i in range(300)], num_args=300)
    wide = weft.compile(many, shape={f"x{i}": (1,) for i in range(300)})
    for value in (wide, wide.program, wide.report(), weft.graph.create(many)):
        assert len(repr(value)) < 300


TYPED = """
import weft
a = weft.ones(2, 2)
for value in (
    a + 1, 1 + a, a - a, 2 - a, a * 2, 2 * a, a / a, 1 / a, a // 2, 7 // a, a % 2, a**2, 2**a,
    a @ a, a[0], a[0, :], a[None], -a, +a, abs(a), ~a, a & a, a | a, a ^ a, a << 1, a >> 1,
    a == a, a != 1, a < 1, a <= a, a > 1, a >= a, a.relu(), weft.zeros(3),
    weft.nn.functional.relu(a),
):
    reveal_type(value)
a += 1
reveal_type(a)
reveal_type(a.shape)
reveal_type(weft.has_cuda)
reveal_type(weft.float32)
"""


def test_type_checkers_see_tensors(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(TYPED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={**os.environ, "MYPYPATH": str(Path(weft.__file__).parents[1])},
    )
    revealed = [line.split("is ")[1].strip('"') for line in done.stdout.splitlines() if "note: R" in line]
    assert revealed == [
        "weft.Tensor",
        "weft.Tensor",
        "weft.eager.tensor.size.Size",
        "bool",
        "weft.eager.tensor.types.dtype",
    ], done.stdout
