"""Saving to paths, mapping files, placing storages, the reader and writer of records, and classes
that the user allows."""

import copy
import dataclasses
import enum
import io
import os
import pickle
import signal
import stat
import subprocess
import sys
import zipfile
from collections import namedtuple

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.eager.archive.allowed import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from weft.eager.archive.extra_files import ExtraFilesMap
from weft.eager.archive.file_reader import PyTorchFileReader
from weft.eager.archive.file_writer import PyTorchFileWriter, archive_name
from weft.eager.archive.load import load
from weft.eager.archive.save import save
from weft.eager.archive.zip_read import ZipReader
from weft.eager.archive.zip_write import ZipWriter
from weft.eager.tensor import types
from weft.eager.tensor.copying import deepcopy, rebuilt, reduced
from weft.eager.tensor.parameter import Parameter
from weft.eager.tensor.storage import UntypedStorage
from weft.eager.tensor.tensor import Tensor, as_view, wrap


def ramp(count=5):
    return wrap(np.arange(count, dtype=np.float32))


def test_saving_to_a_path(tmp_path):
    torch = oracle("torch")
    path = tmp_path / "model.v1.pt"
    save(ramp(), path)
    assert zipfile.ZipFile(path).namelist()[0] == "model.v1/data.pkl"
    assert torch.load(path).tolist() == load(str(path)).tolist() == [0, 1, 2, 3, 4]
    assert os.listdir(tmp_path) == ["model.v1.pt"]
    os.chmod(path, 0o640)
    save(ramp(2), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert load(path).tolist() == [0, 1]
    with pytest.raises(RuntimeError, match=r"Parent directory .*none does not exist"):
        save(1, tmp_path / "none" / "x.pt")


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.pt"
    save([1], path)
    with pytest.raises(TypeError, match="cannot be saved"):
        save([ramp(), object()], path)
    assert load(path) == [1]
    assert os.listdir(tmp_path) == ["a.pt"]


def test_links_and_devices(tmp_path):
    target, link = tmp_path / "real.pt", tmp_path / "link.pt"
    save(1, target)
    link.symlink_to(target)
    save(2, link)
    assert link.is_symlink()
    assert load(target) == 2
    save(3, "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


KILLED = """
import sys
import numpy as np
from weft.eager.archive.save import save
from weft.eager.tensor.tensor import wrap
number = 0
while True:
    number += 1
    save({"number": number, "data": wrap(np.full(300_000, number))}, sys.argv[1])
    print(number, flush=True)
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_process_killed_while_saving_leaves_a_whole_file(tmp_path, seed):
    path = tmp_path / "a.pt"
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        for _ in range(2 + 3 * seed):  # and then it is writing the next one
            done = int(child.stdout.readline())
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    found = load(path)
    assert found["number"] >= done
    assert np.unique(found["data"]._array).tolist() == [found["number"]]


@pytest.mark.parametrize("writer", ["ours", "theirs"])
def test_mapped_files(tmp_path, writer):
    torch = oracle("torch")
    path = tmp_path / "a.pt"
    if writer == "ours":
        save({"a": ramp(1000), "b": wrap(np.array([True, False]))}, path)
    else:
        torch.save({"a": torch.arange(1000.0), "b": torch.tensor([True, False])}, path)
    found = load(path, mmap=True)
    before = path.read_bytes()
    assert found["a"].tolist() == list(range(1000))
    assert found["b"].tolist() == [True, False]
    found["a"]._array[:] = 7
    assert path.read_bytes() == before
    assert torch.load(path, mmap=True)["a"].tolist() == list(range(1000))
    with pytest.raises(ValueError, match="must be a file path in order to use the mmap"):
        load(io.BytesIO(before), mmap=True)
    save(ramp(), path, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used with"):
        load(path, mmap=True)


def test_map_location():
    torch = oracle("torch")
    file = io.BytesIO()
    torch.save([torch.arange(3), torch.arange(2.0)], file)
    moved = zipped(file, {"archive/data.pkl": lambda data: data.replace(b"cpu", b"tpu")})
    cuda = zipped(file, {"archive/data.pkl": cuda_pickle})
    seen = []

    def place(storage, location):
        seen.append((type(storage), location))
        return storage if location == "cuda:0" else None

    for where in ("cpu", types.device("cpu"), {"cuda:0": "cpu"}, place, "cpu:0"):
        found = load(io.BytesIO(cuda), map_location=where)
        assert [tensor.tolist() for tensor in found] == [[0, 1, 2], [0, 1]]
    assert seen == [(UntypedStorage, "cuda:0")] * 2
    with pytest.raises(RuntimeError, match="deserialize object on a CUDA device"):
        load(io.BytesIO(cuda))
    with pytest.raises(RuntimeError, match="deserialize object on a CUDA device"):
        load(io.BytesIO(cuda), map_location={"cpu": "cuda:0"})
    for where in ("meta", "mps"):
        with pytest.raises(NotImplementedError, match=f"location '{where}'"):
            load(io.BytesIO(cuda), map_location=where)
    with pytest.raises(NotImplementedError, match="location 'tpu'"):
        load(io.BytesIO(moved))
    with pytest.raises(TypeError, match="map_location is a int"):
        load(io.BytesIO(cuda), map_location=5)
    with pytest.raises(TypeError, match="gave a int, not a storage"):
        load(io.BytesIO(cuda), map_location=lambda storage, location: 5)
    with pytest.raises(RuntimeError, match="changed the size"):
        load(io.BytesIO(cuda), map_location=lambda storage, location: UntypedStorage(1))


def zipped(file, changes):
    """The archive with some records changed."""
    made = io.BytesIO()
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            target.writestr(name, changes.get(name, bytes)(source.read(name)))
    return made.getvalue()


def cuda_pickle(data):
    return data.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")


def test_other_arguments():
    file = io.BytesIO()
    save([1], file)
    for weights_only in (None, True, False):
        file.seek(0)
        assert load(file, weights_only=weights_only) == [1]
    with pytest.raises(NotImplementedError):
        load(file, pickle_module=pickle)
    with pytest.raises(NotImplementedError):
        save(1, file, pickle_module=pickle)
    with pytest.raises(ValueError, match="pickle protocol 2, not 4"):
        save(1, file, pickle_protocol=4)


def python_2_archive():
    heads = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    data = b"".join(pickle.dumps(head, 2) for head in heads)
    return data + b"\x80\x02U\x03a\xe9b." + pickle.dumps([], 2)


def test_strings_of_python_2():
    data = python_2_archive()
    assert load(io.BytesIO(data), encoding="latin1") == "aéb"
    assert load(io.BytesIO(data), encoding="bytes") == b"a\xe9b"
    with pytest.raises(ValueError, match="cannot be decoded"):
        load(io.BytesIO(data))
    with pytest.raises(ValueError, match="cannot be decoded"):
        load(io.BytesIO(data), encoding="nonsense")


def test_records():
    torch = oracle("torch")
    file = io.BytesIO()
    writer = PyTorchFileWriter(file)
    assert writer.archive_name() == "archive"
    writer.write_record("a", b"hello", 5)
    writer.write_record("d/e", bytearray(b"xyz"), 2)
    writer.write_record("s", UntypedStorage([1, 2, 3]), 3)
    writer.write_record("empty", b"", 0)
    assert writer.serialization_id() == ""
    with pytest.raises(RuntimeError, match="Tried to serialize file twice: archive/a"):
        writer.write_record("a", b"x", 1)
    with pytest.raises(ValueError, match="5 bytes from 2 that there are"):
        writer.write_record("z", b"ab", 5)
    with pytest.raises(TypeError, match="bytes or a storage, not a str"):
        writer.write_record("z", "text")
    with pytest.raises(TypeError, match="named by text"):
        writer.write_record(5, b"")
    writer.set_min_version(5)
    writer.write_end_of_file()
    with pytest.raises(RuntimeError, match="finished"):
        writer.write_record("q", b"", 0)
    with pytest.raises(RuntimeError, match="finished"):
        writer.write_end_of_file()
    names = ["a", "d/e", "s", "empty", "version", "byteorder", ".data/serialization_id"]
    assert writer.get_all_written_records() == set(names)
    data = file.getvalue()
    for kind in (PyTorchFileReader, torch._C.PyTorchFileReader):
        reader = kind(io.BytesIO(data))
        assert reader.get_all_records() == names
        assert reader.get_record("a") == b"hello"
        assert reader.get_record("d/e") == b"xy"
        assert reader.get_record("version") == b"5\n"
        assert reader.get_record_offset("a") == 64
        assert reader.get_record_size("a") == 5
        assert reader.get_record_header_offset("a") == 0
        assert reader.has_record("s")
        assert not reader.has_record("t")
        assert reader.serialization_id() == writer.serialization_id()
        with pytest.raises(RuntimeError, match="failed locating file no: file not found"):
            reader.get_record("no")
        with pytest.raises(RuntimeError, match=r"record size \(3 bytes\) does not match"):
            reader.get_storage_from_record("s", 9, oracle_dtype(reader, torch))
    found = PyTorchFileReader(file).get_storage_from_record("s", 3, types.uint8)
    assert found.tolist() == [1, 2, 3]


def oracle_dtype(reader, torch):
    return types.uint8 if isinstance(reader, PyTorchFileReader) else torch.uint8


def test_records_of_pytorch():
    torch = oracle("torch")
    file = io.BytesIO()
    theirs = torch._C.PyTorchFileWriter(file)
    theirs.write_record("x", b"abc", 3)
    theirs.write_end_of_file()
    ours = PyTorchFileReader(file)
    assert ours.get_record("x") == b"abc"
    assert ours.serialization_id() == theirs.serialization_id()


def test_readers_and_writers_of_paths(tmp_path):
    path = tmp_path / "r.a.pt"
    writer = PyTorchFileWriter(str(path))
    assert writer.archive_name() == "r.a"
    writer.write_end_of_file()
    with PyTorchFileReader(path) as reader:
        assert reader.archive_name() == "r.a"
    with pytest.raises(RuntimeError, match="errno 2 on fopen: No such file or directory"):
        PyTorchFileReader(str(tmp_path / "none"))
    with pytest.raises(RuntimeError, match=r"Parent directory .* does not exist"):
        PyTorchFileWriter(str(tmp_path / "none" / "x"))
    with pytest.raises(RuntimeError, match="not a ZIP archive"):
        PyTorchFileReader(io.BytesIO(b"abc"))
    for kind in (PyTorchFileReader, PyTorchFileWriter):
        with pytest.raises(AttributeError):
            kind(5)
    with pytest.raises(ValueError, match="storage_alignment"):
        PyTorchFileWriter(io.BytesIO(), storage_alignment=0)
    assert [archive_name(name) for name in ("/a/b.pt", "b", ".pt", "x.y.z", "...")] == [
        "b",
        "b",
        "pt",
        "x.y",
        "archive",
    ]


@pytest.mark.parametrize("wide_from", [1, 10, 500, 2**32 - 1])
@pytest.mark.parametrize("alignment", [1, 64, 4096])
def test_zip64(wide_from, alignment):
    torch = oracle("torch")
    content = {"a": b"hello", "bé": b"x" * 1000, "empty": b"", "version": b"3\n"}
    file = io.BytesIO()
    writer = ZipWriter(file, alignment, wide_from)
    for name, data in content.items():
        writer.add(f"root/{name}", data)
    writer.finish()
    with zipfile.ZipFile(file) as theirs:
        assert theirs.testzip() is None
        assert {name[5:]: theirs.read(name) for name in theirs.namelist()} == content
    ours = ZipReader(file)
    assert {name[5:]: ours.read(name) for name in ours.records} == content
    assert all(ours.payload_offset(name) % alignment == 0 for name in ours.records)
    file.seek(0)
    other = torch._C.PyTorchFileReader(file)
    assert {name: other.get_record(name) for name in other.get_all_records()} == content


def test_more_records_than_sixteen_bits_count():
    file = io.BytesIO()
    writer = ZipWriter(file, 1)
    for i in range(66_000):
        writer.add(f"r/{i}", b"")
    writer.finish()
    assert len(ZipReader(file).records) == len(zipfile.ZipFile(file).namelist()) == 66_000


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Settings:
    rate: float
    steps: list


Pair = namedtuple("Pair", "first second")


class Guarded:
    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return (Guarded, (self.value,))


ALLOWED = [Color, Settings, Pair, Guarded]


@pytest.fixture(autouse=True)
def nothing_allowed():
    yield
    clear_safe_globals()


def through(value):
    file = io.BytesIO()
    save(value, file)
    file.seek(0)
    return load(file)


@pytest.mark.parametrize("value", [Color.RED, Settings(0.5, [1]), Pair(1, "b"), [Color, Settings], {"k": Pair(1, ())}])
def test_classes_that_the_user_allows(value):
    with pytest.raises(TypeError, match=r"add_safe_globals\("):
        save(value, io.BytesIO())
    with safe_globals(ALLOWED):
        assert through(value) == value
        file = io.BytesIO()
        save(value, file)
        assert get_safe_globals() == ALLOWED
    assert get_safe_globals() == []
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="was not an allowed global by default"):
        load(file)
    add_safe_globals([(kind, f"{kind.__module__}.{kind.__qualname__}") for kind in ALLOWED])
    assert through(value) == value
    with pytest.raises(TypeError, match="a class or a function"):
        add_safe_globals([5])


def test_objects_that_reduce_themselves():
    with safe_globals(ALLOWED):
        assert through(Guarded([1])).value == [1]


def test_what_numpy_saved_loads_when_allowed():
    torch = oracle("torch")
    array = np.arange(6.0).reshape(2, 3)
    file = io.BytesIO()
    torch.save({"array": array, "number": np.float64(2.5)}, file)
    names = [np._core.multiarray._reconstruct, np.ndarray, np.dtype, np._core.multiarray.scalar]
    file.seek(0)
    with safe_globals([*names, type(np.dtype("float64"))]):
        found = load(file)
    assert np.array_equal(found["array"], array)
    assert found["number"] == 2.5
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="multiarray"):
        load(file)


def test_os_stays_blocked():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as target:
        target.writestr("a/version", "3\n")
        target.writestr("a/data.pkl", b"\x80\x02cos\nsystem\n.")
    file.seek(0)
    add_safe_globals([(os.system, "os.system")])
    with pytest.raises(pickle.UnpicklingError, match="is blocked"):
        load(file)


@pytest.mark.parametrize("value", [np.float32(1), frozenset([1]), range(3), lambda: 0, np.ones(2)])
def test_what_is_no_data_is_not_saved(value):
    with pytest.raises(TypeError, match="cannot be saved") as raised:
        save([value], io.BytesIO())
    assert ("from_numpy" in str(raised.value)) == (type(value).__module__ == "numpy")


def test_extra_files():
    files = ExtraFilesMap({"a.txt": "hi"})
    assert repr(files) == "ExtraFilesMap{a.txt: hi}"
    assert len(files) == 1
    assert "a.txt" in files
    assert list(files.items()) == [("a.txt", "hi")]
    files["b"] = "2"
    assert list(files) == ["a.txt", "b"]
    del files["a.txt"]
    assert dict(files) == {"b": "2"}
    assert not ExtraFilesMap()
    with pytest.raises(TypeError):
        files["c"] = 5
    with pytest.raises(KeyError):
        files["none"]


def test_deep_copies_share_what_was_shared():
    base = ramp(6)
    part = as_view(base._array[2:], base)
    memo = {}
    a, b = deepcopy(base, memo), deepcopy(part, memo)
    a._array[3] = 50
    assert b.tolist() == [2, 50, 4, 5]
    assert base.tolist() == [0, 1, 2, 3, 4, 5]
    assert deepcopy(base, memo) is a
    weight = Parameter(ramp(3))
    twin = copy.deepcopy(weight)
    assert type(twin) is Parameter
    assert twin.requires_grad
    twin._array[0] = 9
    assert weight.tolist() == [0, 1, 2]
    function, arguments = reduced(part)
    assert function is rebuilt
    restored = pickle.loads(pickle.dumps((reduced(base)[1][0], *arguments[:-1])))
    assert restored[0] is restored[1]
    assert rebuilt(*restored[1:]).tolist() == [2, 3, 4, 5]


class Marked(Tensor):
    pass


def test_subclasses_stay_what_they_are():
    marked = ramp(3)
    marked.__class__ = Marked
    for twin in (copy.deepcopy(marked), pickle.loads(pickle.dumps(marked))):
        assert type(twin) is Marked
        assert twin.tolist() == [0, 1, 2]
    weight = pickle.loads(pickle.dumps(Parameter(ramp(2), requires_grad=False)))
    assert type(weight) is Parameter
    assert not weight.requires_grad
    with pytest.raises(TypeError, match="class Marked cannot be saved"):
        save(marked, io.BytesIO())


def test_parameters():
    source = ramp(3)
    weight = Parameter(source)
    assert weight.requires_grad
    assert weight.is_leaf
    assert np.shares_memory(weight._array, source._array)
    assert repr(weight).startswith("Parameter containing:\n")
    assert Parameter().numel() == 0
    with pytest.raises(TypeError, match="not a list"):
        Parameter([1.0])
    with pytest.raises(RuntimeError):
        Parameter(wrap(np.arange(3)))


@pytest.mark.parametrize("kind", [dict, weft.ExtraFilesMap])
def test_extra_files_travel_beside_the_data(kind, tmp_path):
    torch = oracle("torch")
    path = tmp_path / "model.pt"
    texts = {"a.txt": "hi", "deep/b.json": '{"größe": 3}'}
    weft.save({"w": weft.ones(2)}, path, _extra_files=kind(texts))
    assert torch.load(path)["w"].tolist() == [1, 1]
    theirs = torch._C.PyTorchFileReader(str(path))
    assert {name: theirs.get_record(f"extra/{name}").decode() for name in texts} == texts
    files = kind({"deep/b.json": "", "a.txt": "old", "none": "old"})
    assert weft.load(path, _extra_files=files)["w"].tolist() == [1, 1]
    assert dict(files) == {**texts, "none": ""}
    assert weft.load(path)["w"].tolist() == [1, 1]


def test_extra_files_that_pytorch_wrote(tmp_path):
    torch = oracle("torch")
    path = tmp_path / "model.pt"
    torch.save([torch.ones(2)], path)
    again = tmp_path / "again.pt"
    reader, writer = torch._C.PyTorchFileReader(str(path)), torch._C.PyTorchFileWriter(str(again))
    for name in reader.get_all_records():
        if name not in ("version", "byteorder", ".data/serialization_id"):
            content = reader.get_record(name)
            writer.write_record(name, content, len(content))
    writer.write_record("extra/notes", b"of PyTorch", 10)
    writer.write_record("extra/bytes", b"\xff\xfe", 2)
    writer.write_end_of_file()
    files = weft.ExtraFilesMap({"notes": ""})
    assert weft.load(again, _extra_files=files)[0].tolist() == [1, 1]
    assert files["notes"] == "of PyTorch"
    with pytest.raises(weft.Error, match="is no text"):
        weft.load(again, _extra_files={"bytes": ""})


def test_what_extra_files_refuse():
    for wrong in (3, ["a"], {"a": 1}, {1: "a"}, {"a": None}):
        with pytest.raises(weft.Error) as raised:
            weft.save([1], io.BytesIO(), _extra_files=wrong)
        assert isinstance(raised.value, TypeError)
        with pytest.raises(TypeError):
            weft.load(io.BytesIO(), _extra_files=wrong)
    for wrong in (3, "ab", {"a": 1}):
        with pytest.raises(weft.Error):
            weft.ExtraFilesMap(wrong)
    files = weft.ExtraFilesMap({"a": "1"})
    for missing in ("b", 3):
        with pytest.raises(weft.Error) as raised:
            files[missing]
        assert isinstance(raised.value, KeyError)
    with pytest.raises(KeyError):
        del files["b"]
    assert files.get("b") is None
    old = io.BytesIO()
    with pytest.raises(ValueError, match="no place for extra files"):
        weft.save([1], old, _use_new_zipfile_serialization=False, _extra_files={"a": ""})
    weft.save([1], old, _use_new_zipfile_serialization=False)
    old.seek(0)
    with pytest.raises(weft.Error, match="has no extra files"):
        weft.load(old, _extra_files={"a": ""})
