"""The rooms of the package: imports go one way, files stay small, names say what is inside."""

import ast
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import weft

ROOT = Path(weft.__file__).parent
MAX_LINES = 800
GRAB_BAGS = {"utils", "util", "helpers", "helper", "misc", "common"}

# What each room may import, besides itself and Python's own library.
COMPILER_ROOMS = "base core te ops frontend passes lower codegen runtime".split()
ALLOWED = {
    "base": {"numpy", "ml_dtypes"},
    "core": {"base", "numpy"},
    "te": {"base", "numpy"},
    "ops": {"base", "core", "te", "numpy", "ml_dtypes"},
    "frontend": {"base", "core", "ops", "numpy", "ml_dtypes", "onnx", "google", "torch", "safetensors"},
    "passes": {"base", "core", "ops", "numpy"},
    "lower": {"base", "core", "te", "ops", "numpy"},
    "codegen": {"base", "te", "llvmlite", "numpy"},
    "runtime": {"base", "llvmlite", "numpy"},
    "compiler": {*COMPILER_ROOMS, "numpy"},
    "eager": {*COMPILER_ROOMS, "compiler", "numpy", "ml_dtypes"},
    "jit": {*COMPILER_ROOMS, "compiler", "eager", "nn", "optim", "numpy"},
    "nn": {"base", "eager", "numpy"},
    "generation": {*COMPILER_ROOMS, "compiler", "eager", "nn", "numpy"},
    "optim": {"base", "eager", "nn", "numpy"},
    "utils": {"base", "eager", "numpy"},
    "distributions": {"base", "eager", "numpy"},
}
LATE = {"testing", "tools", "cli"}  # may import all rooms; nobody imports tools
THIRD_PARTY = {"numpy", "ml_dtypes", "llvmlite", "onnx", "click", "rich", "torch", "safetensors"}
THIRD_PARTY.add("google")  # protobuf, which onnx stands on, raises errors of its own
LEAVES = {"version"}  # modules beside the rooms that import nothing
LLVM_MODULES = {"runtime": ("llvmlite.binding",)}  # runtime loads code and never writes any


FILES = sorted(path for path in ROOT.rglob("*.py") if "__pycache__" not in path.parts)


def room_of(path: Path) -> str:
    """The room a file is in; the files beside the rooms are facades."""
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


class Source(NamedTuple):
    """What a file imports: dotted modules, ours relative to the package's root; the lines where it imports ours inside
    a function; modules that it imports by a text; and whether it says what it is."""

    imports: list[tuple[str, int]]
    late: list[int]
    texts: list[tuple[str, int]]
    documented: bool


@cache
def source(path: Path) -> Source:
    tree = ast.parse(path.read_text())
    found = Source([], [], [], ast.get_docstring(tree) is not None)
    package = ("weft", *path.relative_to(ROOT).parts[:-1])
    waiting = [(tree, False)]
    while waiting:
        node, inside = waiting.pop(0)
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
        names = imported(node, package)
        found.imports.extend((name, node.lineno) for name in names)
        if inside and any(name.split(".")[0] == "weft" for name in names):
            found.late.append(node.lineno)
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module":
            parts = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            found.texts.extend((text, node.lineno) for text in parts if isinstance(text, str))
    return found


