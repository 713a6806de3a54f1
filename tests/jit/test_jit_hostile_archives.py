"""Archives that lie: each is an error of weft's, in little time and memory, and nothing of them runs."""

import ast
import io
import json
import pickle
import random
import zipfile

import numpy as np
import pytest

import weft
from weft.jit.archive import sources

EMPTY = b"\x80\x02).\n"[:4]
MODULE = "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"
FORWARD = "  def forward(self: __torch__.M,\n    x: Tensor) -> Tensor:\n    return torch.add(x, 1)\n"


def zipped(records):
    """A zip file as other programs write it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in records.items():
            archive.writestr(f"m/{name}", content if isinstance(content, bytes) else content.encode())
    return file.getvalue()


def pickled(state=None, name="M", module="__torch__"):
    """An object of a class of the program, with attributes."""
    body = pickle.dumps({"training": True} if state is None else state, 2)[2:-1]
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b")\x81" + body + b"b."


def program(source=MODULE + FORWARD, data=None, **records):
    named = {name.replace("__", "/", 1).replace("_DOT_", "."): content for name, content in records.items()}
    return {
        "version": "3\n",
        "byteorder": "little",
        "constants.pkl": EMPTY,
        "code/__torch__.py": source,
        "data.pkl": pickled() if data is None else data,
        **named,
    }


def load(records):
    return weft.jit.load(io.BytesIO(zipped(records)))


def run(records):
    return load(records)(weft.ones(2))


def test_a_program_written_by_hand():
    assert run(program()).tolist() == [2.0, 2.0]


CLASSES = {
    "no source": "class M(Module:\n",
    "a statement": MODULE + "import os\n",
    "code outside": "print(1)\n" + MODULE,
    "an expression in a class": MODULE + "  print(1)\n",
    "a base": "class M(object):\n  training : bool\n",
    "two bases": "class M(Module, Module):\n  training : bool\n",
    "keywords": "class M(Module, metaclass=type):\n  training : bool\n",
    "decorated": "@evil\n" + MODULE,
    "twice": MODULE + MODULE,
    "an attribute twice": MODULE + "  training : bool\n",
    "an unknown type": MODULE + "  x : Missing\n",
    "a class that is not there": MODULE + "  x : __torch__.Nowhere\n",
    "a type that is a function": MODULE + "  x : __torch__.f\ndef f() -> int:\n  return 1\n",
    "a type that is a call": MODULE + "  x : print(1)\n",
    "parameters that are no names": MODULE.replace("__parameters__ = []", "__parameters__ = [1]"),
    "a constant that is a call": MODULE + "  x : Final[int] = eval('1')\n",
    "a constant of another type": MODULE + "  x : Final[int] = 'text'\n",
    "an enum of two types": MODULE + "  x : __torch__.E\nclass E(Enum):\n  A = 1\n  B = 'b'\n",
    "an enum with a method's name": MODULE + "  x : __torch__.E\nclass E(Enum):\n  __init__ = 1\n",
    "a named tuple twice": MODULE + "  x : __torch__.N\nclass N(NamedTuple):\n  a : int\n  a : int\n",
    "hooks": MODULE + "  __forward_hooks__ = ['hook']\n",
    "stars": MODULE + "  def forward(self: __torch__.M, *x: Tensor) -> Tensor:\n    return x\n",
    "no result": MODULE + "  def forward(self: __torch__.M, x: Tensor):\n    return x\n",
    "no type": MODULE + "  def forward(self: __torch__.M, x) -> Tensor:\n    return x\n",
    "a huge number": MODULE + f"  x : Final[int] = {'9' * 5000}\n",
    "a null": MODULE + "\0",
    "no text": b"\xff\xfe" + MODULE.encode(),
    "deep brackets": MODULE + f"  x : Final[int] = {'[' * 190}1{']' * 190}\n",
    "deep signs": MODULE + f"  x : Final[int] = {'-' * 5000}1\n",
    "a deep type": MODULE + f"  x : {'Optional[List[' * 90}int{']]' * 90}\n",
    "classes in classes": MODULE
    + "  x : Optional[__torch__.C0]\n"
    + "".join(
        [f"class C{k}:\n  x : Optional[__torch__.C{k + 1}]\n" for k in range(500)] + ["class C500:\n  x : int\n"]
    ),
    "a long chain": MODULE + f"  x : __torch__{'.a' * 5000}\n",
}


@pytest.mark.parametrize("case", CLASSES)
def test_sources_that_are_refused(case):
    with pytest.raises(weft.Error):
        load(program(CLASSES[case]))


BODIES = {
    "a name from outside": "    return __import__('os')\n",
    "a builtin": "    return eval('x')\n",
    "an operator that nobody has": "    return torch.evil(x)\n",
    "a module of Python": "    return torch.os.system('true')\n",
    "a space that nobody has": "    return ops.evil.run(x)\n",
    "a lambda": "    f = lambda y: y\n    return f(x)\n",
    "a definition": "    def g(y: Tensor) -> Tensor:\n      return y\n    return g(x)\n",
    "an import": "    import os\n    return x\n",
    "a try": "    try:\n      pass\n    except:\n      pass\n    return x\n",
    "a global": "    global y\n    return x\n",
    "a class": "    class A:\n      pass\n    return x\n",
    "a constant that is not there": "    return torch.add(x, CONSTANTS.c7)\n",
    "a constant by another name": "    return CONSTANTS.__class__\n",
    "a hidden attribute": "    return self.__dict__\n",
    "an attribute that is not there": "    return self.weight\n",
    "a wrong type": "    return 1\n",
    "a function that is not there": "    return __torch__.nowhere(x, )\n",
    "deep calls": f"    return {'torch.neg(' * 120}x{')' * 120}\n",
}


@pytest.mark.parametrize("case", BODIES)
def test_functions_that_are_refused(case):
    source = MODULE + FORWARD.rpartition("    return")[0] + BODIES[case]
    with pytest.raises(weft.Error):
        run(program(source))


def test_functions_that_call_each_other_end():
    source = MODULE + FORWARD.replace("torch.add(x, 1)", "__torch__.a(x, )")
    for name, other in ("ab", "ba"):
        source += f"def {name}(x: Tensor) -> Tensor:\n  return __torch__.{other}(x, )\n"
    with pytest.raises(weft.Error):
        run(program(source))


def test_classes_that_name_each_other():
    """They are fine as types: no value of them can be made."""
    source = MODULE + "  x : Optional[__torch__.A]\n" + FORWARD
    source += "class A:\n  b : Optional[__torch__.B]\nclass B:\n  a : Optional[__torch__.A]\n"
    assert run(program(source, pickled({"training": True, "x": None}))).tolist() == [2.0, 2.0]


STATES = {
    "a missing attribute": pickled({}),
    "an attribute too many": pickled({"training": True, "evil": 1}),
    "an attribute of another type": pickled({"training": "yes"}),
    "a number for a flag": pickled({"training": 1}),
    "no attributes": pickled([1]),
    "names that are numbers": pickled({1: True}),
    "a class that is not there": pickled(name="Nowhere"),
    "a class of Python": pickled(name="system", module="os"),
    "a function": b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.",
    "a call of a class": b"\x80\x02c__torch__\nM\n)R.",
    "an object without a state": b"\x80\x02c__torch__\nM\n)\x81.",
    "two states": pickled()[:-1] + b"}(X\x08\x00\x00\x00training\x88ub.",
    "no module": b"\x80\x02].",
    "a number": b"\x80\x02K\x01.",
    "nothing": b"",
    "more than one": pickled() + b"K\x01.",
    "a module of safe globals": pickled(name="OrderedDict", module="collections"),
}


@pytest.mark.parametrize("case", STATES)
def test_values_that_are_refused(case):
    with pytest.raises(weft.Error):
        load(program(data=STATES[case]))


def test_a_module_that_is_part_of_itself():
    source = "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n  inner : __torch__.M\n"
    data = b"\x80\x02c__torch__\nM\n)\x81q\x00}(X\x08\x00\x00\x00training\x88X\x05\x00\x00\x00innerh\x00ub."
    with pytest.raises(weft.Error):
        load(program(source, data))


def test_values_that_are_small_in_a_file_and_huge_otherwise():
    """A list of twice a list of twice a list ... is looked at once."""
    kind = "List[" * 60 + "int" + "]" * 60
    value = []
    for _ in range(59):
        value = [value, value]
    source = MODULE + f"  x : {kind}\n" + FORWARD
    assert run(program(source, pickled({"training": True, "x": value}))).tolist() == [2.0, 2.0]


def test_tensors_outside_of_their_storage(torch):
    class Holds(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x + self.weight

    content = saved(torch, torch.jit.script(Holds()))
    records = unzipped(content)
    at = records["data.pkl"].index(b"K\x04t")  # the sizes
    for place in (at, records["data.pkl"].rindex(b"K\x04")):
        broken = bytearray(records["data.pkl"])
        broken[place + 1] = 200
        with pytest.raises(weft.Error):
            load({**records, "data.pkl": bytes(broken)})
    with pytest.raises(weft.Error):
        load({name: content for name, content in records.items() if name != "data/0"})


def test_records_that_unpack_to_too_much():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in program().items():
            archive.writestr(f"m/{name}", content)
        archive.writestr("m/code/__torch__/big.py", b"#" * (sources.MOST_BYTES + 1))
    source = MODULE + "  x : __torch__.big.A\n"
    with pytest.raises(weft.Error):
        weft.jit.load(
            io.BytesIO(zipped(program(source, **{"code____torch__/big_DOT_py": b"#" * (sources.MOST_BYTES + 1)})))
        )


def saved(torch, module):
    file = io.BytesIO()
    torch.jit.save(module, file)
    return file.getvalue()


def unzipped(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def sample(torch):
    class Cell(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)
            self.steps = 2
            self.words = {"a": 1}

        def forward(self, x):
            for step in range(self.steps):
                if step > 0:
                    x = torch.tanh(self.linear(x)) + self.words["a"]
            return x

    return saved(torch, torch.jit.script(Cell()))


def attempt(content):
    """Loads and runs; what goes wrong is an error of weft's, or a wrong argument."""
    try:
        module = weft.jit.load(io.BytesIO(content))
        module.code
        module(weft.ones(2, 3))
    except weft.Error:
        return False
    return True


