"""A fuzzer of the archive readers: mutates good files, keeps those that reach new lines, reports
every exception that is no error of weft. `python archive_fuzz.py SECONDS [SEED]` runs it alone."""

import io
import random
import struct
import sys
import tempfile
import time
import zipfile
from collections import OrderedDict

import numpy as np

from weft.base.errors import Error
from weft.eager.archive.load import load
from weft.eager.archive.safetensors import load_safetensors, save_safetensors
from weft.eager.archive.save import save
from weft.eager.tensor.parameter import Parameter
from weft.eager.tensor.tensor import Tensor, as_view, wrap
from weft.eager.tensor.types import bfloat16, device, float32

_INTERESTING = [0, 1, 2, 127, 128, 255, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1]
_TOKENS = [b"R", b"b", b"Q", b"t", b"u", b"e", b"a", b"s", b"\x81", b"\x93", b"(", b")", b"]", b"}"]
_TOKENS += [b"0", b"1", b"2", b"N", b"\x85", b"\x86", b"\x87", b"h\x00", b"h\x01", b"q\x00", b"."]
_TOKENS += [b"ctorch\nSize\n", b"ctorch\nTensor\n", b"ccollections\nOrderedDict\n", b"K\xff"]
_TOKENS += [b"c__builtin__\nset\n", b"c_codecs\nencode\n", b"ctorch\nFloatStorage\n"]
_TOKENS += [b"ctorch._utils\n_rebuild_parameter\n", b"ctorch._tensor\n_rebuild_from_type_v2\n"]
_TOKENS += [b"\x8a\x08" + bytes([255] * 7 + [127]), b"\x8a\x01\xff", b"G" + bytes(8)]


def seeds():
    """One good file of every format: (kind, bytes)."""
    base = wrap(np.arange(12, dtype=np.float32).reshape(3, 4))
    value = {
        "base": base,
        "view": as_view(base._array[1:, ::2], base),
        "weight": Parameter(wrap(np.ones(3))),
        "wide": wrap(np.arange(3, dtype=np.uint16)),
        "flags": wrap(np.array([True, False])),
        "half": wrap(np.ones(2, bfloat16.numpy)),
        "order": OrderedDict(a=1, b=(2, 3.5, "x", None, True)),
        "more": [b"bytes", bytearray(b"z"), 1j, {1, "a"}, -(2**70), float32, device("cpu"), base.shape],
    }
    file, old, packed, tensors = (io.BytesIO() for _ in range(4))
    save(value, file)
    save({k: v for k, v in value.items() if k != "wide"}, old, _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(packed, "w", 8) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    save_safetensors({"a": base, "b": value["wide"]}, tensors, {"k": "v"})
    good = file.getvalue()
    return [
        ("zip", good),
        ("pickle", zipfile.ZipFile(file).read("archive/data.pkl")),
        ("zip", packed.getvalue()),
        ("legacy", old.getvalue()),
        ("safetensors", tensors.getvalue()),
    ], good


def mutated(rng, data, others):
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = rng.choice([0, 1, 255, 128, rng.randrange(256)])
        elif kind == 2:
            form = rng.choice(["<H", "<I", "<Q"])
            number = rng.choice(_INTERESTING) % 2 ** (8 * struct.calcsize(form))
            if at + struct.calcsize(form) <= len(data):
                struct.pack_into(form, data, at, number)
        elif kind == 3:
            del data[at : at + rng.choice([1, 2, 8, 64])]
        elif kind == 4:
            data[at:at] = data[rng.randrange(len(data) + 1) :][: rng.randrange(1, 64)]
        elif kind == 5:
            data[at:at] = rng.choice(_TOKENS)
        elif kind == 6:
            token = rng.choice(_TOKENS)
            data[at : at + len(token)] = token
        else:
            other = rng.choice(others)
            data[at : at + 32] = other[rng.randrange(len(other) + 1) :][:32]
        if not data:
            return b"\0"
    return bytes(data)


def with_pickle(pkl, good):
    """The good archive with another pickle, under a checksum that fits."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as source, zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            target.writestr(name, pkl if name.endswith("data.pkl") else source.read(name))
    return made.getvalue()


def look_at(value):
    """Reads every element of every tensor in a value."""
    left, seen = [value], set()
    while left and len(seen) < 10_000:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor) and item.numel() < 10**6:
            item._array.tobytes()
            repr(item.dtype), item.untyped_storage().tolist()
        elif isinstance(item, dict):
            left += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set)):
            left += item


def run_one(kind, data, good):
    """Reads one file; every exception that is no error of weft passes through."""
    if kind == "safetensors":
        is_read(lambda: load_safetensors(data))
        return
    file = with_pickle(data, good) if kind == "pickle" else data
    whole = is_read(lambda: load(io.BytesIO(file)))
    if kind != "legacy":
        with tempfile.NamedTemporaryFile() as held:
            held.write(file)
            held.flush()
            mapped = is_read(lambda: load(held.name, mmap=True))
        assert mapped or not whole, "a good file cannot be mapped"


def is_read(reading):
    """Whether a file is read, and not refused by an error of weft."""
    try:
        look_at(reading())
    except Error:
        return False
    return True


def fuzz(seconds=None, count=None, seed=0, trace=False):
    """Runs for a time or a number of files; gives how many ran and how large the corpus became."""
    rng = random.Random(seed)
    corpus, good = seeds()
    lines, new = set(), [0]

    def local(frame, event, _):
        place = (frame.f_code.co_filename, frame.f_lineno, frame.f_back.f_lineno)
        if place not in lines:
            lines.add(place)
            new[0] += 1
        return local

    def tracer(frame, event, _):
        return local if "/archive/" in frame.f_code.co_filename else None

    start, done, watching = time.monotonic(), 0, sys.gettrace()  # such as what measures coverage
    while (done < count) if count else (time.monotonic() - start < seconds):
        kind, data = corpus[rng.randrange(len(corpus))]
        data = mutated(rng, data, [other for _, other in corpus[:20]])
        new[0] = 0
        if trace:
            sys.settrace(tracer)
        try:
            run_one(kind, data, good)
        except BaseException as error:
            error.add_note(f"{kind} file: {data!r}")
            raise
        finally:
            sys.settrace(watching)
        if new[0] and len(data) < 20_000:
            corpus.append((kind, data))
        done += 1
    return done, len(corpus)


if __name__ == "__main__":
    print(fuzz(float(sys.argv[1]), seed=int(sys.argv[2]) if len(sys.argv) > 2 else 0, trace=True))