def imported(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = package[: len(package) - node.level + 1] if node.level else ()
    module = ".".join((*base, *filter(None, [node.module])))
    bare = node.level and not node.module
    return [f"{module}.{alias.name}" for alias in node.names] if bare else [module]


def needs(path: Path) -> list[tuple[str, str, int]]:
    """(room or third-party package, module, line) for every import that leaves the room."""
    room = room_of(path)
    result = []
    for module, line in source(path).imports:
        parts = module.split(".")
        target = parts[1] if parts[0] == "weft" and len(parts) > 1 else parts[0]
        if target not in {room, "__future__", *LEAVES, *sys.stdlib_module_names}:
            result.append((target, module, line))
    return result


ROOM_FILES = [path for path in FILES if room_of(path) in ALLOWED]


@pytest.mark.parametrize("room", ALLOWED)
def test_imports_go_one_way(room):
    wrong = [
        f"{path}:{line}: {room} may not import {module}"
        for path in ROOM_FILES
        if room_of(path) == room
        for target, module, line in needs(path)
        if target not in ALLOWED[room]
        or not module.startswith(LLVM_MODULES.get(room, "") if target == "llvmlite" else "")
    ]
    assert wrong == []


def test_every_room_is_in_the_table():
    folders = {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()}
    facades = {"top", "_C", "autograd", "cpp", "cuda", "backends", "signal"}
    assert folders <= {*ALLOWED, *LATE, *facades}


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_leaves_import_nothing(name):
    assert source(ROOT / f"{name}.py").imports == []


def test_nothing_imports_tools():
    wrong = [
        f"{path}:{line}"
        for path in FILES
        for target, _, line in needs(path)
        if target == "tools" and room_of(path) not in LATE
    ]
    assert wrong == []


def test_known_third_parties_only():
    known = {*map(room_of, FILES), *THIRD_PARTY, "weft"}
    assert [f"{path}:{line}: {m}" for path in FILES for target, m, line in needs(path) if target not in known] == []


def test_no_import_of_ours_inside_a_function():
    assert [f"{path}:{line}" for path in FILES for line in source(path).late] == []


def test_modules_that_are_imported_by_a_text_are_of_the_same_room_or_below():
    for path in ROOM_FILES:
        room = room_of(path)
        for text, line in source(path).texts:
            dots = len(text) - len(text.lstrip("."))
            depth = len(path.relative_to(ROOT).parts) - 1
            target = room if dots <= depth else text.strip(".").split(".")[0]
            assert dots, f"{path}:{line}: {text!r} is not relative"
            assert target == room or target in ALLOWED[room], f"{path}:{line}: {room} reaches {text!r}"


def test_backends_are_known_by_name_in_one_place():
    """Common stages ask the target's backend; eager calls run on the CPU. The rooms of one backend know none of
    another's."""
    rooms = {kind: {(room, kind) for room in ("lower", "codegen", "runtime")} for kind in ("cpu", "cuda")}
    composed = {
        "cpu": {"compiler/backends/cpu.py", "runtime/loading.py"},
        "cuda": {"compiler/backends/cuda.py", "runtime/loading.py"},
    }
    for path in ROOM_FILES:
        parts, name = path.relative_to(ROOT).parts, path.relative_to(ROOT).as_posix()
        if parts[:2] in rooms["cuda"] or name in composed["cuda"]:
            reached = [name for name, _ in source(path).imports if tuple(name.split(".")[1:3]) in rooms["cpu"]]
            assert reached == [] or name in composed["cpu"], path
    cpu_rooms, composed = rooms["cpu"], composed["cpu"]
    open_programs = {f"compiler/open/{name}.py" for name in ("calls", "kernels", "programs")}  # what eager calls run
    for path in ROOM_FILES:
        parts = path.relative_to(ROOT).parts
        if (
            parts[:2] in cpu_rooms
            or parts[0] == "eager"
            or path.relative_to(ROOT).as_posix() in composed | open_programs
        ):
            continue
        reached = [name for name, _ in source(path).imports if tuple(name.split(".")[1:3]) in cpu_rooms]
        assert reached == [], path


def test_rooms_have_no_cycle():
    """By what files do import, late and by text too, and not by the table above."""
    graph = {room: set() for room in ALLOWED}
    for path in ROOM_FILES:
        graph[room_of(path)] |= {target for target, _, _ in needs(path) if target in ALLOWED}
    done = set()
    while len(done) < len(graph):
        ready = {room for room, below in graph.items() if room not in done and below <= done | {room}}
        assert ready, f"a cycle among {sorted(set(graph) - done)}"
        done |= ready


MAX_FILES = 30


def test_folders_stay_flat_and_short():
    folders = {path.parent for path in FILES}
    sizes = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > MAX_FILES} == {}


def test_files_stay_small():
    sizes = {path: len(path.read_text().splitlines()) for path in FILES}
    assert {str(path): size for path, size in sizes.items() if size > MAX_LINES} == {}


def test_no_grab_bags():
    named_by_pickles = ROOT / "_utils.py"  # names only, which PyTorch's files have in them
    found = [str(path) for path in FILES if path.stem.strip("_") in GRAB_BAGS]
    assert found == [str(named_by_pickles)]
    body = ast.parse(named_by_pickles.read_text()).body[1:]
    assert {type(node) for node in body} == {ast.ImportFrom, ast.Assign}


def test_every_module_says_what_it_is():
    assert [str(path) for path in FILES if not source(path).documented] == []


def test_the_checks_see_what_they_should(tmp_path, monkeypatch):
    (tmp_path / "core").mkdir()
    bad = tmp_path / "core" / "bad.py"
    bad.write_text(
        "import llvmlite.binding\nfrom ..passes import fuse\nfrom .. import ops\ndef f():\n  from . import op\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert [(t, line) for t, _, line in needs(bad)] == [("llvmlite", 1), ("passes", 2), ("ops", 3)]
    assert source(bad).late == [5]
    assert not source(bad).documented
