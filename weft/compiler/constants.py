"""The constant part of a graph comes in with the values of its variables; the values of its outputs
go out. Large ones are computed by native code on all threads, the others by references. Programs of one model share
what they compute from its parameters, as long as one of them lives."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from weakref import WeakValueDictionary

from ..base.cpu_target import host
from ..base.memory import require
from ..base.ndarray import own_copy
from ..base.shape import is_static, numel
from ..core.graph import Graph
from ..core.interpret import evaluate_spending
from ..core.ir import Node, NodeEntry
from ..core.schema import is_hidden
from ..runtime.loading import run_spending
from ..runtime.program import Array
from .assemble import assemble, fused_groups
from .backends import backend_of

LARGE_BYTES = 4 << 20  # what numpy takes longer to move than LLVM to compile a kernel
SMALL_BYTES = 256  # constants that are told apart by what they hold


class LateConstants(Mapping[str, Array]):
    """Constants by name that are computed in a thread, while code is made for those who read them."""

    def __init__(self, names: Iterable[str], compute: Callable[[], Mapping[str, Array]]) -> None:
        self._names = dict.fromkeys(names)
        self._values: Future[Mapping[str, Array]]
        pool = ThreadPoolExecutor(1, thread_name_prefix="weft-constants")
        try:
            self._values = pool.submit(copy_context().run, compute)
        except RuntimeError:  # the process may have no more memory for a thread
            self._values = Future()
            self._values.set_result(compute())
        pool.shutdown(wait=False)

    def __getitem__(self, name: str) -> Array:
        return self._values.result()[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class SharedConstants:
    """What was computed from the parameters of a model, by how it was computed."""

    def __init__(self, params: Mapping[str, Array]) -> None:
        self._names = {_memory(value): name for name, value in params.items()}
        self._params = dict(params)  # alive, so that nothing else gets their memory
        self._computed: WeakValueDictionary[Hashable, Array] = WeakValueDictionary()

    def values(self, part: Graph, known: MutableMapping[str, Array]) -> list[Array]:
        """As constant_values gives them, computed once for all programs."""
        keys = self._keys(part, known)
        found = [None if key is None else self._computed.get(key) for key in keys]
        missing = [position for position, value in enumerate(found) if value is None]
        if missing:
            cut = part.replace(outputs=[part.outputs[position] for position in missing], attrs={}).trimmed()
            for position, value in zip(missing, constant_values(cut, known)):
                found[position] = value
                if keys[position] is not None:
                    self._computed[keys[position]] = value
        return [value for value in found if value is not None]

    def _keys(self, part: Graph, known: Mapping[str, Array]) -> list[Hashable]:
        """How each output is computed; None if something goes in that is no parameter of the model."""
        keys: dict[Node, Hashable] = {}
        for node in part.indexed.nodes:
            if node.op is None:
                keys[node] = self._leaf(known[node.name])
                continue
            inputs = [(keys[entry.node], entry.index) for entry in node.inputs]
            plain = not node.subgraphs and all(key is not None for key, _ in inputs)
            attrs = tuple(sorted((k, v) for k, v in node.attrs.items() if not is_hidden(k)))
            keys[node] = hash_of((node.op_name, attrs, tuple(inputs))) if plain else None
        return [None if keys[e.node] is None else (keys[e.node], e.index) for e in part.outputs]

    def _leaf(self, value: Array) -> Hashable:
        if value.nbytes <= SMALL_BYTES:
            return value.tobytes(), value.shape, str(value.dtype)
        return self._names.get(_memory(value))


def _memory(value: Array) -> Hashable:
    return value.__array_interface__["data"][0], value.shape, value.strides, value.dtype.str


def hash_of(key: Hashable) -> bytes:
    """A key of the same size however long the way to a value is."""
    return hashlib.sha256(repr(key).encode()).digest()


def constant_values(part: Graph, known: MutableMapping[str, Array], spent: Collection[str] = ()) -> list[Array]:
    """The values of all outputs: new, row-major, from a cache line on. Variables that are `spent` are taken out of
    what is `known` when nothing more reads them: where nobody else has them, most are gone when the last result is
    there."""
    large = _are_large(part)
    entries = {native: [e for e, own in zip(part.outputs, large) if own is native] for native in (False, True)}
    entries[True].sort(key=lambda entry: -_bytes(part, entry))  # each stands beside its source for a while
    cut = {native: part.replace(outputs=made, attrs={}).trimmed() for native, made in entries.items() if made}
    later = set() if True not in cut else {cut[True].indexed.nodes[n].name for n in cut[True].indexed.variables}
    values: dict[NodeEntry, Array] = {}
    if False in cut:
        values.update(zip(entries[False], evaluate_spending(cut[False], known, {*spent} - later, own_copy)))
    if True in cut:
        values.update(zip(entries[True], _by_kernels(cut[True], known, spent)))
    return [values[entry] for entry in part.outputs]


def _are_large(part: Graph) -> list[bool]:
    """Which outputs native code computes; an error where there is no memory for all."""
    sizes = [_bytes(part, entry) for entry in part.outputs]
    for node in part.indexed.nodes:
        for index in range(node.num_outputs):
            size = _bytes(part, NodeEntry(node, index))
            require(size, "a constant", f"operator {node.op_name}, node {node.name!r}")
    require(sum(sizes), f"a model of {len(sizes)} computed constants")
    has_body = backend_of(host()).lowering.has_body
    return [size >= LARGE_BYTES and has_body(e.node) for e, size in zip(part.outputs, sizes)]


def _bytes(part: Graph, entry: NodeEntry) -> int:
    fact = part.fact(entry)
    if not is_static(fact.shape) or fact.dtype is None:
        return 0
    return numel(fact.shape) * fact.dtype.itemsize


def _by_kernels(part: Graph, known: MutableMapping[str, Array], spent: Collection[str]) -> Sequence[Array]:
    """The outputs, computed for the machine that compiles, whatever the target is."""
    program = assemble(part, fused_groups(part, host()), {}, host())
    names = [spec.name for spec in program.inputs]
    return run_spending(program, [known.pop(name) if name in spent else known[name] for name in names])
