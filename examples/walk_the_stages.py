"""Every stage that one small model goes through, printed.

    python examples/walk_the_stages.py            the first lines of long stages
    python examples/walk_the_stages.py --full     all of them

WEFT_DEBUG=passes,loops,llvm,asm prints the same for any model, to standard error, as it compiles.
"""

import sys

import numpy as np

from weft import symbol as sym
from weft import te
from weft.base.cpu_target import host
from weft.codegen.cpu.object import compile_assembly
from weft.codegen.emit import emit_kernel
from weft.compiler.assemble import assemble, fused_groups
from weft.compiler.prepare import prepare, typed_graph
from weft.core.interpret import evaluate
from weft.core.op import Op
from weft.frontend import from_onnx, to_onnx
from weft.lower.cpu.dispatch import LOWERING
from weft.runtime.loading import load_executor
from weft.te.printer import show

MOST_LINES = 24


def model() -> tuple[bytes, dict[str, np.ndarray]]:
    """A dense layer with batch norm, relu and softmax, as an ONNX file and its input."""
    rng = np.random.default_rng(0)
    x = sym.Variable("x", shape=(2, 8))
    y = sym.dense(x, units=4, name="fc")
    y = sym.relu(sym.batch_norm(y, name="bn"), name="act")
    y = sym.softmax(y, name="probabilities")
    shapes = {
        "fc_weight": (4, 8),
        "fc_bias": (4,),
        "bn_gamma": (4,),
        "bn_beta": (4,),
        "bn_moving_mean": (4,),
        "bn_moving_var": (4,),
    }
    params = {n: rng.uniform(0.5, 1.5, s).astype("float32") for n, s in shapes.items()}
    made = to_onnx(y, params, shape={"x": (2, 8)})
    return made.SerializeToString(), {"x": rng.standard_normal((2, 8)).astype("float32")}


def stage(title: str, text: str, full: bool) -> None:
    lines = text.splitlines()
    left = 0 if full else max(len(lines) - MOST_LINES, 0)
    print(f"\n=== {title}")
    print("\n".join(lines[: len(lines) - left]))
    if left:
        print(f"... {left} more lines")


def main(full: bool) -> None:
    data, inputs = model()
    symbol, params = from_onnx(data)
    arrays = {name: value.numpy() for name, value in params.items()}
    typed = typed_graph(symbol, arrays, {}, {})
    stage("1. the imported graph, typed", typed.ir(join_entry_attrs=["shape"]), full)

    prepared = prepare(symbol, arrays, {}, {}, 3, host())
    stage("2. after the passes", prepared.graph.ir(join_entry_attrs=["shape"]), full)

    groups = fused_groups(prepared.graph, host())
    listed = [" + ".join(node.op_name for node in group.nodes) for group in groups]
    stage("3. groups, each one piece of code", "\n".join(listed), full)

    node = groups[0].master or groups[0].nodes[-1]
    facts = [prepared.graph.fact(entry) for entry in node.inputs]
    given = [te.placeholder(fact.shape, fact.dtype, f"in{i}") for i, fact in enumerate(facts)]
    tensor = node.op.call_with(Op.compute[node.op], node.params, *given)
    stage(f"4. the compute of {node.op_name}", show(tensor), full)

    kernel = LOWERING.lower(groups[0], prepared.graph.fact, host())[0].kernel
    stage("5. its group as loops", show(kernel), full)
    text = emit_kernel(kernel, host())
    stage("6. as LLVM IR", text, full)
    stage("7. as assembly", compile_assembly(text, host()), full)

    program = assemble(prepared.graph, groups, prepared.constants, host())
    steps = "\n".join(map(str, program.plan.steps)) + f"\narena: {program.plan.arena_bytes} bytes"
    stage("8. the plan of the whole graph", steps, full)
    (result,) = load_executor(program).run(inputs)
    stage("9. the result", str(result), full)
    (expected,) = evaluate(typed, {**arrays, **inputs})
    print(f"\nlargest difference to the reference interpreter: {np.abs(result - expected).max():.2e}")


if __name__ == "__main__":
    main("--full" in sys.argv[1:])
