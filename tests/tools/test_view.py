"""What `weft view` gathers about a model, and the files it writes."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import zlib
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import weft
from weft import symbol as sym
from weft.base.errors import Unsupported
from weft.cli import main
from weft.tools import view
from weft.tools.viewer import page as pages
from weft.tools.viewer.layout import placed
from weft.tools.viewer.scopes import MOST, Scopes

ROOT = Path(__file__).parents[2]
VIEWER = ROOT / "viewer"
DIGITS = ROOT / "weft" / "data" / "digits.onnx"
SVG = "{http://www.w3.org/2000/svg}"


def dense_net():
    x = sym.Variable("x", shape=(32, 64))
    net = sym.dense(x, units=48, name="first", use_bias=False)
    return sym.softmax(sym.dense(sym.relu(net, name="act"), units=16, name="second", use_bias=False), name="out")


@pytest.fixture(scope="module")
def program():
    (made,) = view(dense_net(), titles=["dense"], measure=True).programs
    return made


def names(program, snapshot):
    return {program.names[program.records[n].name]: program.records[n] for n in program.snapshots[snapshot].nodes}


def test_the_first_graph_is_the_model(program):
    nodes = names(program, 0)
    ops = {name: node.op for name, node in nodes.items() if node.op != "variable"}
    assert ops == {"first": "dense", "act": "relu", "second": "dense", "out": "softmax"}
    assert [program.names[source] for source in nodes["act"].inputs] == ["first"]
    assert nodes["second"].outputs == ("float32[32, 16]",)
    assert dict(nodes["first"].attrs)["units"] == "48"


def test_steps_say_what_they_compute_and_how_much(program):
    steps = {tuple(step.operators): step for step in program.steps}
    first = next(step for ops, step in steps.items() if "relu" in ops)
    assert {program.names[source] for source in first.sources} == {"first", "act"}
    kernel = program.kernels[first.kernel]
    assert kernel.operations == 2 * 32 * 64 * 48 + 32 * 48  # a product and a sum for each weight and row; then relu
    assert f"@{kernel.symbol}" in kernel.llvm
    assert kernel.loops.startswith("kernel fuse_")
    assert re.search(rf"^{kernel.symbol}:", kernel.assembly, re.MULTILINE)
    assert all(step.seconds > 0 for step in program.steps)
    assert program.run_seconds > 0


def test_decisions_come_with_their_costs():
    x = sym.Variable("x", shape=(1, 32, 14, 14))
    (made,) = view(sym.conv2d(x, channels=32, kernel_size=(3, 3), padding=(1, 1), name="c")).programs
    (form,) = {decision.chosen for step in made.steps for decision in step.decisions}
    assert "us" in form
    tiles = [d for kernel in made.kernels for d in kernel.decisions if d.what == "register tile"]
    assert tiles
    assert all(tile.costs[tile.chosen] == min(tile.costs.values()) for tile in tiles)


def test_memory_is_that_of_the_plan(program):
    plan = weft.compile(dense_net()).program.plan
    assert program.arena_bytes == plan.arena_bytes
    assert [(slot.role, slot.size, slot.offset) for slot in program.slots] == [
        (slot.role, slot.size, slot.offset) for slot in plan.slots
    ]
    arena = [slot for slot in program.slots if slot.role == "arena"]
    for step in range(len(program.steps)):
        places = sorted((slot.offset, slot.offset + slot.size) for slot in arena if slot.first <= step <= slot.last)
        assert all(a[1] <= b[0] for a, b in pairwise(places))


def test_the_last_graph_has_the_steps_in_a_line(program):
    nodes = [program.records[number] for number in program.snapshots[-1].nodes]
    steps = [node for node in nodes if node.step >= 0]
    assert [node.step for node in steps] == list(range(len(program.steps)))
    read = {program.names[node.name]: [program.names[source] for source in node.inputs] for node in steps}
    (last,) = [name for name in read if name.endswith("softmax")]
    assert [name.partition(": ")[2] for name in read[last]] == ["fuse_packed_matmul"]


def test_open_extents_are_taken_as_likely_ones_and_compiled_files_are_refused(tmp_path):
    (made,) = view(DIGITS).programs
    assert (made.title, made.inputs) == ("digits", ["input: float32[1, 1, 8, 8]"])
    weft.compile(dense_net()).save(tmp_path / "dense.weft")
    with pytest.raises(Unsupported, match="compiled already"):
        view(tmp_path / "dense.weft")


def test_models_in_parts_are_several_programs():
    value = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, shape)
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"], name="positive"),
        helper.make_node("NonZero", ["positive"], ["places"], name="places"),
        helper.make_node("Cast", ["places"], ["floats"], name="floats", to=TensorProto.FLOAT),
        helper.make_node("Exp", ["floats"], ["y"], name="y"),
    ]
    graph = helper.make_graph(
        nodes, "parts", [value("x", TensorProto.FLOAT, [4])], [value("y", TensorProto.FLOAT, [1, None])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    made = view(model, titles=["parts"])
    assert [program.title for program in made.programs] == ["parts, part 1", "parts, part 2"]
    ops = [{program.records[n].op for n in program.snapshots[0].nodes} for program in made.programs]
    assert ["relu" in ops[0], "exp" in ops[0], "relu" in ops[1], "exp" in ops[1]] == [True, False, False, True]
    assert made.html().startswith("<!doctype html>")


def test_blocks_follow_names_and_are_never_too_large():
    given = [f"stage{s}_unit{u}_{part}" for s in (1, 2) for u in (1, 2) for part in ("conv", "bn", "relu")]
    scopes = Scopes(["stem", *given])
    path = lambda name: _path(scopes, scopes.of(name))
    assert path("stage2_unit1_bn") == ["stage2", "unit1"]
    assert path("stem") == []
    assert scopes.of("made_by_a_pass", ["stage1_unit2_relu"]) == scopes.of("stage1_unit2_relu")
    assert Scopes([f"{op}_{i}" for i in range(9) for op in ("conv", "relu")]).table[1:] == []
    slashes = Scopes(["/enc/layer.0/Add", "/enc/layer.0/Mul", "/enc/layer.0/Exp", "/enc/layer.1/Add", "/out/Add"])
    assert _path(slashes, slashes.of("/enc/layer.0/Mul")) == ["enc", "layer.0"]
    many = [f"r{i}" for i in range(5000)]
    flat = Scopes(many)
    parts = [flat.of(name) for name in many] + [scope.parent for scope in flat.table]
    assert max(parts.count(number) for number in set(parts)) <= MOST


def _path(scopes, number):
    found = []
    while number:
        found.insert(0, scopes.table[number].label)
        number = scopes.table[number].parent
    return found


def test_boxes_of_a_picture_do_not_overlap():
    rng = np.random.default_rng(3)
    sizes = [(float(w), 20.0) for w in rng.integers(20, 90, 60)]
    edges = [(int(a), int(b)) for a, b in rng.integers(0, 60, (90, 2)) if a != b]
    places = placed(sizes, edges)
    rows = {}
    for (width, _), place in zip(sizes, places):
        rows.setdefault(place.y, []).append((place.x - width / 2, place.x + width / 2))
    for row in rows.values():
        assert all(a[1] < b[0] for a, b in pairwise(sorted(row)))
    assert all(places[a].y < places[b].y for a, b in edges if a < b)


def test_the_page_holds_the_data_whatever_names_say():
    x = sym.Variable("x", shape=(2,))
    made = view(sym.relu(x, name="</script><script>alert(1)</script><!--"), titles=["a & b"])
    text = made.html()
    assert text.count("<script") == 3
    data = json.loads(re.search(r'id="weft-data">(.*?)</script>', text, re.DOTALL)[1])
    assert "</script><script>alert(1)</script><!--" in data["programs"][0]["names"]
    texts = json.loads(re.search(r'id="weft-texts">(.*?)</script>', text, re.DOTALL)[1])
    kernel = data["programs"][0]["kernels"][0]
    loops = zlib.decompress(base64.b64decode(texts[kernel["loops"]])).decode()
    assert loops == made.programs[0].kernels[0].loops
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", text.split("<style>")[1])


def test_the_command_writes_a_page_and_pictures(tmp_path):
    out, pictures = tmp_path / "two.html", tmp_path / "pictures"
    done = CliRunner().invoke(main, ["view", str(DIGITS), str(DIGITS), "-o", str(out), "--svg", str(pictures)])
    assert done.exit_code == 0, done.output
    data = json.loads(re.search(r'id="weft-data">(.*?)</script>', out.read_text(), re.DOTALL)[1])
    assert [program["title"] for program in data["programs"]] == ["digits", "digits (2)"]
    assert len(list(pictures.iterdir())) == 8
    drawn = ElementTree.parse(pictures / "digits-model.svg").getroot()
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert {"conv2d", "input"} <= set(texts)
    memory = ElementTree.parse(pictures / "digits-memory.svg").getroot()
    assert sum("soft" in rect.get("class") for rect in memory.iter(f"{SVG}rect")) > 2
    missing = CliRunner().invoke(main, ["view", str(tmp_path / "none.onnx")])
    assert missing.exit_code == 1
    assert "there is no file" in missing.output


def source_hash():
    digest = hashlib.sha256()
    files = ["build.mjs", "package-lock.json", *(f"src/{path.name}" for path in sorted((VIEWER / "src").iterdir()))]
    for name in files:
        digest.update(name.encode() + b"\0" + (VIEWER / name).read_bytes() + b"\0")
    return digest.hexdigest()


def test_the_page_was_built_from_its_sources():
    built = pages.TEMPLATE.read_text(encoding="utf-8")
    assert f"<!-- sources {source_hash()} -->" in built, "run `npm ci && npm run build` in viewer/"
    assert len(built) < 300_000
    assert "resolved" not in (VIEWER / "package-lock.json").read_text()


@pytest.mark.skipif(
    not (shutil.which("node") and (VIEWER / "node_modules").is_dir()), reason="node or viewer/node_modules is missing"
)
def test_building_again_gives_the_same_page(tmp_path):
    subprocess.run(["node", VIEWER / "build.mjs", tmp_path / "page.html"], check=True, capture_output=True)
    assert (tmp_path / "page.html").read_bytes() == pages.TEMPLATE.read_bytes()
