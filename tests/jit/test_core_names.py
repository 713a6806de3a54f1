"""The names of the core that programs have: each is asked something, of weft and of PyTorch, and both say the same."""

import io

import pytest

import weft

TEXT = """graph(%x : Tensor, %y : Tensor):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::mul(%x, %y)
  %b : Tensor = aten::add(%a, %y, %one)
  return (%b)
"""
SCHEMA = "ours::f.x(int[2] a, *, Tensor? b=None, Tensor(a!) out) -> Tensor(a!)"


def parsed(C):
    return C.parse_ir(TEXT)


def schema(C):
    return C.parse_schema(SCHEMA)


def argument(T, C):
    first, second, _ = schema(C).arguments
    assert isinstance(first, C.Argument)
    return first.name, first.N, str(first.type), second.has_default_value(), second.kwarg_only, second.default_value


def function_schema(T, C):
    found = schema(C)
    assert isinstance(found, C.FunctionSchema)
    return found.name, found.overload_name, str(found), len(found.returns), found.is_mutable


def graph(T, C):
    made = C.Graph()
    x = made.addInput("x")
    node = made.appendNode(made.create("aten::relu", [x], 1))
    made.registerOutput(node.output().setDebugName("y"))
    return str(made)


def node(T, C):
    whole = parsed(C)  # PyTorch's nodes do not keep their graph
    found = whole.findNode("aten::add")
    assert isinstance(found, C.Node)
    return found.kind(), found.inputsSize(), found.outputsSize(), found.schema()


def value(T, C):
    whole = parsed(C)
    found = next(whole.inputs())
    assert isinstance(found, C.Value)
    return found.debugName(), found.unique(), str(found.type()), found.isCompleteTensor()


def use(T, C):
    whole = parsed(C)
    uses = list(whole.inputs())[1].uses()
    assert all(isinstance(each, C.Use) for each in uses)
    return [(each.user.kind(), each.offset) for each in uses]


def block(T, C):
    found = C.parse_ir("""graph(%c : bool):
  %v : int = prim::If(%c)
    block0():
      %one : int = prim::Constant[value=1]()
      -> (%one)
    block1():
      %two : int = prim::Constant[value=2]()
      -> (%two)
  return (%v)
""")
    blocks = list(found.findNode("prim::If").blocks())
    assert all(isinstance(each, C.Block) for each in blocks)
    return [(each.paramNode().kind(), [node.kind() for node in each.nodes()]) for each in blocks]


def singleton(name):
    def ask(T, C):
        kind = getattr(C, name).get()
        assert isinstance(kind, C.Type)
        with pytest.raises(TypeError, match="No constructor defined"):
            getattr(C, name)()
        return (
            kind.kind(),
            str(kind),
            kind.annotation_str,
            kind == getattr(C, name).get(),
            kind.isSubtypeOf(C.NumberType.get()),
        )

    return ask


def containers(T, C):
    whole, text = C.IntType.get(), C.StringType.get()
    kinds = [
        C.ListType(whole),
        C.TupleType([whole, text]),
        C.OptionalType(whole),
        C.DictType(text, whole),
        C.ListType.ofTensors(),
    ]
    found = [(kind.kind(), str(kind), kind.annotation_str) for kind in kinds]
    return (
        found,
        str(kinds[0].getElementType()),
        [str(each) for each in kinds[1].elements()],
        str(kinds[3].getKeyType()),
    )


def file_check(T, C):
    C.FileCheck().check("aten::mul").check_next("aten::add").check_not("aten::sub").run(str(parsed(C)))
    with pytest.raises(RuntimeError, match="Expected to find"):
        C.FileCheck().check("aten::sub").run(str(parsed(C)))


def gradient(T, C):
    found = C._jit_differentiate(C.parse_ir(TEXT.replace(": Tensor,", ": Float(2, requires_grad=1),")))
    assert isinstance(found, C.Gradient)
    return found.f_real_outputs, found.df_input_vjps, found.df_output_vjps, isinstance(found.df, C.Graph)


def io_descriptor(T, C):
    flat, shape = C._jit_flatten((T.ones(1), [T.zeros(2)]))
    assert isinstance(shape, C.IODescriptor)
    return [each.tolist() for each in flat], str(C._jit_unflatten(flat, shape))


