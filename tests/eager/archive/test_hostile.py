"""Files that lie, are cut off, or ask for code to run: each gives one error that says so, and none
is run, crashes, hangs or takes much memory."""

import io
import os
import pickle
import random
import struct
import zipfile
import zlib

import numpy as np
import pytest
from bounds import ends
from oracles import oracle

from weft.base.errors import Error
from weft.eager.archive.load import load
from weft.eager.archive.pickle_read import Unpickler
from weft.eager.archive.save import save
from weft.eager.archive.zip_read import ZipReader
from weft.eager.tensor.tensor import wrap


def archive(pkl, records=None, root="archive", method=zipfile.ZIP_STORED, **others):
    """A zip archive with that pickle and those storages."""
    file = io.BytesIO()
    entries = {"data.pkl": pkl, "version": b"3\n", "byteorder": b"little"}
    entries |= {f"data/{key}": content for key, content in (records or {}).items()}
    entries |= others
    with zipfile.ZipFile(file, "w", method) as target:
        for name, content in entries.items():
            if content is not None:
                target.writestr(f"{root}/{name}", content)
    file.seek(0)
    return file


def refused(file, message, error=Error):
    with pytest.raises(error, match=message) as raised:
        load(file)
    assert isinstance(raised.value, Error)


def text(value):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value):
    data = value.to_bytes(16, "little", signed=True)
    return b"\x8a\x10" + data


def storage(kind=b"FloatStorage", key="0", location="cpu", numel=6, first="storage"):
    parts = text(first) + b"ctorch\n" + kind + b"\n" + text(key) + text(location)
    return b"(" + parts + integer(numel) + b"tQ"


def tensor(offset=0, size=(2, 3), stride=(3, 1), grad=b"\x89", held=None, hooks=b"ccollections\nOrderedDict\n)R"):
    numbers = lambda values: b"(" + b"".join(map(integer, values)) + b"t"
    held = storage() if held is None else held
    arguments = held + integer(offset) + numbers(size) + numbers(stride) + grad + hooks
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def whole(body):
    return b"\x80\x02" + body + b"."


SIX = {"0": np.arange(6, dtype=np.float32).tobytes()}


def test_the_pieces_make_a_good_archive():
    assert load(archive(whole(tensor()), SIX)).tolist() == [[0, 1, 2], [3, 4, 5]]
    theirs = oracle("torch").load(archive(whole(tensor()), SIX))
    assert theirs.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (tensor(offset=1), "reaches out of its storage"),
        (tensor(size=(2, 4)), "reaches out of its storage"),
        (tensor(stride=(4, 1)), "reaches out of its storage"),
        (tensor(offset=-1), "offset of a tensor"),
        (tensor(size=(-2, -3)), "size of a tensor"),
        (tensor(stride=(-3, 1)), "stride of a tensor"),
        (tensor(size=(2**40, 2**40), stride=(0, 0)), "more elements than there are addresses"),
        (tensor(size=(2**62, 3), stride=(0, 0)), "more elements than there are addresses"),
        (tensor(size=(2**63, 3)), "size of a tensor"),
        (tensor(size=(2, 3, 1)), "3 sizes has 2 strides"),
        (tensor(size=(1,) * 70, stride=(1,) * 70), "70 sizes"),
        (tensor(grad=b"K\x01"), "requires_grad of a tensor is a int"),
        (tensor(hooks=b"}"), "backward hooks"),
        (tensor(held=b"N"), "needs a storage, not a NoneType"),
        (tensor(held=storage(numel=5)), r"record size \(24 bytes\) does not match .*\(20 bytes"),
        (tensor(held=storage(numel=-6)), "a storage of -6 elements"),
        (tensor(held=storage(numel=2**70)), "a storage of"),
        (tensor(held=storage(key="7")), "failed locating file data/7: file not found"),
        (tensor(held=storage(key="../version")), "failed locating file"),
        (tensor(held=storage(location="cuda:0")), "deserialize object on a CUDA device"),
        (tensor(held=storage(location="mps")), "a storage at location 'mps'"),
        (tensor(held=storage(first="module")), "must be a tuple that starts with 'storage'"),
        (tensor(held=storage(kind=b"float32")), "the class of a storage is a dtype"),
        (tensor(held=storage(kind=b"Size")), "function|class"),
        (tensor(held=b"K\x05Q"), "must be a tuple that starts with 'storage'"),
        (tensor(held=b")Q"), "must be a tuple that starts with 'storage'"),
        (b"(" + tensor() + tensor(held=storage(kind=b"IntStorage")) + b"t", "in two ways"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R", "wrong arguments"),
        (b"ctorch._utils\n_rebuild_tensor_v2\nNR", "arguments are no tuple"),
        (b"ctorch._utils\n_rebuild_sparse_tensor\n)R", "the file holds a sparse tensor"),
        (b"ctorch\nfloat8_e4m3fn\n", r"elements of torch\.float8_e4m3fn"),
        (b"ctorch\ncomplex32\n", r"elements of torch\.complex32"),
        (b"ctorch\nSize\n(" + text("a") + b"tR", "made from a tuple"),
        (b"ctorch\ndevice\n" + text("nowhere") + b"\x85R", "device type at start"),
        (b"c__builtin__\ncomplex\n" + text("1e9") + b"\x85R", "wrong arguments"),
        (b"c_codecs\nencode\n" + text("a") + text("rot13") + b"\x86R", "encoded in an unknown way"),
        (b"c__builtin__\nset\n]\x85R]\x85a", "append"),
        (b"c__builtin__\nset\n](]e\x85R", "cannot be a key"),
    ],
)
def test_wrong_content(body, message):
    refused(archive(whole(body), SIX), message)