def test_archives_that_are_cut_off(torch):
    content = sample(torch)
    for size in [0, 3, 21, 100, len(content) // 2, len(content) - 1]:
        assert not attempt(content[:size])


def test_archives_with_bytes_that_changed(torch):
    """A flipped byte is noticed by a checksum, or changes nothing that matters."""
    content, chance = sample(torch), random.Random(5)
    for _ in range(60):
        broken = bytearray(content)
        for _ in range(chance.choice([1, 1, 2, 8])):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        attempt(bytes(broken))


@pytest.mark.parametrize("seed", range(4))
def test_records_that_changed_under_a_right_checksum(torch, seed):
    records, chance = unzipped(sample(torch)), random.Random(seed)
    names = [name for name in records if name.endswith((".pkl", ".py", "version", "byteorder"))]
    for _ in range(40):
        name = chance.choice(names)
        broken = bytearray(records[name])
        for _ in range(chance.choice([1, 2, 5])):
            if not broken:
                continue
            at = chance.randrange(len(broken))
            way = chance.randrange(4)
            if way == 0:
                broken[at] = chance.randrange(256)
            elif way == 1:
                del broken[at : at + chance.randrange(1, 9)]
            elif way == 2:
                broken[at:at] = bytes(chance.choices(range(256), k=chance.randrange(1, 5)))
            else:
                other = chance.randrange(len(broken))
                broken[at:at] = broken[other : other + chance.randrange(1, 20)]
        attempt(zipped({**records, name: bytes(broken)}))


@pytest.mark.parametrize("seed", range(4))
def test_sources_whose_words_changed(torch, seed):
    """Sources that still are Python, and mean something else."""
    records, chance = unzipped(sample(torch)), random.Random(seed)
    names = [name for name in records if name.endswith(".py")]
    for _ in range(25):
        name = chance.choice(names)
        tree = ast.parse(records[name])
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute | ast.Constant)]
        for node in chance.sample(nodes, 2):
            if isinstance(node, ast.Name):
                node.id = chance.choice(["torch", "self", "ops", "x", "int", "CONSTANTS", "__torch__", "__builtins__"])
            elif isinstance(node, ast.Attribute):
                node.attr = chance.choice(["forward", "add", "training", "__class__", "linear", "prim", "c0"])
            else:
                node.value = chance.choice([None, True, -1, 2**63, 1.5, "training", "", 3j])
        attempt(zipped({**records, name: ast.unparse(tree).encode()}))


