"""Steps of tiles as instructions of AMX, on the registers that they name: nothing is left to allocate."""

from __future__ import annotations

from ...te.loops import TILES, TileStep
from .. import memory
from ..builder import Builder
from ..memory import Access, Place

CONFIG_BYTES, ROW_BYTES = 64, 64
_DOTS = {"dot_bytes": "tdpbusd", "dot_pairs": "tdpbf16ps"}
_MOVES = {"load": "tileloadd64", "store": "tilestored64"}


def tile_config(tiles: tuple[int, ...], rows: tuple[int, ...]) -> bytes:
    """What `ldtilecfg` reads: palette 1, from byte 16 on the bytes of a row of each tile, from 48 on its rows.

    >>> tile_config((0,), (7,))[16:18], tile_config((0,), (7,))[48]
    (b'@\\x00', 7)
    """
    made = bytearray(CONFIG_BYTES)
    made[0] = 1
    for tile, count in zip(tiles, rows, strict=True):
        assert tile < TILES
        made[16 + 2 * tile], made[48 + tile] = ROW_BYTES, count
    return bytes(made)


def emit_tile_step(b: Builder, step: TileStep, place: Place | None, access: Access) -> None:
    if step.action == "shape":
        text = "".join(f"\\{byte:02X}" for byte in tile_config(step.tiles, step.rows))
        name = f"@tiles{'.'.join(map(str, step.rows))}"
        b.globals[name] = f'{name} = internal constant [{CONFIG_BYTES} x i8] c"{text}", align 64'
        _call(b, "ldtilecfg", f"ptr {name}")
    elif step.action == "release":
        _call(b, "tilerelease")
    elif place is not None:
        if step.action == "store":
            b.forget_loaded(place.base)
        pointer = memory.pointer_to(b, place, access)
        stride = step.stride * place.item_bytes
        _call(b, _MOVES[step.action], f"i8 {step.tiles[0]}", f"ptr {pointer.ref}", f"i64 {stride}")
    else:
        _call(b, _DOTS.get(step.action, "tilezero"), *(f"i8 {tile}" for tile in step.tiles))


def _call(b: Builder, name: str, *arguments: str) -> None:
    kinds = ", ".join(f"{kind} immarg" if kind == "i8" else kind for kind in (a.partition(" ")[0] for a in arguments))
    b.declarations.setdefault(name, f"declare void @llvm.x86.{name}({kinds})")
    b.line(f"call void @llvm.x86.{name}({', '.join(arguments)})")