@pytest.mark.parametrize(
    "name",
    [
        "os system",
        "posix system",
        "nt system",
        "sys exit",
        "builtins eval",
        "__builtin__ eval",
        "builtins getattr",
        "builtins exec",
        "subprocess Popen",
        "torch load",
        "torch.serialization load",
        "torch._utils _import_dotted_name",
        "weft.eager.archive.load load",
        "collections defaultdict",
        "numpy ndarray",
        "os.path join",
        "functools partial",
        "copyreg _reconstructor",
    ],
)
def test_names_that_are_not_data(name, tmp_path):
    module, attribute = name.split()
    canary = tmp_path / "canary"
    call = f"c{module}\n{attribute}\n".encode() + text(f"touch {canary}") + b"\x85R"
    for body in (call, f"c{module}\n{attribute}\n".encode(), b"]" + call + b"a"):
        refused(archive(whole(body)), r"Unsupported global|is blocked|unsupported", pickle.UnpicklingError)
    stacked = text(module) + text(attribute) + b"\x93)R"
    refused(archive(b"\x80\x04" + stacked + b"."), "Unsupported global|is blocked")
    assert not canary.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"cos\nsystem\n.",
        b"(ios\nsystem\n",
        b"(cos\nsystem\no",
        b"\x82\x01",
        b"P0\n",
        b"I5\n",
        b"S'a'\n",
        b"\x97",
        b"\x92",
        bytes([200]),
    ],
)
def test_operations_that_are_not_data(body):
    refused(archive(whole(body)), "Unsupported|blocked")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "takes a value where there is none"),
        (b"K\x01K\x02", "left over"),
        (b"(", "a mark"),
        (b"t", "looks for a mark"),
        (b"h\x05", "recalls memo 5"),
        (b"q\x00", "uses a value"),
        (b"]K\x01b", "Can only build"),
        (b"}K\x01K\x02K\x03u", "looks for a mark"),
        (b"}(K\x01K\x02K\x03u", "a key has no value"),
        (b"}]K\x01s", "cannot be a key"),
        (b"K\x01K\x02a", "Can only append to lists"),
        (b"]K\x01K\x02s", "Can only set items of dicts"),
        (b"ccollections\nOrderedDict\n)RK\x01b", "attributes"),
        (b"ccollections\nOrderedDict\n", "used as a value"),
        (b"]ccollections\nOrderedDict\na", "used as a value"),
        (b"ccollections\nOrderedDict\n\x85", "tuple of functions"),
        (b"X\xff\xff\xff\xff", "bytes are asked for"),
        (b"\x8b\xff\xff\xff\x7f", "bytes are asked for"),
        (b"X\x01\x00\x00\x00\xff", "no UTF-8"),
        (b"U\x01\xff", "cannot be decoded"),
        (b"c" + b"a" * 5000, "line does not end"),
        (b"\x80\x09", "unsupported pickle protocol: 9"),
        (b"K\x01K\x02\x81", "Trying to make an object with a int"),
        (b"ccollections\nOrderedDict\n)\x81", "Trying to make an object with collections"),
    ],
)
def test_broken_pickles(body, message):
    refused(archive(whole(body)), message)


