"""load(mmap=True): what of a damaged file is an error, and what only reading it all would show."""

import io
import random
import struct
import zipfile

import numpy as np
import pytest

from weft.base.errors import Error
from weft.eager.archive.load import check, load
from weft.eager.archive.save import save
from weft.eager.archive.zip_read import ZipReader
from weft.eager.tensor.tensor import wrap

COUNT = 3000  # numbers of a tensor
TENSORS = ("data/0", "data/1")


@pytest.fixture
def path(tmp_path):
    """A file of two tensors."""
    made = tmp_path / "archive.pt"
    rng = np.random.default_rng(0)
    values = [wrap(rng.standard_normal(COUNT).astype(np.float32)) for _ in TENSORS]
    save({"a": values[0], "b": values[1], "step": 5}, made)
    return made


def payloads(data):
    """Where the tensors are in a file."""
    reader = ZipReader(io.BytesIO(data))
    starts = [reader.payload_offset(f"archive/{name}") for name in TENSORS]
    return [range(start, start + 4 * COUNT) for start in starts]


def loads(path, mmap=True):
    found = load(path, mmap=mmap)
    return [found["a"].numpy().tobytes(), found["b"].numpy().tobytes(), found["step"]]


def test_a_file_that_is_cut_off_is_an_error_when_it_is_opened(path):
    data = path.read_bytes()
    assert loads(path) == loads(path, False)
    for size in [0, 4, *random.Random(1).sample(range(len(data)), 60), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(Error):
            load(path, mmap=True)


@pytest.mark.parametrize(
    ("field", "form", "value", "message"),
    [
        (10, "<H", 8, "contradict each other"),
        (20, "<I", 4, "two sizes"),
        (20, "<I", 4 * COUNT + 40, "two sizes"),
        (20, "<I", 2**31, "overlap"),
        (24, "<I", 4 * COUNT - 4, "does not match"),
        (24, "<I", 2**31, "does not match"),
        (42, "<I", 1, "overlaps"),
        (42, "<I", 2**31, "overlaps"),
    ],
)
def test_a_directory_that_lies_about_a_tensor_is_an_error(path, field, form, value, message):
    data = bytearray(path.read_bytes())
    at = data.rindex(b"archive/data/1") - 46
    struct.pack_into(form, data, at + field, value)
    path.write_bytes(data)
    for mmap in (True, False):
        with pytest.raises(Error, match=message):
            load(path, mmap=mmap)


def test_two_sizes_that_lie_alike_are_an_error(path):
    """Larger than the tensor, so that it would reach into what comes after it."""
    data = bytearray(path.read_bytes())
    at = data.rindex(b"archive/data/0") - 46
    struct.pack_into("<II", data, at + 20, 4 * COUNT + 4, 4 * COUNT + 4)
    path.write_bytes(data)
    with pytest.raises(Error, match=r"overlaps|does not match"):
        load(path, mmap=True)


def test_a_header_that_names_another_record_is_an_error(path):
    data = bytearray(path.read_bytes())
    data[data.index(b"archive/data/1") + 13] = ord("7")
    path.write_bytes(data)
    with pytest.raises(Error, match="contradict each other"):
        load(path, mmap=True)


def test_flipped_bits_outside_of_tensors_are_seen(path):
    """Those that mean nothing to a reader aside: padding, times, a second length."""
    data = path.read_bytes()
    reader = ZipReader(io.BytesIO(data))
    start = reader.payload_offset("archive/data.pkl")
    size = reader.records["archive/data.pkl"].size
    for at in random.Random(2).sample(range(start, start + size), 40):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        with pytest.raises(Error):
            load(path, mmap=True)


def test_flipped_bits_inside_a_tensor_are_seen_only_where_all_of_it_is_read(path):
    data = path.read_bytes()
    intact = loads(path)
    for number, place in enumerate(payloads(data)):
        for at in random.Random(number).sample(place, 10):
            damaged = bytearray(data)
            damaged[at] ^= 0x10
            path.write_bytes(damaged)
            with pytest.raises(Error, match="is damaged"):
                load(path)
            found = loads(path)
            wanted = bytearray(intact[number])
            wanted[at - place.start] ^= 0x10
            assert found[number] == wanted
            assert found[1 - number] == intact[1 - number]


def test_what_is_packed_is_read_and_tested(path, tmp_path):
    packed = tmp_path / "packed.pt"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as to:
        for name in source.namelist():
            to.writestr(name, source.read(name))
    assert loads(packed) == loads(path)
    data = bytearray(packed.read_bytes())
    place = ZipReader(io.BytesIO(bytes(data))).payload_offset("archive/data/1")
    data[place + 2000] ^= 4
    packed.write_bytes(data)
    with pytest.raises(Error, match=r"damaged|smaller|larger"):
        load(packed, mmap=True)


def test_what_lies_between_elements_is_read_and_tested(path, tmp_path):
    """A record that starts where no float may cannot be looked at in place."""
    moved = tmp_path / "moved.pt"
    with zipfile.ZipFile(path) as source:
        root, names = "archive", source.namelist()
        for pad in range(1, 9):
            folder = root + "x" * pad
            with zipfile.ZipFile(moved, "w") as target:
                for name in names:
                    target.writestr(f"{root}{'x' * pad}/{name.partition('/')[2]}", source.read(name))
            folder = root + "x" * pad
            at = ZipReader(io.BytesIO(moved.read_bytes())).payload_offset(f"{folder}/data/0")
            if at % 4:
                break
    assert at % 4
    assert loads(moved) == loads(path)
    data = bytearray(moved.read_bytes())
    data[at + 8] ^= 1
    moved.write_bytes(data)
    with pytest.raises(Error, match="is damaged"):
        load(moved, mmap=True)


def test_damage_inside_tensors_is_found_when_it_is_looked_for(path):
    data = path.read_bytes()
    check(path)
    for place in (spot for payload in payloads(data) for spot in (payload[0], payload[COUNT], payload[-1])):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        load(path, mmap=True)
        with pytest.raises(Error, match="is damaged"):
            check(path)
