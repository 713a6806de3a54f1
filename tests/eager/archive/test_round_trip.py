"""Archives go from weft to PyTorch and back, and from PyTorch to weft and back."""

import io
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
from archive_trees import DTYPES, WIDE, Ours, Theirs, described, random_tree
from oracles import oracle

from weft.eager.archive.load import load
from weft.eager.archive.save import save
from weft.eager.tensor import types
from weft.eager.tensor.parameter import Parameter
from weft.eager.tensor.tensor import as_view, wrap
from weft.eager.tensor.typed_storage import STORAGE_NAMES

FORMATS = [True, False]


def through(save_function, load_function, value, new):
    file = io.BytesIO()
    save_function(value, file, _use_new_zipfile_serialization=new)
    file.seek(0)
    return load_function(file)


@pytest.mark.parametrize("block", range(10))
def test_trees_from_weft_to_pytorch_and_back(block):
    torch = oracle("torch")
    for seed in range(block * 20, block * 20 + 20):
        new = seed % 4 != 0
        tree = random_tree(seed, Ours(), WIDE if new else DTYPES)
        expected = described(tree)
        theirs = through(save, torch.load, tree, new)
        assert described(theirs) == expected
        assert described(through(torch.save, load, theirs, new)) == expected


@pytest.mark.parametrize("block", range(10))
def test_trees_from_pytorch_to_weft_and_back(block):
    torch = oracle("torch")
    for seed in range(1000 + block * 20, 1000 + block * 20 + 20):
        new = seed % 4 != 0
        tree = random_tree(seed, Theirs(torch), WIDE if new else DTYPES)
        expected = described(tree)
        ours = through(torch.save, load, tree, new)
        assert described(ours) == expected
        assert described(through(save, torch.load, ours, new)) == expected


@pytest.mark.parametrize("new", FORMATS)
@pytest.mark.parametrize("name", WIDE)
def test_every_dtype(name, new):
    torch = oracle("torch")
    rng = np.random.default_rng(len(name))
    array = rng.integers(0, 2, (3, 4)).astype(types.as_dtype(name).numpy)
    found = through(save, torch.load, wrap(array), new)
    assert str(found.dtype) == f"torch.{name}"
    assert found.tolist() == array.tolist()


def test_the_layout_of_the_file_is_pytorchs():
    torch = oracle("torch")
    value = {"a": np.arange(6, dtype=np.float32), "b": np.arange(70, dtype=np.int16)}
    ours, theirs = io.BytesIO(), io.BytesIO()
    save({key: wrap(array) for key, array in value.items()}, ours)
    torch.save({key: torch.from_numpy(array) for key, array in value.items()}, theirs)
    mine, other = zipfile.ZipFile(ours), zipfile.ZipFile(theirs)
    assert mine.testzip() is None
    assert mine.namelist() == other.namelist()
    for name in mine.namelist():
        a, b = mine.getinfo(name), other.getinfo(name)
        assert (a.flag_bits, a.compress_type, a.extra) == (b.flag_bits, b.compress_type, b.extra)
        if name != "archive/.data/serialization_id":
            assert mine.read(name) == other.read(name), name
    reader = torch._C.PyTorchFileReader(io.BytesIO(ours.getvalue()))
    assert [reader.get_record_offset(name) % 64 for name in reader.get_all_records()] == [0] * 8
    assert len(mine.read("archive/.data/serialization_id")) == 40


def test_views_keep_sharing_and_writing_shows_it():
    base = wrap(np.arange(12, dtype=np.float32).reshape(3, 4))
    value = [base, as_view(base._array[1:, ::2], base), as_view(base._array.T, base)]
    for new in FORMATS:
        a, b, c = through(save, load, value, new)
        a._array[1, 2] = 100
        assert b._array[0, 1] == c._array[2, 1] == 100
        assert a.untyped_storage() is b.untyped_storage() is c.untyped_storage()
        assert b.storage_offset() == 4
        b.untyped_storage().resize_(1000)
        a._array[1, 0] = 55
        assert b._array[0, 0] == c._array[0, 1] == 55


def test_expanded_and_reversed_arrays():
    torch = oracle("torch")
    wide = wrap(np.broadcast_to(np.float32(3), (5, 2)))
    back = wrap(np.arange(5.0)[::-1])
    theirs = through(save, torch.load, [wide, back], True)
    assert theirs[0].tolist() == [[3, 3]] * 5
    assert theirs[1].tolist() == [4, 3, 2, 1, 0]
    ours = through(torch.save, load, torch.zeros(1).expand(4, 3), True)
    assert ours.tolist() == [[0] * 3] * 4
    assert not ours._array.flags.writeable