def test_a_key_that_takes_forever_to_hash():
    body = b")" + b"q\x00h\x00\x86" * 60
    with ends():
        refused(archive(whole(b"}" + body + b"Ns")), "too many values")
        refused(archive(whole(b"c__builtin__\nset\n](" + body + b"e\x85R")), "too many values")


def test_keys_of_equal_hash():
    """Multiples of 2**61 - 1 all hash to 0, so that a dict of them takes quadratic time."""
    numbers = ((2**61 - 1) << 20 | 1) * np.arange(1, 3, dtype=object)
    items = b"".join(integer(int(number)) + b"N" for number in numbers)
    refused(archive(whole(b"}(" + items + b"u")), "a number of more than 64 bits")
    assert load(archive(whole(b"}(" + integer(2**63) + b"Nu"))) == {2**63: None}


def deep_tuple(depth):
    return b")" + b"\x85" * depth


@pytest.mark.parametrize(
    "body",
    [
        tensor(held=storage()).replace(integer(0), deep_tuple(100_000), 1),
        b"ctorch\nSize\n" + deep_tuple(100_000) + b"\x85R",
        b"(" + text("storage") + deep_tuple(100_000) + b"NNNtQ",
        b"ctorch.serialization\n_get_layout\n" + deep_tuple(100_000) + b"\x85R",
        b"ctorch\ndevice\n" + deep_tuple(100_000) + b"\x85R",
        b"c__builtin__\nset\n" + deep_tuple(100_000) + b"\x85\x85R",
        b"}" + deep_tuple(100_000) + b"Ns",
        b"\x8b" + struct.pack("<I", 10_000) + b"\x7f" * 10_000 + b"Q",
        b"("
        + text("storage")
        + b"ctorch\nFloatStorage\n"
        + text("0")
        + text("cpu")
        + b"\x8b"
        + struct.pack("<I", 10_000)
        + b"\x7f" * 10_000
        + b"tQ",
        b"ctorch\nSize\n\x8b" + struct.pack("<I", 10_000) + b"\x7f" * 10_000 + b"\x85\x85R",
        b"ctorch\ndevice\n" + text("cpu") + b"\x8b" + struct.pack("<I", 10_000) + b"\x7f" * 10_000 + b"\x86R",
        b"(" + tensor() + b"NNNNtQ",
        b"(" + text("storage") + tensor() + text("0") + text("cpu") + b"K\x06tQ",
        b"c_codecs\nencode\n" + text("a") + tensor() + b"\x86R",
        b"}" + tensor() + b"Ns" + tensor() + b"Ns" + b"K\x01a",
    ],
)
def test_values_that_are_hard_to_show_or_compare(body):
    with pytest.raises(Error) as raised:
        load(archive(whole(body), SIX))
    assert len(str(raised.value)) < 1000


def test_a_pickle_that_is_packed_small():
    bomb = b"\x80\x02" + b"]" * 40_000_000
    file = archive(bomb, method=zipfile.ZIP_DEFLATED)
    with ends():
        refused(file, r"data\.pkl unpacks to 40000002 bytes")


RECORDS = [
    ({"version": None}, "failed locating file version"),
    ({"version": b"0\n"}, "minimum supported version for reading is 1"),
    ({"version": b"11\n"}, "maximum supported version for reading is 10"),
    ({"version": b"x"}, "is no number"),
    ({"version": b""}, "is no number"),
    ({"version": b"9" * 50}, "is no number"),
    ({"byteorder": b"middle"}, "Unknown endianness type: middle"),
    ({"data.pkl": None}, r"failed locating file data\.pkl"),
    ({"constants.pkl": b""}, "a TorchScript archive"),
    ({"data.pkl": whole(b"N") + b"x"}, "bytes after its end"),
]


