"""Programs as files: one zip of stored members, a table of contents with checksums, no pickle.

program.json   plan, inputs, outputs, target, report
objects/N      machine code
constants/N    raw bytes, from a cache line of the file on: who has the file in memory need not copy them
"""

from __future__ import annotations

import io
import json
import os
import struct
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..base.device import Device
from ..base.dtype import as_dtype, dtype_name
from ..base.errors import Error, FormatError, InvalidType, InvalidValue, NotFound, Unsupported
from ..base.ndarray import ALIGNMENT, empty
from ..base.plan import At, BufferRef, ExecPlan, HostStep, KernelStep, Launch, Number, OpenWork, Slot, Step, TensorMap
from ..base.shown import as_html
from ..base.sizes import read_table
from .bound import BoundStep
from .digests import digests
from .inputs import as_input, by_name, check_names
from .loading import check_target, load_executor, profiled
from .profile import PROFILE_ROUNDS, Profile
from .program import Array, KernelInfo, Program, TensorSpec, check_slots, described
from .report import Report, report_of

FORMAT = "weft-program"
VERSION = 7


def save_program(program: Program, path: str | os.PathLike[str]) -> None:
    """Writes a program; the file appears whole or not at all."""
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidType(f"a program is saved to a path, not to a {type(path).__name__}")
    target = Path(path)
    if target.is_dir() or not target.parent.is_dir():
        raise InvalidValue(
            f"cannot write to {target}",
            why="it is a folder" if target.is_dir() else f"there is no folder {target.parent}",
        )
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write_program(program, file)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def write_program(program: Program, file: BinaryIO, note: Any = None) -> None:
    """What a file of a program holds; with it a note, of what JSON has."""
    members: dict[str, Any] = {f"objects/{number}": code for number, code in enumerate(program.objects)}
    for number, array in enumerate(program.constants):
        members[f"constants/{number}"] = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    contents = _contents(program) | {"note": note}
    contents["checksums"] = dict(zip(members, digests(list(members.values()))))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("program.json", json.dumps(contents))
        for name, data in members.items():
            with archive.open(_at_line(name, file.tell()), "w", force_zip64=True) as member:
                member.write(data)


_HEAD, _PADDING = 30, 0xD935  # bytes before a member's name; the field that others align members with, too
_ZIP64_FIELD = 20  # bytes that zipfile puts before the others


def _at_line(name: str, start: int) -> zipfile.ZipInfo:
    """A member whose content begins at a cache line of the file."""
    info = zipfile.ZipInfo(name)
    missing = -(start + _HEAD + len(name) + _ZIP64_FIELD + 4) % ALIGNMENT
    info.extra = struct.pack("<HH", _PADDING, missing) + bytes(missing)
    return info


def load(path: str | os.PathLike[str], threads: int | None = None) -> LoadedModel:
    """A model that `CompiledModel.save` wrote, ready to run on this machine.

    The file holds machine code: load only what you would run.
    """
    return LoadedModel(load_program(path), threads)


def load_program(path: str | os.PathLike[str]) -> Program:
    """Reads and checks a program."""
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidType(f"a program is loaded from a path, not from a {type(path).__name__}")
    try:
        with open(path, "rb") as file:
            memory = empty((os.path.getsize(path),), "uint8").numpy()
            return program_of(memory.data[: file.readinto(memory.data)])
    except (FileNotFoundError, IsADirectoryError):
        raise NotFound(f"there is no file {os.fspath(path)}") from None
    except OSError as error:
        raise FormatError("the file cannot be read", where=str(path), why=str(error)) from None
    except Error as error:
        error.at(os.fspath(path))
        raise


def program_bytes(program: Program) -> bytes:
    """What a file of a program holds."""
    file = io.BytesIO()
    write_program(program, file)
    return file.getvalue()


def program_of(data: bytes | memoryview) -> Program:
    """Reads and checks what `write_program` wrote. Constants are views of the memory, where that can be written to."""
    return noted_program(data)[0]


def noted_program(data: bytes | memoryview) -> tuple[Program, Any]:
    """The same, with the note."""
    view = memoryview(data)
    try:
        with zipfile.ZipFile(_Bytes(view)) as archive:
            return _read(archive, view)
    except Error:
        raise
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
        raise _no_program(error) from None
    except (RuntimeError, struct.error) as error:  # an encrypted member; a damaged directory
        raise _no_program(error) from None


