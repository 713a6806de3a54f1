"""One small model from its file to machine code: every stage that `weft.compile` goes through, with the file of weft
that is responsible for it, in the order in which it happens.

    python examples/walk_the_stages.py            the first lines of long stages
    python examples/walk_the_stages.py --full     all of them

WEFT_DEBUG=passes,loops,llvm,asm prints the same for any model, to standard error, as it compiles.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import weft
from weft import symbol as sym
from weft.base import config
from weft.base.cpu_target import host
from weft.codegen.cpu.object import compile_assembly
from weft.compiler.stages import Stage, watched
from weft.core.interpret import evaluate
from weft.frontend import to_onnx
from weft.te.printer import show

MOST_LINES = 24


Arrays = dict[str, np.ndarray]


def model() -> tuple[bytes, Arrays, Arrays]:
    """A dense layer with batch norm, relu and softmax, as an ONNX file, its parameters and its input."""
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
    return made.SerializeToString(), params, {"x": rng.standard_normal((2, 8)).astype("float32")}


def stage(title: str, text: str, full: bool) -> None:
    lines = text.splitlines()
    left = 0 if full else max(len(lines) - MOST_LINES, 0)
    print(f"\n=== {title}")
    print("\n".join(lines[: len(lines) - left]))
    if left:
        print(f"... {left} more lines")


# What is shown of each stage. There are more to watch (each pass, each decision, each step): `weft view` shows them.
VIEWS = {
    "model": ("read from the file", lambda symbol: weft.graph.create(symbol).ir()),
    "types": ("with shapes and types", lambda graph: graph.ir(join_entry_attrs=["shape"])),
    "graph": ("after the passes", lambda graph: graph.ir(join_entry_attrs=["shape"])),
    "groups": ("groups, each one piece of code", lambda groups: "\n".join(map(operators, groups))),
    "loops": ("a group as loops", show),
    "text": ("as LLVM IR", str),
    "code": ("as machine code", lambda code: f"{len(code)} bytes"),
    "program": ("the plan of the whole graph", lambda program: "\n".join(map(str, program.plan.steps))),
    "executor": ("ready to run", str),
}


def operators(group) -> str:
    return " + ".join(node.op_name for node in group.nodes)


def main(full: bool) -> None:
    data, params, inputs = model()
    reached: dict[str, list[Stage]] = {}
    with tempfile.TemporaryDirectory() as folder, config.override(cache=False):
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        with watched(lambda stage: reached.setdefault(stage.title, []).append(stage)):
            compiled = weft.compile(path)
    reached = {title: stages for title, stages in reached.items() if title in VIEWS}
    for number, (title, stages) in enumerate(reached.items(), 1):
        what, view = VIEWS[title]
        more = f", the first of {len(stages)}" if len(stages) > 1 else ""
        stage(f"{number}. {what}{more}: weft/{stages[0].file}", view(stages[0].value), full)
        if title == "text":
            stage("   which is, as assembly", compile_assembly(stages[0].value, host()), full)
    (result,) = compiled.run(inputs)
    stage("the result", str(result), full)
    (expected,) = evaluate(reached["types"][0].value, {**params, **inputs})
    print(f"\nlargest difference to the reference interpreter: {np.abs(result - expected).max():.2e}")


if __name__ == "__main__":
    main("--full" in sys.argv[1:])