def test_containers_stay_the_same_objects_and_may_hold_themselves():
    inner, ring = [1], []
    ring += [ring, {"ring": ring}]
    pair = ([], 1)
    pair[0].append(pair)
    for new in FORMATS:
        found = through(save, load, [inner, inner, ring, pair], new)
        assert found[0] is found[1]
        assert found[2][0] is found[2] is found[2][1]["ring"]
        assert found[3][0][0] is found[3]


def test_deep_nesting_needs_no_recursion():
    value = []
    for _ in range(100_000):
        value = [value]
    found = through(save, load, value, True)
    depth = 0
    while found:
        found, depth = found[0], depth + 1
    assert depth == 100_000


def test_state_dicts_keep_their_attributes():
    torch = oracle("torch")
    state = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).state_dict()
    ours = through(torch.save, load, state, True)
    assert type(ours) is OrderedDict
    assert ours._metadata == state._metadata
    back = through(save, torch.load, ours, True)
    assert back._metadata == state._metadata
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    model.load_state_dict(back)
    assert torch.equal(model[0].weight, state["0.weight"])


def test_parameters():
    torch = oracle("torch")
    weight = Parameter(wrap(np.ones((2, 2), np.float32)), requires_grad=False)
    theirs = through(save, torch.load, weight, True)
    assert type(theirs) is torch.nn.Parameter
    assert not theirs.requires_grad
    ours = through(torch.save, load, torch.nn.Parameter(torch.ones(2)), True)
    assert type(ours) is Parameter
    assert ours.requires_grad
    assert ours.is_leaf


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("title", "Float Long Bool BFloat16 ComplexDouble".split())
def test_storages_by_themselves(title):
    torch = oracle("torch")
    storage = STORAGE_NAMES[f"{title}Storage"]([1, 0, 1])
    ours = [storage, storage.untyped().clone(), as_tensor(storage)]
    theirs = through(save, torch.load, ours, True)
    assert theirs[0].tolist() == [1, 0, 1]
    assert theirs[0].data_ptr() == theirs[2].data_ptr()
    back = through(torch.save, load, theirs, True)
    assert type(back[0]) is type(storage)
    assert back[0].tolist() == [1, 0, 1]
    assert back[0].untyped() is back[2].untyped_storage()
    assert back[1].tolist() == storage.untyped().tolist()


def as_tensor(storage):
    made = wrap(np.asarray(storage))
    made._storage, made._start = storage.untyped(), 0
    return made


def test_one_memory_of_two_types_is_refused():
    base = wrap(np.arange(4, dtype=np.int32))
    other = as_view(base._array.view(np.float32), base)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        save([base, other], io.BytesIO())


def test_files_of_the_other_byte_order():
    torch = oracle("torch")
    array = np.arange(5, dtype=np.float64)
    file = io.BytesIO()
    torch.save({"a": torch.from_numpy(array), "c": torch.tensor([1 + 2j])}, file)
    swapped = io.BytesIO()
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(swapped, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "archive/byteorder":
                content = b"big"
            elif name == "archive/data/0":
                content = np.frombuffer(content, "<f8").astype(">f8").tobytes()
            elif name == "archive/data/1":
                content = np.frombuffer(content, "<f4").astype(">f4").tobytes()
            target.writestr(name, content)
    swapped.seek(0)
    found = load(swapped)
    assert found["a"].tolist() == array.tolist()
    assert found["c"].tolist() == [1 + 2j]


def test_compressed_archives():
    torch = oracle("torch")
    file, packed = io.BytesIO(), io.BytesIO()
    torch.save({"zeros": torch.zeros(100_000), "text": "x" * 1000}, file)
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    packed.seek(0)
    found = load(packed)
    assert not found["zeros"]._array.any()
    assert found["zeros"].numel() == 100_000


def test_several_old_archives_in_one_file():
    torch = oracle("torch")
    file = io.BytesIO()
    for i in range(3):
        save([i, wrap(np.full(2, i))], file, _use_new_zipfile_serialization=False)
    torch.save(torch.arange(3), file, _use_new_zipfile_serialization=False)
    file.seek(0)
    for i in range(3):
        number, tensor = load(file)
        assert (number, tensor.tolist()) == (i, [i, i])
    assert load(file).tolist() == [0, 1, 2]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_protocols_that_pytorch_can_write(protocol):
    torch = oracle("torch")
    file = io.BytesIO()
    value = {"a": torch.arange(3), "b": b"bytes" * 100, "s": {1, 2}, "n": -(2**70)}
    torch.save(value, file, pickle_protocol=protocol)
    file.seek(0)
    found = load(file)
    assert found["a"].tolist() == [0, 1, 2]
    assert (found["b"], found["s"], found["n"]) == (value["b"], {1, 2}, -(2**70))
