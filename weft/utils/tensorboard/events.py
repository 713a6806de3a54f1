"""Event files: messages in protobuf's wire format, one after the other, each with its length and checksums."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Message = Mapping[str, Any]  # values by field; what is None is not there
VERSION = "brain.Event:2"

# Fields by message: their numbers, names and types, with * for several. An `int` is also a bool or an enum.
_TABLE = {
    "Event": "1 wall_time double, 2 step int, 3 file_version text, 4 graph_def Graph, 5 summary Summary, "
    "7 session_log SessionLog",
    "SessionLog": "1 status int",
    "Summary": "1 value *Value",
    "Value": "1 tag text, 2 simple_value float, 4 image Image, 5 histo Histogram, 6 audio Audio, 8 tensor Tensor, "
    "9 metadata Metadata",
    "Metadata": "1 plugin_data PluginData",
    "PluginData": "1 plugin_name text, 2 content text",
    "Image": "1 height int, 2 width int, 3 colorspace int, 4 encoded_image_string text",
    "Audio": "1 sample_rate float, 2 num_channels int, 3 length_frames int, 4 encoded_audio_string text, "
    "5 content_type text",
    "Histogram": "1 min double, 2 max double, 3 num double, 4 sum double, 5 sum_squares double, "
    "6 bucket_limit *double, 7 bucket *double",
    "Tensor": "1 dtype int, 2 tensor_shape Shape, 4 tensor_content text, 8 string_val *text",
    "Shape": "2 dim *Dim",
    "Dim": "1 size int",
    "Graph": "1 node *Node, 4 versions Versions",
    "Versions": "1 producer int",
    "Node": "1 name text, 2 op text, 3 input *text, 5 attr *NodeAttribute",
    "NodeAttribute": "1 key text, 2 value NodeValue",
    "NodeValue": "1 list NodeValues, 2 s text",
    "NodeValues": "7 shape *Shape",
    # What plugins keep beside their values.
    "Hparams": "2 experiment Experiment, 3 session_start_info SessionStart, 4 session_end_info SessionEnd",
    "Experiment": "4 hparam_infos *HparamInfo, 5 metric_infos *MetricInfo",
    "HparamInfo": "1 name text, 4 type int, 5 domain_discrete AnyValues",
    "MetricInfo": "1 name MetricName",
    "MetricName": "2 tag text",
    "SessionStart": "1 hparams *HparamValue",
    "SessionEnd": "1 status int",
    "HparamValue": "1 key text, 2 value AnyValue",
    "AnyValues": "1 values *AnyValue",
    "AnyValue": "2 number_value double, 3 string_value text, 4 bool_value int",
    "Layout": "2 category *Category",
    "Category": "1 title text, 2 chart *Chart",
    "Chart": "1 title text, 2 multiline Multiline, 3 margin Margin",
    "Multiline": "1 tag *text",
    "Margin": "1 series *MarginSeries",
    "MarginSeries": "1 value text, 2 lower text, 3 upper text",
    "Mesh": "2 name text, 3 content_type int, 5 json_config text, 6 shape *int, 7 components int",
    "Curve": "2 num_thresholds int",
}
_FIELDS = {
    message: {name: (int(number), kind) for number, name, kind in (field.split() for field in fields.split(", "))}
    for message, fields in _TABLE.items()
}
_SINGLE = {"double": (1, "<d"), "float": (5, "<f")}  # kinds on the wire, and how they are packed


def encode(kind: str, message: Message) -> bytes:
    """A message of the table in protobuf's wire format: each field is a key (its number, and a kind in three bits)
    and a number, or a length and as many bytes.

    >>> encode("Dim", {"size": 300}).hex()
    '08ac02'
    """
    parts: list[bytes] = []
    for name, value in message.items():
        if value is not None:
            number, field = _FIELDS[kind][name]
            several = field.startswith("*")
            for each in value if several else [value]:
                parts += _field(number, field.removeprefix("*"), each)
    return b"".join(parts)


def _field(number: int, kind: str, value: Any) -> Iterable[bytes]:
    if kind == "int":
        return _varint(number << 3), _varint(int(value))
    if kind in _SINGLE:
        wire, form = _SINGLE[kind]
        return _varint(number << 3 | wire), struct.pack(form, value)
    content = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else encode(kind, value)
    return _varint(number << 3 | 2), _varint(len(content)), content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the highest bit of a byte says that another one comes."""
    value &= (1 << 64) - 1  # what is negative is written as its complement
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