def exception(T, C):
    unit = T.jit.CompilationUnit('def f(x: int):\n    raise ValueError("no such")\n')
    with pytest.raises(C.JITException, match="no such"):
        unit.f(1)


def module(T):
    """A module whose method is text."""
    unit = T.jit.CompilationUnit("def forward(x: Tensor) -> Tensor:\n    return x / 2\n")
    file = io.BytesIO()
    T.jit.save(unit.forward, file)
    return file.getvalue()


def script_module(T, C):
    found = T.jit.load(io.BytesIO(module(T)))
    inner = getattr(found, "_c", found)
    assert isinstance(inner, C.ScriptModule)
    method = inner._get_method("forward")
    assert isinstance(method, C.ScriptMethod)
    return method.name, method(T.ones(1)).tolist(), found.code.count("torch.div(x, 2)")


def imported(T, C, tmp_path):
    path = tmp_path / f"{T.__name__}.pt"
    path.write_bytes(module(T))
    unit = T.jit.CompilationUnit if T is weft else C.CompilationUnit
    one = C.import_ir_module(unit(), str(path), None, {}, False)
    other = C.import_ir_module_from_buffer(unit(), module(T), None, {}, False)
    return [each._get_method("forward")(T.ones(2)).tolist() for each in (one, other)]


def type_comment(T, C):
    found = C.parse_type_comment("# type: (int, Tensor) -> Tensor")
    with pytest.raises(RuntimeError, match="expected"):
        C.parse_type_comment("nothing")
    return str(found).split()


def code(T, C):
    scripted = T.jit.CompilationUnit("def f(x):\n    return x * 2 + 1\n").f
    for _ in range(3):
        scripted(T.ones(2))
    state = scripted.get_debug_state()
    plans = list(state.execution_plans.values())
    assert isinstance(state, C.GraphExecutorState)
    assert all(isinstance(each.code, C.Code) for each in plans)
    if T is weft:  # PyTorch has another name for it today
        assert all(isinstance(each, C.ExecutionPlanState) for each in plans)
    return len(plans) >= 1, all(isinstance(each.graph, C.Graph) for each in plans)


ASKED = {
    "Argument": argument,
    "Block": block,
    "Code ExecutionPlanState GraphExecutorState": code,
    "FileCheck": file_check,
    "FunctionSchema": function_schema,
    "Gradient": gradient,
    "Graph parse_ir": graph,
    "IODescriptor": io_descriptor,
    "JITException": exception,
    "ListType TupleType OptionalType DictType": containers,
    "Node": node,
    "ScriptMethod ScriptModule": script_module,
    "Use": use,
    "Value": value,
    "parse_type_comment": type_comment,
    **{
        name: singleton(name) for name in ("IntType", "FloatType", "BoolType", "StringType", "NumberType", "TensorType")
    },
}


@pytest.mark.parametrize("names", ASKED)
def test_names_of_the_core(torch, names):
    ask = ASKED[names]
    assert ask(weft, weft._C) == ask(torch, torch._C)


def test_modules_are_imported(torch, tmp_path):
    assert imported(weft, weft._C, tmp_path) == imported(torch, torch._C, tmp_path) == [[0.5, 0.5], [0.5, 0.5]]


def test_kinds_of_arguments():
    """PyTorch has no constructors of these today."""
    C, x, y = weft._C, weft.ones(2, 3), weft.ones(4, 5)
    assert C.ArgumentSpec(True, (x,)) == C.ArgumentSpec(True, (y,))
    assert C.ArgumentSpec(True, (x,)) != C.ArgumentSpec(True, (weft.ones(2),))
    assert C.CompleteArgumentSpec(True, (x,)) != C.CompleteArgumentSpec(True, (y,))
    executor = C.GraphExecutor(parsed(C))
    assert executor(x, x).tolist() == [[2.0] * 3] * 2
    executor(y, y)
    assert list(map(type, executor.get_debug_state().execution_plans)) == [C.ArgumentSpec]


def test_types_of_a_comment_are_put_on_a_declaration(torch):
    said = []
    for T in (torch, weft):
        C = T._C
        declared = C.parse_type_comment("# type: (int, Tensor) -> Tensor")
        with pytest.raises(RuntimeError, match="Number of type annotations"):
            C.merge_type_from_type_comment(declared, C.parse_type_comment("# type: (int) -> int"), False)
        said.append(str(C.merge_type_from_type_comment(declared, declared, False)).split())
    assert said[0] == said[1]
