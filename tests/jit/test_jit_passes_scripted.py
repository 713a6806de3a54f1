"""Passes over graphs that PyTorch compiled from source, compared with PyTorch's own."""

import re

import pytest
from oracles import oracle

from weft import _C

SOURCE = """
import torch
from torch import Tensor
from typing import Dict, List, Optional

def looped(x, n: int):
    y = x
    for i in range(n):
        if bool(y.sum() > 3):
            y = y * 2
        else:
            y = y + x.relu()
    return y, [y, x]

def optional(x, y: Optional[Tensor]):
    if y is None:
        return x
    z = torch.cat([x, y], dim=0)
    return z.reshape([2, -1])[0:1]

def written(x):
    a = x * 2
    b = x * 2
    c = a + b
    c.add_(1)
    d = c.view(-1)
    d.mul_(3)
    return c, x * 2

def listed(n: int):
    l = [1, 2, 3]
    l.append(n)
    s = 0
    for v in l:
        s += v
    while s > 10:
        s -= 3
    return s, len(l)

def mapped(x, d: Dict[str, Tensor]):
    k = "a" + "b"
    if k in d:
        return d[k] + x
    return x.t().t()

def tupled(x):
    t = (x, 3, (x + 1, "s"))
    a, b, c = t
    e, f = c
    return a * b + e, len(f)

def checked(x, flag: bool):
    assert flag, "no"
    if flag and True:
        y = x + 1
    else:
        y = x
    print(y)
    return y.relu_()

def indexed(x):
    y = torch.zeros([2, 2])
    for i in range(2):
        y[i] = x[i] * 2
    return y.relu()

def gated(x, w, b):
    h = torch.tanh(x.mm(w) + b)
    g = torch.sigmoid(x.mm(w) + b)
    return h * g + (1 - g) * x

def numbers(a: int, b: float, names: List[str]):
    c = a * 2
    d = b / 2.0
    e = float(a) + d
    f = 5 // 2 + 7 % 3
    out = [c]
    for name in names:
        out.append(len(name))
        if name == "stop":
            break
    return c, e, f, max(a, 3), not (a > 3), out

def early(x, n: int):
    for i in range(n):
        if i == 3:
            return x + i
        x = x * 2
    return x
"""
NAMES = re.findall(r"^def (\w+)", SOURCE, re.M)
PASSES = (
    "dce dce_graph cse constant_pooling constant_propagation constant_propagation_immutable_types peephole "
    "lower_all_tuples remove_inplace_ops remove_mutation erase_shape_information remove_expands canonicalize "
    "loop_unrolling constant_loop_unrolling canonicalize_graph_fuser_ops decompose_ops fuse_linear batch_mm"
).split()


def without_names(text):
    names = {}
    return re.sub(r"%[\w.]+", lambda found: names.setdefault(found.group(), f"%{len(names)}"), text)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The text of the graph of each function."""
    torch, path = oracle("torch"), tmp_path_factory.mktemp("scripted") / "functions_for_passes.py"
    path.write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(path.parent))
        module = __import__(path.stem)
    with pytest.warns(DeprecationWarning, match="deprecated"):
        texts = {name: str(torch.jit.script(getattr(module, name)).graph) for name in NAMES}
    # Nodes that give nothing are written with a sign that PyTorch itself does not read.
    return {name: re.sub(r"(?m)^( *) = ", r"\1", re.sub(r" # .*", "", text)) for name, text in texts.items()}


@pytest.mark.parametrize("name", PASSES)
def test_passes_over_compiled_functions(name, compiled):
    for function, text in compiled.items():
        graphs = []
        for core in (_C, oracle("torch")._C):
            graph = core.parse_ir(text)
            given = getattr(core, f"_jit_pass_{name}")(graph)
            graph = given if isinstance(given, core.Graph) else graph
            graph.lint()
            graphs.append(without_names(re.sub(r" # .*", "", str(graph))))
        assert graphs[0] == graphs[1], function