class EventFile:
    """A new file of events in a folder. What is added is in the file when the call returns."""

    _ids = itertools.count()

    def __init__(self, folder: str, suffix: str = "") -> None:
        os.makedirs(folder, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(self._ids)}"
        self._file = open(os.path.join(folder, name + suffix), "wb")  # noqa: SIM115 (closed by close)
        self.add({"wall_time": time.time(), "file_version": VERSION})

    def add(self, event: Message) -> None:
        """Writes an event: its length and the checksum of that, the event and its checksum."""
        content = encode("Event", event)
        length = struct.pack("<Q", len(content))
        self._file.write(length + _masked(length) + content + _masked(content))
        self._file.flush()

    def close(self) -> None:
        """Ends the file."""
        self._file.close()


def _masked(content: bytes) -> bytes:
    """A checksum as it stands in event files, turned and moved, since files may have checksums of their own."""
    found = crc32c(content)
    return struct.pack("<I", ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF)


Registers = NDArray[np.uint32]
_BITS = np.arange(32, dtype=np.uint32)
_LANE = 64  # bytes
_FEW = 2048  # bytes, which a loop takes sooner than arrays


def _after_zero_bits(registers: Registers, count: int) -> Registers:
    """What the remainders become behind some bits of zero: a bit that falls out takes the polynomial with it."""
    for _ in range(count):
        registers = registers >> np.uint32(1) ^ (registers & np.uint32(1)) * np.uint32(0x82F63B78)
    return registers


_BYTES = _after_zero_bits(np.arange(256, dtype=np.uint32), 8)  # remainders of single bytes
_BYTE_LIST: list[int] = _BYTES.tolist()
_BEHIND_LANE = _after_zero_bits(np.uint32(1) << _BITS, 8 * _LANE)  # what each bit becomes behind a lane of zeros


def _moved(registers: Registers, columns: Registers) -> Registers:
    """Remainders behind as many zeros as the columns stand for: they are linear, so each bit adds its column."""
    found: Registers = np.bitwise_xor.reduce((registers[:, None] >> _BITS & np.uint32(1)) * columns, axis=1)
    return found


def crc32c(content: bytes) -> int:
    """The checksum by Castagnoli's polynomial. It is linear, so lanes of many bytes are divided side by side, and then
    neighbours are put together, the left one moved by the length of the right one.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    if len(content) < _FEW:
        register = 0xFFFFFFFF
        for byte in content:
            register = _BYTE_LIST[(register ^ byte) & 255] ^ register >> 8
        return register ^ 0xFFFFFFFF
    lanes = 1 << (-(-len(content) // _LANE) - 1).bit_length()
    padded = np.zeros(lanes * _LANE, np.uint8)  # zeros in front change nothing
    start = padded.size - len(content)
    padded[start:] = np.frombuffer(content, np.uint8)
    padded[start : start + 4] ^= 255  # the register begins with ones
    registers = np.zeros(lanes, np.uint32)
    for column in padded.reshape(lanes, _LANE).T:
        registers = _BYTES[(registers ^ column) & np.uint32(255)] ^ registers >> np.uint32(8)
    columns = _BEHIND_LANE
    while registers.size > 1:
        registers = _moved(registers[::2], columns) ^ registers[1::2]
        columns = _moved(columns, columns)
    return int(registers[0]) ^ 0xFFFFFFFF
