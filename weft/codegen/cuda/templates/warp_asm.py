"""PTX of single warps: copies that run ahead, matrix loads, products; and the text of all products of a stage."""

from __future__ import annotations

from typing import NamedTuple

from ....te.tensor_cores.fragments import Layout, Walk

COMMIT = "cp.async.commit_group;"
SHAPES = {"fp16": "m16n8k16.row.col.f32.f16.f16.f32", "bf16": "m16n8k16.row.col.f32.bf16.bf16.f32"}
SHAPES["tf32"] = "m16n8k8.row.col.f32.tf32.tf32.f32"
READ_BITS = "0xffffe000"  # of a float32 that tensor cores read
_COPY_ONE = """{{ .reg .pred there;
.reg .b16 item;
setp.ne.b32 there, $2, 0;
mov.b16 item, 0;
@there ld.global.b16 item, [$1];
st.shared.b16 [$0+{to}], item; }}"""


def landed(ahead: int) -> str:
    """Waits until all but the last so many groups of this thread's copies are there."""
    return f"cp.async.wait_group {ahead};"


def copy(size: int, to: int) -> str:
    """So many bytes into shared memory: $0 where to, `to` bytes beyond; $1 where from; $2 how many are read, zeros
    follow. Two bytes are copied at once."""
    if size == 2:
        return _COPY_ONE.format(to=to)
    return f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global [$0+{to}], [$1], {size}, $2;"


def multiply(kind: str, sums: list[str], a: list[str], b: list[str]) -> str:
    """sums += a b."""
    own, left, right = (", ".join(names) for names in (sums, a, b))
    return f"mma.sync.aligned.{SHAPES[kind]} {{{own}}}, {{{left}}}, {{{right}}}, {{{own}}};"


class Side(NamedTuple):
    """An operand of a warp in shared memory: `blocks` of 16 rows, from where its register `address` points to."""

    name: str
    address: str
    blocks: int
    layout: Layout
    left: bool

    @property
    def registers(self) -> int:
        """Of a step of k."""
        return 4 * self.blocks


def load_step(side: Side, step: int) -> list[str]:
    """Loads all of a step of k: four registers, name0 and so on, of each block."""
    if side.layout.words:
        return _load_words(side, step)
    trans = ".trans" if side.layout.turned else ""
    lines: list[str] = []
    for block in range(side.blocks):
        names = ", ".join(f"{side.name}{4 * block + n}" for n in range(4))
        place = _place(side, side.layout.walk(step, block), lines)
        lines.append(f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{{names}}}, [{place}];")
    return lines


def _load_words(side: Side, step: int) -> list[str]:
    lines: list[str] = []
    for block in range(side.blocks):
        for number in range(4):
            row, half = (number % 2, number // 2) if side.left else (number // 2, number % 2)
            place = _place(side, side.layout.walk(step, block, 8 * row, half), lines)
            lines.append(f"ld.shared.b32 {side.name}{4 * block + number}, [{place}];")
    return lines


def _place(side: Side, walk: Walk, lines: list[str]) -> str:
    if not walk.flip:
        return f"{side.address}+{walk.more}"
    lines.append(f"xor.b32 at, {side.address}, {walk.flip};")
    return f"at+{walk.more}"


def split(name: str, count: int) -> list[str]:
    """Of each float32: `name` keeps what tensor cores read, `nameR` has the rest."""
    lines = []
    for number in range(count):
        own = f"{name}{number}"
        lines.append(f"and.b32 at, {own}, {READ_BITS};\nsub.f32 {name}R{number}, {own}, at;\nmov.b32 {own}, at;")
    return lines


def rounded(name: str, count: int) -> list[str]:
    """Each float32 as the nearest that tensor cores read."""
    return [f"cvt.rna.tf32.f32 {name}{number}, {name}{number};" for number in range(count)]


def as_read(kind: str, name: str, count: int, exact: bool) -> list[str]:
    """Registers as tensor cores read them."""
    if kind != "tf32":
        return []
    return (split if exact else rounded)(name, count)


def declared(name: str, count: int, exact: bool) -> list[str]:
    return [f".reg .b32 {name}<{count}>;", *([f".reg .b32 {name}R<{count}>;"] if exact else [])]


def all_products(kind: str, left: Side, right: Side, steps: int, exact: bool) -> str:
    """Products of so many steps of k, added to the sums $0, $1, ...: four of each block of 16 rows and 8 columns, row
    by row of blocks. In three products of tf32 the small terms come first."""
    lines = [".reg .b32 at;", *declared("a", left.registers, exact), *declared("b", right.registers, exact)]
    for step in range(steps):
        for side in (left, right):
            lines += [*load_step(side, step), *as_read(kind, side.name, side.registers, exact)]
        a = [f"a#{n}" for n in range(left.registers)]
        lines += step_products(kind, a, "b", 2 * right.blocks, exact)
    return "\n".join(lines)


def step_products(kind: str, a: list[str], b: str, across: int, exact: bool) -> list[str]:
    """All products of a step of k. In the names of `a` a # stands for what tells rests apart."""
    lines = []
    for rests in [("R", ""), ("", "R"), ("", "")] if exact else [("", "")]:
        for row in range(len(a) // 4):
            own = [name.replace("#", rests[0]) for name in a[4 * row : 4 * row + 4]]
            for column in range(across):
                first = 4 * (row * across + column)
                sums = [f"${first + n}" for n in range(4)]
                lines.append(multiply(kind, sums, own, [f"{b}{rests[1]}{2 * column + n}" for n in range(2)]))
    return lines


def zeros(count: int) -> str:
    return "\n".join(f"mov.f32 ${number}, 0f00000000;" for number in range(count))