@pytest.mark.parametrize(("changes", "message"), RECORDS)
def test_records(changes, message):
    entries = {"pkl": whole(b"N"), **changes}
    entries["pkl"] = entries.pop("data.pkl", entries["pkl"])
    refused(archive(**entries), message)


@pytest.mark.parametrize("version", range(1, 11))
def test_versions_that_are_read(version):
    assert load(archive(whole(b"N"), version=f"{version}\n".encode(), byteorder=None)) is None


def flat(names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as target:
        for name in names:
            target.writestr(zipfile.ZipInfo(name), b"3\n")
    file.seek(0)
    return file


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["data.pkl", "version"], r"not in a subdirectory: data\.pkl"),
        (["a/version", "b/data.pkl"], "not in the folder 'a'"),
        (["a/version", "a/data.pkl", "a/version"], "in the archive twice"),
        (["a/version", "/etc/passwd"], "not a plain relative path|is not allowed"),
        (["a/version", "a/../../x"], "not a plain relative path"),
        (["a/version", "a//x"], "not a plain relative path"),
        (["a/version", "./a"], "not a plain relative path"),
        (["a/version", "C:/x"], "is not allowed"),
        (["a/version", "a\\x"], "is not allowed"),
        ([], "Unsupported|damaged|no records"),
    ],
)
def test_names(names, message):
    refused(flat(names), message)


def good():
    file = io.BytesIO()
    save({"a": wrap(np.arange(100, dtype=np.float32)), "b": [1, "two"]}, file)
    return file.getvalue()


def test_cut_off_files():
    data = good()
    for size in [0, 1, 3, 4, 30, 100, len(data) // 2, len(data) - 22, len(data) - 1]:
        with pytest.raises(Error):
            load(io.BytesIO(data[:size]))
    with pytest.raises(Error, match=r"bytes after its end|not where"):
        load(io.BytesIO(data + b"x"))
    with pytest.raises(Error):
        load(io.BytesIO(b"PK\3\4" + data))


def test_every_flipped_bit_of_a_payload_is_seen():
    data = bytearray(good())
    reader = ZipReader(io.BytesIO(bytes(data)))
    start = reader.payload_offset("archive/data/0")
    for _ in range(50):
        at, bit = start + random.randrange(400), 1 << random.randrange(8)
        data[at] ^= bit
        with pytest.raises(Error, match="is damaged"):
            load(io.BytesIO(bytes(data)))
        data[at] ^= bit


def directory_patched(field, form, value, name=b"archive/data/0"):
    """An archive whose directory says something else about one record."""
    data = bytearray(good())
    at = data.rindex(name) - 46
    struct.pack_into(form, data, at + field, value)
    return io.BytesIO(bytes(data))


@pytest.mark.parametrize(
    ("field", "form", "value", "message"),
    [
        (8, "<H", 1, "encrypted"),
        (10, "<H", 12, "packed by method 12"),
        (10, "<H", 8, "contradict each other"),
        (16, "<I", 1, "is damaged"),
        (20, "<I", 4, "two sizes"),
        (24, "<I", 2**31, "does not match"),
        (20, "<I", 2**31, "overlap"),
        (24, "<I", 0xFFFFFFFF, "zip64"),
        (42, "<I", 1, "overlaps"),
        (42, "<I", 2**31, "overlaps"),
        (28, "<H", 60000, "damaged|cut off"),
        (30, "<H", 60000, "damaged|cut off"),
        (0, "<I", 0, "damaged"),
    ],
)
def test_lying_directories(field, form, value, message):
    refused(directory_patched(field, form, value), message)


def test_lying_end_records():
    data = bytearray(good())
    end = len(data) - 22
    for field, form, values in [
        (8, "<H", [0, 3, 200, 65535]),
        (10, "<H", [0, 3, 200, 65535]),
        (12, "<I", [0, 2**31, 0xFFFFFFFF]),
        (16, "<I", [0, 2**31, 0xFFFFFFFF]),
        (4, "<H", [1]),
        (20, "<H", [5]),
    ]:
        for value in values:
            patched = bytearray(data)
            struct.pack_into(form, patched, end + field, value)
            with pytest.raises(Error):
                load(io.BytesIO(bytes(patched)))


def test_zip_bombs():
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = bomb.compress(bytes(10**7)) + bomb.flush()
    file = archive(whole(tensor(held=storage(numel=10))), {"0": packed})
    data = bytearray(file.getvalue())
    at = data.rindex(b"archive/data/0") - 46
    local = struct.unpack_from("<I", data, at + 42)[0]
    for place in (at + 10, local + 8):
        struct.pack_into("<H", data, place, 8)
    for claimed, message in [
        (40, "larger than it says"),
        (10**8, "deflate cannot|does not match"),
        (4 * 10**9, "zip bomb"),
    ]:
        struct.pack_into("<I", data, at + 24, claimed)
        refused(io.BytesIO(bytes(data)), message)


def test_overlapping_records():
    """Many names for the same bytes."""
    data = bytearray(good())
    first = data.index(b"PK\1\2")
    size = 46 + struct.unpack_from("<H", data, first + 28)[0]
    entry = bytes(data[first : first + size])
    other = entry.replace(b"archive/data.pkl", b"archive/dati.pkl")
    end = len(data) - 22
    count, length = (struct.unpack_from("<H", data, end + 10)[0], struct.unpack_from("<I", data, end + 12)[0])
    struct.pack_into("<HHI", data, end + 8, count + 1, count + 1, length + size)
    data[end:end] = other
    refused(io.BytesIO(bytes(data)), "overlaps the one before it")


def legacy(value=None, keys=None, tail=b""):
    heads = [0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True}]
    data = b"".join(pickle.dumps(head, 2) for head in heads)
    return io.BytesIO(data + (value or whole(b"N")) + pickle.dumps(keys or [], 2) + tail)


