"""Products and look-ups with weights of a few bits each, which share a scale and a zero point in blocks. The weights
are constants, and become numbers at import."""

from __future__ import annotations

import numpy as np

from .....base.dtype import FLOAT32
from .....base.errors import FormatError, Unsupported
from .....base.shape import normalize_axis
from ....emitter import Value
from ....products import matrix_product
from ...call import OnnxCall
from .domain import microsoft


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of `bits` bits along the last axis, of which the lowest ones of a byte come first.

    >>> unpacked(np.array([0x21, 0xF3], np.uint8), 4)
    array([ 1,  2,  3, 15], dtype=uint8)
    """
    if bits not in (1, 2, 4, 8):
        raise Unsupported(f"weights of {bits} bits")
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return numbers.reshape(*packed.shape[:-1], -1)


@microsoft("MatMulNBits", decides=(1, 2, 3, 4), bits=4, accuracy_level=0, weight_prepacked=0)
def matmul_few_bits(call: OnnxCall) -> Value:
    """A W' + bias, where W has a row for each column of the result."""
    call.ignore("accuracy_level")
    if call.attr("weight_prepacked"):
        raise Unsupported("MatMulNBits with weights in the layout of a device")
    weight = call.make(_weight(call).T, FLOAT32)
    product, bias = matrix_product(call, call.cast(call[0], FLOAT32), weight), call.get(5)
    if bias is not None:
        product = call.op("broadcast_add", product, call.cast(bias, FLOAT32))
    return call.cast(product, call.dtype(call[0]))


def _weight(call: OnnxCall) -> np.ndarray:
    """The weights as float32, (N, K)."""
    rows, columns, size, bits = (call.attr(name) for name in ("N", "K", "block_size", "bits"))
    blocks = -(-columns // size)
    numbers = unpacked(call.constant(1, "the weight").reshape(rows, -1), bits)
    scale = call.constant(2, "the scale").astype(np.float32)
    if numbers.size != rows * blocks * size or scale.size != rows * blocks:
        raise FormatError(f"{numbers.size} weights and {scale.size} scales for {rows} x {columns} in blocks of {size}")
    scale, zero = scale.reshape(rows, blocks), _zero_points(call, rows, blocks, bits)
    block = np.arange(columns) // size if call.get(4) is None else call.constant(4, "the groups").ravel()[:columns]
    return np.asarray((numbers[:, :columns] - zero[:, block]) * scale[:, block])


def _zero_points(call: OnnxCall, rows: int, blocks: int, bits: int) -> np.ndarray:
    """One a block: the middle of the range, given as numbers, or packed as the weights are."""
    if call.get(3) is None:
        return np.full((rows, blocks), 2 ** (bits - 1), np.float32)
    zero = call.constant(3, "the zero points")
    if zero.dtype == np.uint8:
        zero = unpacked(zero.reshape(rows, -1), bits)[:, :blocks]
    return zero.astype(np.float32).reshape(rows, blocks)


# What four bits stand for, by QLoRA's table, and as floats of a sign, two bits of exponent and one of mantissa.
_NORMAL_FLOATS = (
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453]
    + [-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0]
    + [0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224]
    + [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
)
_SMALL_FLOATS = [0.0, 0.0625 / 12, 8 / 12, 1.0, 4 / 12, 6 / 12, 2 / 12, 3 / 12]
_TABLES = (np.array([*_SMALL_FLOATS, *(-x for x in _SMALL_FLOATS)], np.float32), np.array(_NORMAL_FLOATS, np.float32))


@microsoft("MatMulBnb4", decides=(1, 2), transB=1, training_mode=0)
def matmul_small_floats(call: OnnxCall) -> Value:
    """A W', or A W, where each four bits of W are a number of a table, the higher ones of a byte first."""
    call.ignore("training_mode")
    rows, columns, size, kind = (call.attr(name) for name in ("N", "K", "block_size", "quant_type"))
    packed, largest = call.constant(1, "the weight").ravel(), call.constant(2, "the scale").astype(np.float32).ravel()
    if kind not in (0, 1) or 2 * packed.size < rows * columns or largest.size != -(-rows * columns // size):
        raise FormatError(f"{packed.size} bytes and {largest.size} scales for {rows} x {columns} of type {kind}")
    numbers = np.stack([packed >> 4, packed & 15], -1).ravel()[: rows * columns]
    weight = _TABLES[kind][numbers] * np.repeat(largest, size)[: rows * columns]
    weight = weight.reshape(rows, columns)
    factor = call.make(weight.T if call.attr("transB") else weight, FLOAT32)
    return call.cast(matrix_product(call, call.cast(call[0], FLOAT32), factor), call.dtype(call[0]))


@microsoft("GatherBlockQuantized", decides=(0, 2, 3), bits=4, block_size=128, quantize_axis=1, gather_axis=0)
def gather_few_bits(call: OnnxCall) -> Value:
    """Rows of a table. Where integers have their own type they are one an element, else packed into bytes."""
    data, scale = call.constant(0, "the table"), call.constant(2, "the scale")
    bits, size = call.attr("bits"), call.attr("block_size")
    axis, along = (normalize_axis(call.attr(name), data.ndim) for name in ("quantize_axis", "gather_axis"))
    zero = None if call.get(3) is None else call.constant(3, "the zero points")
    if data.dtype == np.uint8:
        data = unpacked(data, bits)
        blocks = scale.shape[-1]
        zero = np.array(2 ** (bits - 1)) if zero is None else unpacked(zero, bits)[..., :blocks]
    block = np.arange(data.shape[axis]) // size
    table = data.astype(np.float32)
    if zero is not None:
        zero = zero.astype(np.float32)
        table = table - (zero.take(block, axis) if zero.ndim else zero)
    table = table * scale.astype(np.float32).take(block, axis)
    return call.op("take", call.make(table.astype(scale.dtype)), call[1], axis=along)
