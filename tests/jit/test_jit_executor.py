"""Executors and their plans, keys of plans, gradients of graphs, nested values, scopes of traces, schemas of nodes."""

import random

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.jit.parse import parse_ir
from weft.jit.run.code import Code
from weft.jit.run.interpreter import run
from weft.jit.types import FunctionType

MUL_TANH = """
graph(%x : Tensor, %y : Tensor):
  %a : Tensor = aten::mul(%x, %y)
  %b : Tensor = aten::tanh(%a)
  return (%b)
"""
SHARED = """
graph(%x : Tensor, %y : Tensor):
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %three : int = aten::add(%one, %two)
  %a : Tensor = aten::mul(%x, %y)
  %b : Tensor = aten::mul(%x, %y)
  %c : Tensor = aten::tanh(%a)
  %unread : Tensor = aten::exp(%c)
  %d : Tensor = aten::add(%c, %b, %three)
  return (%d)
"""


@pytest.fixture
def torch():
    return oracle("torch")


def random_tensor(*shape, **options):
    return weft.tensor(
        np.random.default_rng(random.getrandbits(32)).standard_normal(shape).astype("float32"), **options
    )


def test_plans_depend_on_dtypes_ranks_and_gradients_but_not_on_sizes():
    executor = weft._C.GraphExecutor(parse_ir(MUL_TANH))
    plans = []
    for x in (
        random_tensor(2, requires_grad=True),
        random_tensor(3, 2),
        random_tensor(4, 2),
        random_tensor(4).double(),
        random_tensor(7, requires_grad=True),
    ):
        np.testing.assert_allclose(executor(x, x).detach().numpy(), np.tanh(x.detach().numpy() ** 2), rtol=1e-5)
        plans.append(len(executor.get_debug_state().execution_plans))
    assert plans == [1, 2, 2, 3, 3]


def test_a_plan_is_an_improved_graph_with_the_same_results():
    executor = weft._C.GraphExecutor(parse_ir(SHARED))
    x, y = random_tensor(3, 4), random_tensor(3, 4)
    expected = np.tanh(x.numpy() * y.numpy()) + 3 * x.numpy() * y.numpy()
    np.testing.assert_allclose(executor(x, y).numpy(), expected, rtol=1e-5, atol=1e-6)
    text = str(executor.graph_for(x, y))
    assert text.count("aten::mul") == 1
    assert "aten::exp" not in text
    assert "value=3" in text
    assert str(executor.graph).count("aten::mul") == 2


