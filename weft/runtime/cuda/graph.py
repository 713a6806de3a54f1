"""Kernels with their arguments, one by one or as a CUDA graph: a chain in which a kernel that waits by itself may start
before the one ahead of it ends. Addresses can be exchanged without a new graph."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref, c_uint64, c_void_p, pointer

from ...base.errors import InvalidValue
from ...base.plan import KernelStep, known
from .context import Context
from .driver import EdgeData, KernelNodeParams, LaunchAttribute, LaunchConfig
from .module import Function
from .stream import Event, Stream
from .tensor_maps import EncodedMap

_LAUNCH = "cuLaunchKernelEx"
_CLUSTER = 4  # a launch attribute
_PROGRAMMATIC = 1  # the kind of edge, and the port of a kernel that lets others start
Addresses = Sequence[int] | Mapping[int, int]  # of slots


class PreparedKernel:
    """A step with its parameters in the memory that the driver reads them from: an address for each buffer, then the
    scalars, then tensor maps."""

    def __init__(self, context: Context, function: Function, step: KernelStep, addresses: Addresses) -> None:
        self.context, self.function, self.step = context, function, step
        launch = step.launch
        function.allow(launch.shared, launch.cluster)
        self._launch = context.driver.entry(_LAUNCH)
        count = len(step.buffers) + len(step.scalars)
        self._config: LaunchConfig | None = None
        self._buffers = [(number, ref.slot, known(ref.offset)) for number, ref in enumerate(step.buffers)]
        self._words = (c_uint64 * max(count, 1))()
        self._maps = [(EncodedMap(), tensor_map) for tensor_map in step.maps]
        first = ctypes.addressof(self._words)
        places = [first + 8 * number for number in range(count)] + [made.address for made, _ in self._maps]
        self._parameters = (c_void_p * max(len(places), 1))(*places)
        for number, scalar in enumerate(step.scalars):
            self._words[len(step.buffers) + number] = known(scalar) & (2**64 - 1)
        self.place(addresses)

    def place(self, addresses: Addresses) -> None:
        """Has the buffers where slots are now."""
        words = self._words
        for number, slot, offset in self._buffers:
            words[number] = addresses[slot] + offset
        for made, tensor_map in self._maps:
            if words[tensor_map.buffer] != made.shows:
                made.encode(self.context, tensor_map, words[tensor_map.buffer])

    def node_params(self) -> KernelNodeParams:
        """The kernel as graphs take it."""
        launch = self.step.launch
        made = KernelNodeParams(self.function.handle)
        made.grid[:], made.block[:] = [*map(known, launch.blocks)], launch.threads
        made.shared, made.parameters = launch.shared, self._parameters
        return made

    def launch(self, stream: Stream) -> None:
        """Runs the kernel alone, after all that the stream was given. Its context is the current one."""
        config = self._config
        if config is None:
            config = self._config = self._configured()
            self._given = byref(config), c_void_p(self.function.handle), self._parameters, None
        config.stream = stream.handle
        code = self._launch(*self._given)
        if code:
            raise self.context.driver.failure(_LAUNCH, code)

    def _configured(self) -> LaunchConfig:
        launch, config = self.step.launch, LaunchConfig()
        config.grid[:], config.block[:] = [*map(known, launch.blocks)], launch.threads
        config.shared = launch.shared
        if launch.cluster > 1:
            config.attributes, config.count = pointer(_cluster_of(launch.cluster)), 1
        return config


def _cluster_of(blocks: int) -> LaunchAttribute:
    made = LaunchAttribute(_CLUSTER)
    made.value[0], made.value[1], made.value[2] = blocks, 1, 1
    return made


def runs(step: KernelStep) -> bool:
    """Whether a step has blocks to run."""
    return all(known(count) for count in step.launch.blocks)


def users_of(kernels: Sequence[PreparedKernel], first: int = 0) -> dict[int, list[int]]:
    """Which kernels use each slot, by their numbers from the first on."""
    users: dict[int, list[int]] = {}
    for number, kernel in enumerate(kernels, first):
        for slot in dict.fromkeys([ref.slot for ref in kernel.step.buffers]):
            users.setdefault(slot, []).append(number)
    return users


class Graph:
    """Kernels that run one after the other by one call. Those of several programs, each with memory of its own, may be
    in one: `place` is told by their numbers whose slots moved. With events, one more than kernels, the first happens
    before all of them and the others after each; then no kernel starts early."""

    def __init__(self, context: Context, kernels: Sequence[PreparedKernel], events: Sequence[Event] = ()) -> None:
        self.context, self.kernels, self._events = context, list(kernels), list(events)
        self._graph = self._exec = self._last = 0
        self._nodes: list[int] = []
        if not kernels:
            raise InvalidValue("a graph without kernels")
        graph, made = c_void_p(), c_void_p()
        with context:
            context.driver.call("cuGraphCreate", byref(graph), 0)
            self._graph = graph.value or 0
            self._add_all()
            context.driver.call("cuGraphInstantiateWithFlags", byref(made), self._graph, 0)
            self._exec = made.value or 0

    def _add_all(self) -> None:
        for event in self._events[:1]:
            self._add_event(event)
        for number, kernel in enumerate(self.kernels):
            self._add_kernel(kernel)
            for event in self._events[number + 1 : number + 2]:
                self._add_event(event)

    def _add_event(self, event: Event) -> None:
        node = c_void_p()
        self.context.driver.call("cuGraphAddEventRecordNode", byref(node), self._graph, None, 0, event.handle)
        self._follow(node.value or 0, early=False)

    def _add_kernel(self, kernel: PreparedKernel) -> None:
        driver, node, params = self.context.driver, c_void_p(), kernel.node_params()
        driver.call("cuGraphAddKernelNode_v2", byref(node), self._graph, None, 0, byref(params))
        if kernel.step.launch.cluster > 1:
            attribute = _cluster_of(kernel.step.launch.cluster)
            driver.call("cuGraphKernelNodeSetAttribute", node, _CLUSTER, byref(attribute.value))
        self._follow(node.value or 0, early=kernel.step.launch.dependent and not self._events)
        self._nodes.append(node.value or 0)

    def _follow(self, node: int, early: bool) -> None:
        """Has a node start when the last one ends or, early, when all blocks of that one have let it."""
        driver, ends = self.context.driver, (byref(c_void_p(self._last)), byref(c_void_p(node)))
        if self._last and driver.has("cuGraphAddDependencies_v2"):
            edge = EdgeData(from_port=_PROGRAMMATIC, type=_PROGRAMMATIC) if early else EdgeData()
            driver.call("cuGraphAddDependencies_v2", self._graph, *ends, byref(edge), 1)
        elif self._last:
            driver.call("cuGraphAddDependencies", self._graph, *ends, 1)
        self._last = node

    def __del__(self) -> None:
        if getattr(self, "_exec", 0):
            self.context.dispose("cuGraphExecDestroy", self._exec)
        if getattr(self, "_graph", 0):
            self.context.dispose("cuGraphDestroy", self._graph)

    def place(self, numbers: Iterable[int], addresses: Addresses) -> None:
        """Has kernels of some numbers use slots where they are now."""
        for number in numbers:
            kernel = self.kernels[number]
            kernel.place(addresses)
            params = kernel.node_params()
            with self.context as context:
                node = self._nodes[number]
                context.driver.call("cuGraphExecKernelNodeSetParams_v2", self._exec, node, byref(params))

    def launch(self, stream: Stream) -> None:
        """Runs all of it, after all that the stream was given."""
        with self.context as context:
            context.driver.call("cuGraphLaunch", self._exec, stream.handle)