def old_storage(**changes):
    return storage(**changes).replace(b"tQ", b"NtQ")


def test_old_archives_that_lie():
    held = old_storage(numel=2)
    body = whole(tensor(size=(2,), stride=(1,), held=held))
    tail = struct.pack("<q2f", 2, 1.5, 2.5)
    assert load(legacy(body, ["0"], tail)).tolist() == [1.5, 2.5]
    refused(legacy(body, ["0"], tail[:-1]), "too early")
    refused(legacy(body, ["0"], struct.pack("<q2f", 3, 1, 2)), "has 3 elements, not 2")
    refused(legacy(body, [], tail), "does not fit the object")
    refused(legacy(body, ["0", "0"], tail), "does not fit the object")
    refused(legacy(body, ["1"], tail), "does not fit the object")
    refused(legacy(whole(tensor(held=old_storage(numel=2**40))), ["0"]), "a storage of")
    refused(legacy(whole(tensor(held=storage()))), "named by 5 values, not 6")
    refused(io.BytesIO(pickle.dumps(5, 2)), "Invalid magic number")
    refused(io.BytesIO(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(7, 2)), "protocol")
    big = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": False}]
    refused(io.BytesIO(b"".join(pickle.dumps(head, 2) for head in big)), "other byte order")
    part = storage(numel=2).replace(b"tQ", text("v") + integer(1) + integer(5) + b"\x87tQ")
    refused(legacy(whole(tensor(size=(1,), stride=(1,), held=part)), ["0"], tail), "elements 1 to 6")
    inside = storage(numel=2).replace(b"tQ", text("v") + integer(1) + integer(1) + b"\x87tQ")
    found = load(legacy(whole(tensor(size=(1,), stride=(1,), held=inside)), ["0"], tail))
    assert found.tolist() == [2.5]


def test_what_is_no_archive(tmp_path):
    for content in (b"", b"abc", b"\x80\x02", bytes(1000), b"PK\5\6" + bytes(18), np.random.default_rng(0).bytes(5000)):
        with pytest.raises(Error):
            load(io.BytesIO(content))
    tar = bytes(257) + b"ustar" + bytes(250)
    refused(io.BytesIO(tar), "tar format")
    for wrong in (5, None, object(), io.StringIO("PK")):
        with pytest.raises((AttributeError, TypeError)):
            load(wrong)
        if not isinstance(wrong, io.StringIO):
            with pytest.raises(AttributeError, match="expected 'f' to be string, path"):
                save(1, wrong)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")


def test_a_pickle_alone_runs_nothing():
    class Evil:
        def __reduce__(self):
            return (os.system, ("echo pwned",))

    with pytest.raises(pickle.UnpicklingError):
        Unpickler(pickle.dumps(Evil(), 2), None, None).load()