def test_gradients_go_through_an_executor(torch):
    executor = weft._C.GraphExecutor(parse_ir(SHARED))
    x, y = random_tensor(3, 4, requires_grad=True), random_tensor(3, 4, requires_grad=True)
    executor(x, y).sum().backward()
    a, b = (torch.tensor(each.detach().numpy(), requires_grad=True) for each in (x, y))
    (torch.tanh(a * b) + 3 * a * b).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), a.grad.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(y.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert "prim::DifferentiableGraph" in str(executor.graph_for(x, y))
    (plan,) = executor.get_debug_state().execution_plans.values()
    (gradient,) = plan.code.grad_executor_states()
    assert "weft::vjp" in str(gradient.graph)


def test_an_executor_without_improvements():
    executor = weft._C.GraphExecutor(parse_ir(SHARED), optimize=False)
    with pytest.raises(RuntimeError, match="no plan without improvements"):
        executor.get_debug_state().fallback
    x = random_tensor(5)
    np.testing.assert_allclose(executor(x, x).numpy(), np.tanh(x.numpy() ** 2) + 3 * x.numpy() ** 2, rtol=1e-5)
    state = executor.get_debug_state()
    assert state.execution_plans == {}
    assert str(state.fallback.graph).count("aten::mul") == 2
    assert state.fallback.hits == 1
    assert state.fallback.nanoseconds > 0


def test_executors_count_what_they_do():
    logger = weft.LockingLogger()
    before = weft.loggers.set_logger(logger)
    try:
        executor = weft._C.GraphExecutor(parse_ir(MUL_TANH))
        for shape in ((2,), (3,), (2, 2)):
            executor(random_tensor(*shape), random_tensor(*shape))
    finally:
        weft.loggers.set_logger(before)
    names = "graph_executors_constructed graph_executor_invocations execution_plan_cache_hit execution_plan_cache_miss"
    assert [logger.get_counter_val(f"pytorch_runtime.{name}") for name in names.split()] == [1, 3, 1, 2]


def test_what_an_executor_refuses():
    executor = weft._C.GraphExecutor(parse_ir(MUL_TANH))
    with pytest.raises(RuntimeError, match="expected 2 inputs, but got 1"):
        executor(weft.ones(2))
    with pytest.raises(TypeError, match="takes a graph, not int"):
        weft._C.GraphExecutor(3)


# Keys


def test_specs_are_keys():
    x, y = random_tensor(2, 3), random_tensor(4, 5)
    specs, complete = weft._C.ArgumentSpec, weft._C.CompleteArgumentSpec
    assert {specs(True, [x, 3]): 1}[specs(True, [y, 4])] == 1
    assert specs(True, [x]) != specs(False, [x])
    assert specs(True, [x]) != specs(True, [x.double()])
    assert specs(True, [x]) != specs(True, [x.clone().requires_grad_()])
    assert specs(False, [x]) == specs(False, [x.clone().requires_grad_()])
    assert specs(True, [(x, None)]) == specs(True, [(y, None)]) != specs(True, [(x, y)])
    assert complete(True, [x]) != complete(True, [y])
    assert complete(True, [x]) != complete(True, [random_tensor(3, 2).t()])
    assert hash(complete(True, [x])) == hash(complete(True, [x.clone()]))
    assert repr(specs(True, [x, None])) == "ArgumentSpec(grad, Float(*, *, cpu), NoneType)"
    assert repr(complete(False, [x])) == "CompleteArgumentSpec(no grad, Float(2, 3, strides=[3, 1], cpu))"


# Gradients of graphs


def run_gradient(gradient, inputs, vjps):
    """Gradients by running f and then df as the record tells."""
    results = run(Code(gradient.f), inputs)
    captured = [inputs[place] for place in gradient.df_input_captured_inputs]
    captured += [results[place] for place in gradient.df_input_captured_outputs]
    return results[: gradient.f_real_outputs], run(Code(gradient.df), [*vjps, *captured])


GRAPHS = {
    "mul tanh": (MUL_TANH, lambda torch, x, y: torch.tanh(x * y)),
    "read twice": (SHARED, lambda torch, x, y: torch.tanh(x * y) + 3 * x * y),
    "broadcast": (
        """
graph(%x : Tensor, %y : Tensor):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %row : Tensor = aten::select(%y, %zero, %zero)
  %s : Tensor = aten::sigmoid(%row)
  %a : Tensor = aten::sub(%x, %s, %one)
  %b : Tensor = aten::mul(%a, %a)
  return (%b)
""",
        lambda torch, x, y: (x - torch.sigmoid(y[0])) ** 2,
    ),
    "products": (
        """
graph(%x : Tensor, %y : Tensor):
  %t : Tensor = aten::t(%y)
  %p : Tensor = aten::mm(%x, %t)
  %r : Tensor = aten::relu(%p)
  return (%r)
""",
        lambda torch, x, y: torch.relu(x @ y.t()),
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_gradients_of_graphs_are_those_of_pytorch(torch, name):
    text, function = GRAPHS[name]
    gradient = weft._C._jit_differentiate(parse_ir(text))
    x, y = random_tensor(3, 4), random_tensor(3, 4)
    a, b = (torch.tensor(each.numpy(), requires_grad=True) for each in (x, y))
    expected = function(torch, a, b)
    seed = np.random.default_rng(random.getrandbits(32)).standard_normal(tuple(expected.shape)).astype("float32")
    expected.backward(torch.from_numpy(seed))
    (result,), gradients = run_gradient(gradient, [x, y], [weft.tensor(seed)])
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert gradient.df_output_vjps == [0, 1]
    for ours, theirs in zip(gradients, (a.grad, b.grad)):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)


def test_the_record_of_a_gradient_is_that_of_pytorch(torch):
    """Captures differ: PyTorch's formulas read other values."""
    kind = "Float(2, 3, strides=[3, 1], requires_grad=1, device=cpu)"
    typed = MUL_TANH.replace("Tensor", kind)
    ours, theirs = weft._C._jit_differentiate(parse_ir(typed)), torch._C._jit_differentiate(torch._C.parse_ir(typed))
    for name in ("f_real_outputs", "df_input_vjps", "df_input_captured_inputs", "df_output_vjps"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.df_input_captured_outputs == [1]


def test_inputs_that_need_no_gradient_get_none():
    text = MUL_TANH.replace("%y : Tensor", "%y : Float(2, requires_grad=0, device=cpu)")
    gradient = weft._C._jit_differentiate(parse_ir(text))
    assert gradient.df_output_vjps == [0]
    assert len(list(gradient.df.outputs())) == 1


def test_gradients_that_nobody_gave_are_not_computed():
    gradient = weft._C._jit_differentiate(parse_ir(MUL_TANH))
    x = random_tensor(2)
    _, gradients = run_gradient(gradient, [x, x], [None])
    assert gradients == [None, None]


def test_what_cannot_be_differentiated():
    with pytest.raises(RuntimeError, match=r"aten::relu_ cannot be differentiated[\s\S]*writes to what it reads"):
        weft._C._jit_differentiate(parse_ir("graph(%x : Tensor):\n  %y : Tensor = aten::relu_(%x)\n  return (%y)\n"))
    with pytest.raises(RuntimeError, match=r"aten::foo cannot be differentiated[\s\S]*no operator"):
        weft._C._jit_differentiate(parse_ir("graph(%x : Tensor):\n  %y : Tensor = aten::foo(%x)\n  return (%y)\n"))


# Nested values


def test_nests_are_flattened_as_pytorch_does(torch):
    def nest(library, numbers):
        tensors = [library.tensor(number) for number in numbers]
        return (tensors[0], [tensors[1], (tensors[2],)], {"k": tensors[3], "j": tensors[0]}, None, "text", 3.5)

    numbers = [random.random() for _ in range(4)]
    ours, nested = weft._C._jit_flatten(nest(weft, numbers))
    theirs, _ = torch._C._jit_flatten(nest(torch, numbers))
    assert [each.item() for each in ours] == pytest.approx([each.item() for each in theirs])
    again = weft._C._jit_unflatten(ours, nested)
    assert again[:3] == nest(weft, numbers)[:3]
    assert again[3:5] == (None, "text")
    assert isinstance(nested, weft._C.IODescriptor)


def test_errors_of_nests():
    one = weft.ones(1)
    tensors, nested = weft._C._jit_flatten((one, [one, (one,)]))
    assert nested.structure == "(v[v(v)])"
    with pytest.raises(RuntimeError, match="Not enough Variables given to unflatten"):
        weft._C._jit_unflatten(tensors[:2], nested)
    with pytest.raises(RuntimeError, match="Too many Variables given to unflatten"):
        weft._C._jit_unflatten([*tensors, one], nested)
    with pytest.raises(RuntimeError, match="received an input of unsupported type: object"):
        weft._C._jit_flatten((one, object()))


def test_deep_nests_need_no_stack_of_python():
    nested = weft.ones(1)
    for _ in range(50_000):
        nested = [nested]
    tensors, description = weft._C._jit_flatten(nested)
    again = weft._C._jit_unflatten(tensors, description)
    depth = 0
    while isinstance(again, list):
        (again,), depth = again, depth + 1
    assert depth == 50_000


# Traces


def test_scopes_of_a_trace():
    state = weft._C.TracingState()
    x = state.graph().addInput("x")
    state.push_scope("net")
    first = state.graph().appendNode(state.graph().create("aten::relu", [x]))
    state.push_scope("layer")
    second = state.graph().appendNode(state.graph().create("aten::tanh", [first.output()]))
    state.pop_scope()
    assert (first.scopeName(), second.scopeName(), state.current_scope()) == ("net", "net/layer", "net")
    assert "aten::tanh" in str(state)
    other = parse_ir(MUL_TANH)
    state.set_graph(other)
    assert state.graph() is other
    assert other.create("aten::exp").scopeName() == "net"
    state.pop_scope()
    with pytest.raises(RuntimeError, match="no scope is open"):
        state.pop_scope()


# Schemas of nodes

UNTYPED = """
graph(%x : Tensor, %y : Tensor, %n : int):
  %a = aten::mul(%x, %y)
  %s = aten::size(%x)
  %z = aten::foo(%x)
  %i = aten::size(%x, %n)
  return (%a, %s, %i)
"""


def test_schemas_of_nodes_are_those_of_pytorch(torch):
    ours, theirs = parse_ir(UNTYPED), torch._C.parse_ir(UNTYPED)
    question = "aten::mul(Tensor self, Tensor other) -> Tensor"
    for one, two in zip(ours.nodes(), theirs.nodes()):
        assert one.schema() == two.schema()
        assert one.matches(question) == two.matches(question)
        assert [str(value.type()) for value in one.outputs()] == [str(value.type()) for value in two.outputs()]
    node, other = next(ours.nodes()), next(theirs.nodes())
    assert node.namedInput("other").debugName() == other.namedInput("other").debugName() == "y"
    for each in (node, other):
        with pytest.raises(RuntimeError, match="Couldn't find an argument called zz"):
            each.namedInput("zz")
    with pytest.raises(RuntimeError, match="Schema not found for node"):
        list(ours.nodes())[2].namedInput("self")


@pytest.mark.parametrize("kind", ["int", "int[]", "(Tensor, Tensor)"])
def test_annotations_that_are_not_the_schemas(torch, kind):
    text = f"graph(%x : Tensor, %y : Tensor):\n  %a : {kind} = aten::mul(%x, %y)\n  return (%a)\n"
    messages = []
    for library in (weft, torch):
        with pytest.raises(RuntimeError) as caught:
            library._C.parse_ir(text)
        messages.append(str(caught.value).split(":\n")[0].strip())
    assert messages[0] == messages[1]
    assert messages[0].startswith("Annotated type ")


def test_dropout_that_is_off_draws_nothing(torch):
    text = """
graph(%x : Tensor):
  %p : float = prim::Constant[value=0.5]()
  %train : bool = prim::Constant[value={}]()
  %y : Tensor = aten::dropout(%x, %p, %train)
  return (%y)
"""
    for train in (0, 1):
        ours, theirs = (library._C.parse_ir(text.format(train)) for library in (weft, torch))
        told = [graph.findNode("aten::dropout").isNondeterministic() for graph in (ours, theirs)]
        assert told == [bool(train)] * 2


def test_the_list_of_all_schemas():
    listed = weft._C._jit_get_all_schemas()
    assert len(listed) > 2000
    assert [each.overload_name for each in weft._C._jit_get_schemas_for_operator("aten::mm")] == ["", "out"]
    assert {str(each) for each in weft._C._jit_get_schemas_for_operator("aten::mm")} <= {str(each) for each in listed}


def test_names_that_the_core_namespace_and_weft_have():
    for name in (
        "ArgumentSpec Code CompleteArgumentSpec ExecutionPlanState Gradient GraphExecutor GraphExecutorState "
        "IODescriptor JITException TracingState"
    ).split():
        assert getattr(weft, name) is getattr(weft._C, name), name


# Functions of programs


def test_functions_run_by_their_executor():
    scripted = weft.jit.CompilationUnit("""
def twice(x):
    return x * 2

def f(x, n: int):
    y = twice(x) + twice(x)
    return y * n
""").f
    x = random_tensor(3)
    np.testing.assert_allclose(scripted(x, 5).numpy(), x.numpy() * 20, rtol=1e-5)
    assert len(scripted.get_debug_state().execution_plans) == 1
    text = str(scripted.graph_for(x, 2))
    assert "prim::CallFunction" not in text
    assert text.count("aten::mul") == 2
    assert "prim::CallFunction" in str(scripted.graph)


def test_functions_that_call_themselves_are_not_inlined():
    class Function:
        """n + f(n - 1), by a constant that is the function itself."""

        def __init__(self):
            graph = weft.Graph()
            number = graph.addInput("n").setType(weft.IntType.get())
            end = graph.insert("aten::le", [number, 0]).setType(weft.BoolType.get())
            zero, one = graph.insertConstant(0), graph.insertConstant(1)
            itself = graph.appendNode(graph.create("prim::Constant")).output().setType(FunctionType(self))
            node = graph.appendNode(graph.create("prim::If", [end]))
            node.output().setType(weft.IntType.get())
            node.addBlock().registerOutput(zero)
            other = node.addBlock()
            less = other.addNode("aten::sub", [number, one]).output().setType(weft.IntType.get())
            called = other.addNode("prim::CallFunction", [itself, less]).output().setType(weft.IntType.get())
            other.registerOutput(other.addNode("aten::add", [number, called]).output().setType(weft.IntType.get()))
            graph.registerOutput(node.output())
            self.graph, self.code = graph, Code(graph)

        def executable(self):
            return self.code

    assert weft._C.GraphExecutor(Function().graph)(200) == 200 * 201 // 2