class _Bytes(io.RawIOBase):
    """Memory as a file; what is read is copied, nothing else."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._data)}[whence]
        if self._at < 0:
            raise ValueError("a place before the file")
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        found = self._data[self._at : self._at + len(buffer)]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


def _no_program(error: Exception) -> FormatError:
    return FormatError(
        "this is no program of weft",
        why=str(error),
        hint="weft.runtime.load reads what CompiledModel.save wrote; weft.compile reads models",
    )


class LoadedModel:
    """A program from a file: `run`, `inputs`, `outputs`. May be called from many threads. If sizes of it are open, it
    runs all that it was compiled for."""

    def __init__(self, program: Program, threads: int | None = None) -> None:
        self.program = program
        self.inputs = list(program.inputs)
        self.outputs = [spec.name for spec in program.outputs]
        self._threads = threads
        self._executor = load_executor(program, threads)

    def run(self, inputs: Mapping[str, Any], out: Any = None) -> list[Any]:
        """The outputs for one array an input by name. They are new arrays, or those of `out`: arrays in the order of
        the outputs, or by name, with None for one that is to be made."""
        return self._executor.run(inputs, out)

    def bind(self, inputs: Mapping[str, Any] | None = None, out: Any = None) -> BoundStep:
        """A step that reads these arrays in each call and writes those of `out`, without a copy; arrays that are not
        given are made. See `CompiledModel.bind`."""
        return self._executor.bind(inputs, out)

    def __call__(self, *args: Any, **kwargs: Any) -> list[Array]:
        """Runs on arrays given in the order of `inputs`, or by name."""
        return self.run(by_name(self.inputs, args, kwargs))

    def profile(self, *args: Any, rounds: int = PROFILE_ROUNDS, **kwargs: Any) -> Profile:
        """How long each kernel takes on these inputs. See `CompiledModel.profile`."""
        inputs = by_name(self.inputs, args, kwargs)
        check_names(inputs, {spec.name: spec for spec in self.inputs})
        arrays = {spec.name: as_input(inputs[spec.name], spec) for spec in self.inputs}
        return profiled(self._executor, arrays, rounds)

    def report(self) -> Report:
        """What was compiled: kernels, host steps, times; memory at the sizes that were run last."""
        return report_of([self._executor.latest])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the program as one file."""
        save_program(self.program, path)

    def __repr__(self) -> str:
        return f"LoadedModel({described(self.program)})"

    def _repr_html_(self) -> str:
        return as_html(f"{self!r}\n\n{self.report()}")

    def __getstate__(self) -> tuple[bytes, int | None]:
        """What pickle keeps: the bytes of the file, and nothing that loading would call."""
        return program_bytes(self.program), self._threads

    def __setstate__(self, state: tuple[bytes, int | None]) -> None:
        data, threads = state
        LoadedModel.__init__(self, program_of(data), threads)

    def __copy__(self) -> LoadedModel:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> LoadedModel:
        """A loaded model never changes, so copies are the model itself."""
        return self


def _contents(program: Program) -> dict[str, Any]:
    plan = program.plan
    return {
        "format": FORMAT,
        "version": VERSION,
        "target": program.target,
        "sizes": None if plan.sizes is None else [plan.sizes.rows, plan.sizes.guards],
        "open_sizes": program.open_sizes,
        "arena_bytes": plan.arena_bytes,
        "runs": plan.runs,
        "slots": [[s.role, s.size, s.offset, s.name, s.device.type, s.device.index] for s in plan.slots],
        "steps": [_step_row(step) for step in plan.steps],
        "objects": len(program.objects),
        "inputs": [_spec_row(spec) for spec in program.inputs],
        "outputs": [_spec_row(spec) for spec in program.outputs],
        "constants": [[list(a.shape), dtype_name(a.dtype)] for a in program.constants],
        "kernels": [list(kernel) for kernel in program.kernels],
        "facts": program.facts,
        "written": list(program.written),
    }


def _step_row(step: Step) -> list[Any]:
    refs = [list(ref) for ref in step.buffers]
    if isinstance(step, HostStep):
        return ["host", step.function, refs, dict(step.attrs)]
    return ["kernel", step.kernel, refs, list(step.scalars), step.launch, step.work, step.maps]


def _spec_row(spec: TensorSpec) -> list[Any]:
    return [spec.name, list(spec.shape), dtype_name(spec.dtype)]


def _read(archive: zipfile.ZipFile, data: memoryview) -> tuple[Program, Any]:
    members = archive.infolist()
    if "program.json" not in {member.filename for member in members}:
        raise FormatError("this is no program of weft", why="it has no program.json")
    stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
    if not stored or sum(member.file_size for member in members) > len(data):
        raise FormatError("this is no program of weft", why="its members are larger than the file")
    try:
        contents = json.loads(archive.read("program.json"))
        if contents["format"] != FORMAT or contents["version"] != VERSION:
            raise FormatError(
                f"format {contents['format']!r} {contents['version']!r}", why=f"this weft reads {FORMAT} {VERSION}"
            )
        check_target(contents["target"])
        return _program(dict(_views(members, data)), contents), contents["note"]
    except (FormatError, Unsupported):
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, Error) as error:
        why = error.what if isinstance(error, Error) else f"{type(error).__name__}: {error}"
        raise FormatError("program.json is damaged", why=why) from None