# The format of PyTorch 1.1


def first_format(method, tensors, parameters, submodules=(), attributes=(), pickle_of=None):
    model = {
        "protoVersion": "1",
        "mainModule": {
            "torchscriptArena": {"key": "code/archive.py"},
            "name": "archive",
            "optimize": True,
            "parameters": parameters,
            "submodules": list(submodules),
            "attributes": list(attributes),
        },
        "producerName": "pytorch",
        "producerVersion": "1.0",
        "tensors": [
            {
                "dims": [str(size) for size in array.shape],
                "offset": "0",
                "strides": [str(step // array.itemsize) for step in array.strides],
                "requiresGrad": array.dtype.kind == "f",
                "dataType": {"float32": "FLOAT", "int64": "INT64"}[str(array.dtype)],
                "data": {"key": f"tensors/{place}"},
                "device": "cpu",
            }
            for place, array in enumerate(tensors)
        ],
    }
    return {
        "version": "1\n",
        "code/archive.py": f"op_version_set = 0\n{method}",
        "model.json": json.dumps(model),
        "attributes.pkl": pickle_of or pickle.dumps([], 2),
        **{f"tensors/{place}": array.tobytes() for place, array in enumerate(tensors)},
    }


def test_the_first_format(torch):
    weight, bias = (np.random.default_rng(3).standard_normal(shape).astype(np.float32) for shape in ((4, 3), (4,)))
    steps = np.array(3)
    method = (
        "def forward(self,\n    x: Tensor) -> Tensor:\n"
        "  _0 = torch.addmm(self.fc.bias, x, torch.t(self.fc.weight), beta=1, alpha=1)\n"
        "  _1 = torch.mul(torch.relu(_0), self.gain)\n"
        "  return torch.add(_1, self.steps, alpha=1)\n"
    )
    inner = {
        "name": "fc",
        "parameters": [{"name": "weight", "tensorId": "0"}, {"isBuffer": False, "tensorId": "1", "name": "bias"}],
    }
    records = first_format(
        method,
        [weight, bias, steps],
        [{"isBuffer": True, "tensorId": "2", "name": "steps"}],
        [inner],
        [{"type": "float", "name": "gain", "id": "0"}, {"type": "List[int]", "name": "sizes", "id": "1"}],
        pickle.dumps([0.5, [1, 2]], 2),
    )
    module = load(records)
    assert [name for name, _ in module.named_parameters()] == ["fc.weight", "fc.bias"]
    assert [name for name, _ in module.named_buffers()] == ["steps"]
    assert module.sizes == [1, 2]
    assert module.fc.weight.requires_grad
    x = np.random.default_rng(4).standard_normal((2, 3)).astype(np.float32)
    expected = np.maximum(x @ weight.T + bias, 0) * 0.5 + 3
    np.testing.assert_allclose(module(weft.from_numpy(x)).detach().numpy(), expected, rtol=1e-5)
    again = torch.jit.load(io.BytesIO(module.save_to_buffer()))
    np.testing.assert_allclose(again(torch.from_numpy(x)).detach().numpy(), expected, rtol=1e-5)


def test_integers_that_were_divided_to_integers():
    method = "def forward(self,\n    x: Tensor,\n    y: Tensor) -> Tensor:\n  return torch.div(x, y)\n"
    old = load(first_format(method, [], []))
    assert old(weft.tensor([7, -7, 9]), weft.tensor([2, 2, 3])).tolist() == [3, -3, 3]
    assert old(weft.tensor([7.0]), weft.tensor([2])).tolist() == [3.5]
    source = MODULE + FORWARD.replace("torch.add(x, 1)", "torch.div(x, 2)")
    for version, expected in ((3, [3, -3]), (4, [3.5, -3.5])):
        module = load({**program(source), "version": f"{version}\n"})
        assert module(weft.tensor([7, -7])).tolist() == expected
        assert module(weft.tensor([7.0])).tolist() == [3.5]


def test_tensors_that_were_full_of_floats():
    source = MODULE + FORWARD.replace("torch.add(x, 1)", "torch.full([2], 3)")
    assert run({**program(source), "version": "4\n"}).dtype is weft.float32
    assert run({**program(source), "version": "5\n"}).dtype is weft.int64
    steps = MODULE + FORWARD.replace("torch.add(x, 1)", "torch.linspace(0, 1)")
    assert run({**program(steps), "version": "7\n"}).shape == (100,)
    with pytest.raises(weft.Error):
        run({**program(steps), "version": "8\n"})


FIRST = {
    "no JSON": {"model.json": "{"},
    "a deep JSON": {"model.json": "[" * 100_000},
    "a list": {"model.json": "[]"},
    "no main module": {"model.json": "{}"},
    "a number as a name": {"model.json": json.dumps({"mainModule": {"name": 1}})},
    "a tensor that is not there": {
        "model.json": json.dumps({"mainModule": {"name": "a", "parameters": [{"name": "w", "tensorId": "5"}]}})
    },
    "a negative tensor": {
        "model.json": json.dumps({"mainModule": {"name": "a", "parameters": [{"name": "w", "tensorId": -1}]}})
    },
    "a record that is not there": {
        "model.json": json.dumps(
            {"mainModule": {"name": "a"}, "tensors": [{"dataType": "FLOAT", "data": {"key": "tensors/9"}}]}
        )
    },
    "a type of tensors that nobody has": {
        "model.json": json.dumps(
            {"mainModule": {"name": "a"}, "tensors": [{"dataType": "EVIL", "data": {"key": "tensors/0"}}]}
        )
    },
    "an attribute of another type": {
        "model.json": json.dumps(
            {"mainModule": {"name": "a", "attributes": [{"name": "n", "type": "int", "id": "0"}]}}
        ),
        "attributes.pkl": pickle.dumps(["text"], 2),
    },
    "a pickle that calls": {
        "model.json": json.dumps(
            {"mainModule": {"name": "a", "attributes": [{"name": "n", "type": "int", "id": "0"}]}}
        ),
        "attributes.pkl": b"cos\nsystem\n(X\x04\x00\x00\x00truetR.",
    },
    "a source that is none": {"code/archive.py": "def forward(self"},
    "a source with a class": {"code/archive.py": "class A:\n  x : int\n"},
}


@pytest.mark.parametrize("case", FIRST)
def test_archives_of_the_first_format_that_are_refused(case):
    method = "def forward(self,\n    x: Tensor) -> Tensor:\n  return x\n"
    with pytest.raises(weft.Error):
        load({**first_format(method, [], []), **FIRST[case]})


def test_archives_of_data_are_told_apart(tmp_path):
    weft.save({"a": weft.ones(2)}, tmp_path / "data.pt")
    with pytest.raises(weft.Error, match=r"weft\.load"):
        weft.jit.load(str(tmp_path / "data.pt"))
    with pytest.raises(weft.Error, match="version"):
        load({**program(), "version": "99\n"})