def _views(members: list[zipfile.ZipInfo], data: memoryview) -> Iterator[tuple[str, memoryview]]:
    """The content of each member. What stands before it tells its length there, which may be another than in the
    directory."""
    for member in members:
        names = struct.unpack_from("<HH", data, member.header_offset + _HEAD - 4)
        start = member.header_offset + _HEAD + sum(names)
        if start + member.file_size > len(data):
            raise FormatError(f"member {member.filename} is damaged", why="it ends behind the file")
        yield member.filename, data[start : start + member.file_size]


def _program(members: Mapping[str, memoryview], contents: dict[str, Any]) -> Program:
    checksums = contents["checksums"]
    checked = {name: members[name] for name in checksums}
    for name, digest in zip(checked, digests(list(checked.values()))):
        if digest != checksums[name]:
            raise FormatError(f"member {name} is damaged", why="its checksum is wrong")
    open_sizes = tuple((int(number), int(axis)) for number, axis in contents["open_sizes"])
    slots = tuple(
        Slot(role, _number(size), _number(offset), name, Device(*at))
        for role, size, offset, name, *at in contents["slots"]
    )
    rows, guards = contents["sizes"] or (None, None)
    sizes = None if rows is None else read_table(rows, guards, len(open_sizes))
    runs = int(contents.get("runs", 1))
    plan = ExecPlan(tuple(map(_step, contents["steps"])), slots, _number(contents["arena_bytes"]), sizes, runs)
    constants = []
    for number, (shape, dtype) in enumerate(contents["constants"]):
        raw = np.frombuffer(checked[f"constants/{number}"], as_dtype(dtype))
        constants.append(raw.reshape([int(dim) for dim in shape]))
    program = Program(
        plan,
        tuple(bytes(checked[f"objects/{number}"]) for number in range(contents["objects"])),
        tuple(_spec(row) for row in contents["inputs"]),
        tuple(_spec(row) for row in contents["outputs"]),
        tuple(constants),
        contents["target"],
        tuple(KernelInfo(a, b, tuple(c), tuple(d), e) for a, b, c, d, e in contents["kernels"]),
        dict(contents["facts"]),
        tuple(map(str, contents["written"])),
        open_sizes,
    )
    if not plan.is_open:
        check_slots(program)
    return program


def _number(value: Any) -> Number:
    """A number, or a list: the row of the table of sizes where it stands, and its name."""
    if type(value) is int:
        return value
    if type(value) is list and [type(item) for item in value] == [int, str]:
        return At(*value)
    raise FormatError(f"{value!r:.60} is no number of a plan")


def _step(row: list[Any]) -> Step:
    refs = tuple(BufferRef(int(slot), _number(offset)) for slot, offset in row[2])
    if row[0] == "host":
        return HostStep(str(row[1]), refs, _host_attrs(row[3]))
    (x, y, z), (a, b, c), shared, cluster, dependent = row[4]
    blocks = (_number(x), _number(y), _number(z))
    launch = Launch(blocks, (int(a), int(b), int(c)), int(shared), int(cluster), bool(dependent))
    maps = tuple(map(_tensor_map, row[6]))
    return KernelStep(str(row[1]), refs, tuple(map(_number, row[3])), launch, _work(row[5]), maps)


def _tensor_map(row: list[Any]) -> TensorMap:
    buffer, element, dims, strides, box, swizzle, offset, steps, corners = row
    return TensorMap(
        int(buffer),
        str(element),
        tuple(map(_number, dims)),
        tuple(map(_number, strides)),
        tuple(map(int, box)),
        int(swizzle),
        _number(offset),
        tuple(map(int, steps)),
        None if corners is None else (tuple(map(int, corners[0])), tuple(map(int, corners[1]))),
    )


def _host_attrs(found: Any) -> dict[str, Any]:
    attrs = dict(found)
    if "tensors" in attrs:
        attrs["tensors"] = [([_number(dim) for dim in shape], dtype) for shape, dtype in attrs["tensors"]]
    return attrs


def _work(found: Any) -> float | OpenWork:
    each, elements = found if type(found) is list else (found, None)
    if not (type(each) in (int, float) and isfinite(each) and each >= 0):
        raise FormatError(f"{found!r:.60} nanoseconds of work")
    if elements is None:
        return float(each)
    row = _number(elements)
    return OpenWork(float(each), row) if isinstance(row, At) else float(each) * row


def _spec(row: list[Any]) -> TensorSpec:
    name, shape, dtype = row
    return TensorSpec(str(name), tuple(map(_number, shape)), as_dtype(dtype))
