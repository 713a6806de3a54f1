"""A CUDA driver of Python, with libcuda's entry points: it checks handles, contexts, sizes and orders, and keeps a list
of what is wrong. Memory is real, so copies are; addresses are no host's, so nobody reads them by mistake. What streams
are given happens as late as it may: when somebody waits. Kernels are Python functions by the names of PTX entries."""

import ctypes
import re
import sys
import threading
from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from weft.core.bulk import collector_paused
from weft.runtime.cuda.driver import SIGNATURES

FIRST_ADDRESS = 0x7F00_0000_0000_0000  # beyond what a process can map
CAPABILITY = (9, 0)
ATTRIBUTES = {1: 1024, 10: 32, 12: 65536, 13: 1980000, 16: 132, 36: 2619000, 37: 6144, 38: 62914560, 39: 2048}
ATTRIBUTES |= {81: 233472, 97: 232448, 115: 1, 75: CAPABILITY[0], 76: CAPABILITY[1]}
NAMES = {0: "CUDA_SUCCESS", 1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 100: "CUDA_ERROR_NO_DEVICE"}
NAMES |= {218: "CUDA_ERROR_INVALID_PTX", 400: "CUDA_ERROR_INVALID_HANDLE", 719: "CUDA_ERROR_LAUNCH_FAILED"}
NOT_READY = 600
# Which need no context: what asks for one, and what tells of devices.
FREE_STANDING = {name for name in SIGNATURES if name.startswith(("cuInit", "cuD", "cuGetError", "cuMemPool"))}
FREE_STANDING |= {"cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"}
_ENTRY = re.compile(rb"\.entry\s+(\w+)\s*\(([^)]*)\)")


class Launched(NamedTuple):
    """A launch as a kernel sees it."""

    name: str
    grid: tuple
    block: tuple
    shared: int
    parameters: tuple  # bytes of each
    cluster: int
    handle: int = 0


class Map(NamedTuple):
    """What a tensor map was encoded from."""

    kind: str
    element: int
    address: int
    dims: tuple
    strides: tuple
    more: tuple


class _Entry:
    """An entry point as ctypes has them: types are set, then it is called."""

    def __init__(self, fake, name):
        self.fake, self.name = fake, name
        self.argtypes = self.restype = None

    def __call__(self, *arguments):
        return self.fake.called(self, arguments)


class FakeCuda:
    """The library. `kernels[name](fake, launched)` runs a kernel; `code_at[n]` is what call n answers instead of
    being done; `wrong` is what nobody should have done."""

    def __init__(self, memory=1 << 30, devices=1, version=13000, without=()):
        self.kernels, self.wrong, self.calls = {}, [], []
        self.undoing = []  # the numbers of calls that finalisers made, which can take no error
        self.code_at, self.code_of = {}, {}
        self.total, self.devices, self.version, self.without = memory, devices, version, set(without)
        self.retained = dict.fromkeys(range(devices), 0)
        self.current = threading.local()
        self.alive = {}  # handle: (kind, context, what)
        self.memory = {}  # address: (array, context, how it was allocated)
        self._starts, self._handle, self._address = [], 0x1000, FIRST_ADDRESS
        self.queues = {}  # (context, stream): [operation]
        self.maps, self.pushed, self.assembled = [], 0, 0
        self.clocks, self.host, self.now = {}, {}, None  # what each stream, and the host, knows to be done
        self.uses = {}  # of an allocation: stream: (when it was last read, when it was last written)
        self.lock = threading.RLock()

    def __getattr__(self, name):
        if name not in SIGNATURES or name in self.__dict__.get("without", ()):
            raise AttributeError(name)
        made = self.__dict__[name] = _Entry(self, name)
        return made

    # Calls

    def called(self, entry, arguments):
        with self.lock:
            name = entry.name
            self.calls.append(name)
            self.undoing += [len(self.calls) - 1] if _is_in_finaliser() else []
            if entry.argtypes != SIGNATURES[name] or entry.restype is not ctypes.c_int:
                self.misuse(f"{name} is called without types")
            if len(arguments) != len(SIGNATURES[name]):
                self.misuse(f"{name} has {len(arguments)} arguments")
            for given, kind in zip(arguments, SIGNATURES[name]):
                kind.from_param(given)  # raises as ctypes would
            code = self.code_at.pop(len(self.calls) - 1, 0) or self._counted(name)
            if code:
                return code
            if name not in FREE_STANDING and self.context is None:
                return self.misuse(f"{name} without a context", 201)
            return getattr(self, f"_{name}")(*arguments) or 0

    def _counted(self, name):
        """The code of the n-th call of a name, where one was asked for."""
        for (wanted, left), code in list(self.code_of.items()):
            if wanted == name:
                del self.code_of[wanted, left]
                if left == 0:
                    return code
                self.code_of[wanted, left - 1] = code
        return 0

    def misuse(self, what, code=1):
        self.wrong.append(what)
        return code

    @property
    def context(self):
        return self.stack[-1] if self.stack else None

    @property
    def stack(self):
        if not hasattr(self.current, "stack"):
            self.current.stack = []
        return self.current.stack

    def made(self, kind, what=None):
        self._handle += 16
        self.alive[self._handle] = (kind, self.context, what)
        return self._handle

    def find(self, handle, kind):
        """What a handle is of, or None if that is wrong."""
        number = getattr(handle, "value", handle)
        found = self.alive.get(number)
        if found is None or found[0] != kind or found[1] != self.context:
            self.misuse(f"{number!r} is no {kind} of the current context: {found}")
            return None
        return found[2]

    def end(self, handle, kind):
        number = getattr(handle, "value", handle)
        if self.find(handle, kind) is None and kind not in ("stream", "event"):
            return 400
        return 0 if self.alive.pop(number, None) else 400

    def released(self):
        """What is left over: nothing, at the end."""
        left = [f"{kind} {handle:#x}" for handle, (kind, _, _) in self.alive.items()]
        left += [f"{len(array)} bytes by {how}" for array, _, how in self.memory.values()]
        left += [f"context {device} retained {n} times" for device, n in self.retained.items() if n]
        left += [f"a context is current in {threading.current_thread().name}"] if self.stack else []
        return left

    # Devices

    def _cuInit(self, flags):
        return 0 if self.devices else 100

    def _cuDriverGetVersion(self, into):
        into._obj.value = self.version

    def _cuGetErrorName(self, code, into):
        into._obj.value = NAMES.get(code, f"CUDA_ERROR_{code}").encode()

    def _cuGetErrorString(self, code, into):
        into._obj.value = f"what {code} means".encode()

    def _cuDeviceGetCount(self, into):
        into._obj.value = self.devices

    def _cuDeviceGet(self, into, number):
        into._obj.value = 40 + number  # a handle is no number
        return 0 if number < self.devices else 101

    def _cuDeviceGetName(self, into, size, device):
        into.value = f"Fake {device - 40}".encode()

    def _cuDeviceTotalMem_v2(self, into, device):
        into._obj.value = self.total

    def _cuDeviceGetAttribute(self, into, number, device):
        into._obj.value = ATTRIBUTES[number]

    def _cuDeviceGetDefaultMemPool(self, into, device):
        into._obj.value = 7000 + device

    def _cuDevicePrimaryCtxRetain(self, into, device):
        self.retained[device - 40] += 1
        into._obj.value = 900 + device

    def _cuDevicePrimaryCtxRelease_v2(self, device):
        self.retained[device - 40] -= 1
        if self.retained[device - 40] < 0:
            return self.misuse("a context is released more often than retained")
        return 0

    def _cuCtxGetCurrent(self, into):
        into._obj.value = self.context

    def _cuCtxPushCurrent_v2(self, context):
        if not self.retained.get(context - 940):
            return self.misuse("a context that is not retained becomes the current one", 201)
        self.stack.append(context)
        self.pushed += 1
        return 0

    def _cuCtxPopCurrent_v2(self, into):
        if not self.stack:
            return self.misuse("no context is current", 201)
        into._obj.value = self.stack.pop()
        return 0

    def _cuCtxSynchronize(self):
        self.drain_all()

    # Memory

    @property
    def taken(self):
        return sum(len(array) for array, _, how in self.memory.values() if how != "host")

    def _allocated(self, into, nbytes, how):
        if nbytes <= 0:
            return self.misuse(f"{nbytes} bytes are allocated")
        if how != "host" and self.taken + nbytes > self.total:
            return 2
        array = np.full(nbytes, 0xAB, np.uint8)
        address = array.ctypes.data if how == "host" else self._address
        if how != "host":
            self._address += (nbytes + 511) // 256 * 256  # with a gap behind it
        self.memory[address] = (array, self.context, how)
        self._starts = sorted(self.memory)
        into._obj.value = address
        return 0

    def _freed(self, address, ways):
        number = getattr(address, "value", address)
        found = self.memory.get(number)
        if found is None or found[2] not in ways or (found[1] != self.context and found[2] != "host"):
            return self.misuse(f"{number:#x} is freed by {ways}, and is {found and found[1:]}", 1)
        if self.now is not None:
            self._used(number, write=True)
        del self.memory[number]
        self.uses.pop(number, None)
        self._starts = sorted(self.memory)
        return 0

    def view(self, address, nbytes=None, write=False):
        """Memory of a device from an address on, to the end of its allocation if no size is told."""
        place = bisect_right(self._starts, address) - 1
        start = self._starts[place] if place >= 0 else -1
        array, context, _ = self.memory.get(start, (np.empty(0, np.uint8), None, ""))
        offset = address - start
        if place < 0 or offset + (nbytes or 0) > len(array) or context != self.context:
            self.misuse(f"{nbytes} bytes at {address:#x} are no memory of the current context")
            return np.zeros(nbytes or 0, np.uint8)
        if self.now is not None:
            self._used(start, write)
        return array[offset:] if nbytes is None else array[offset : offset + nbytes]

    def _used(self, start, write):
        """Takes notice of a use of memory; another stream's that did not end before it, if one of both writes, is
        wrong."""
        me, clock = self.now
        uses = self.uses.setdefault(start, {})
        for other, (read, written) in uses.items():
            if other != me and max(written, read if write else 0) > clock.get(other, 0):
                self.misuse(f"streams {me} and {other} use memory at {start:#x} in no order")
        read, written = uses.get(me, (0, 0))
        uses[me] = (read, clock[me]) if write else (clock[me], written)

    def _cuMemGetInfo_v2(self, free, total):
        free._obj.value, total._obj.value = self.total - self.taken, self.total

    def _cuMemAlloc_v2(self, into, nbytes):
        return self._allocated(into, nbytes, "plain")

    def _cuMemFree_v2(self, address):
        self.drain_all()
        return self._freed(address, ("plain", "pool"))

    def _cuMemAllocAsync(self, into, nbytes, stream):
        self.queue(stream)
        return self._allocated(into, nbytes, "pool")

    def _cuMemFreeAsync(self, address, stream):
        self.give(stream, lambda: self._freed(address, ("pool",)))

    def _cuMemHostAlloc(self, into, nbytes, flags):
        return self._allocated(into, nbytes, "host")

    def _cuMemFreeHost(self, address):
        self.drain_all()
        return self._freed(address, ("host",))

    def _cuMemPoolSetAttribute(self, pool, name, value):
        return 0

    def _cuMemPoolGetAttribute(self, pool, name, value):
        value._obj.value = sum(len(a) for a, _, how in self.memory.values() if how == "pool")

    def _cuMemPoolTrimTo(self, pool, size):
        return 0

    def _is_pinned(self, address, nbytes):
        place = bisect_right(self._starts, address) - 1
        array, _, how = self.memory.get(self._starts[place], ((), None, "")) if place >= 0 else ((), None, "")
        return how == "host" and address + nbytes <= self._starts[place] + len(array)

    def _cuMemcpyHtoDAsync_v2(self, into, source, nbytes, stream):
        host = (ctypes.c_uint8 * nbytes).from_address(source)
        data = np.frombuffer(host, np.uint8)
        if not self._is_pinned(source, nbytes):
            data = data.copy()  # pages are staged at once
        self.view(into, nbytes)
        self.give(stream, lambda: np.copyto(self.view(into, nbytes, write=True), data))

    def _cuMemcpyDtoHAsync_v2(self, into, source, nbytes, stream):
        host = np.frombuffer((ctypes.c_uint8 * nbytes).from_address(into), np.uint8)
        self.view(source, nbytes)
        self.give(stream, lambda: np.copyto(host, self.view(source, nbytes)))
        if not self._is_pinned(into, nbytes):
            self.drain(stream)

    def _cuMemcpyDtoDAsync_v2(self, into, source, nbytes, stream):
        self.give(stream, lambda: np.copyto(self.view(into, nbytes, write=True), self.view(source, nbytes).copy()))

    def _cuMemsetD8Async(self, into, value, nbytes, stream):
        self.give(stream, lambda: self.view(into, nbytes, write=True).fill(value))

    # Streams and events: what is queued happens when somebody waits

    def queue(self, stream):
        handle = getattr(stream, "value", stream) or 0
        if handle:
            self.find(handle, "stream")
        return self.queues.setdefault((self.context, handle), [])

    def give(self, stream, act):
        """Queues what a stream is to do: it knows what the stream has done before, and what the host has waited for."""
        self.queue(stream)
        key = (self.context, getattr(stream, "value", stream) or 0)
        clock = self.clocks.setdefault(key, {})
        _join(clock, self.host)
        clock[key] = clock.get(key, 0) + 1
        known = dict(clock)

        def operation():
            before, self.now = self.now, (key, known)
            try:
                act()
            finally:
                self.now = before

        self.queues[key].append(operation)
        return operation

    @collector_paused  # finalisers would wait for streams that are in the middle of something
    def drain(self, stream):
        """Has a stream do what it was given, and the host wait for it."""
        queue = self.queue(stream)
        while queue:
            queue.pop(0)()
        _join(self.host, self.clocks.get((self.context, getattr(stream, "value", stream) or 0), {}))

    @collector_paused
    def drain_all(self):
        for context, handle in list(self.queues):
            if context == self.context:
                while self.queues[context, handle]:
                    self.queues[context, handle].pop(0)()
                _join(self.host, self.clocks.get((context, handle), {}))

    def _cuStreamCreateWithPriority(self, into, flags, priority):
        into._obj.value = self.made("stream", flags)

    def _cuStreamDestroy_v2(self, stream):
        return self.end(stream, "stream")  # what it was given still happens

    def _cuStreamSynchronize(self, stream):
        self.drain(stream)

    def _cuStreamQuery(self, stream):
        return NOT_READY if self.queue(stream) else 0

    def _cuStreamWaitEvent(self, stream, event, flags):
        record = self.find(event, "event")
        if record is None:
            return 400
        marker, owner = record.get("marker"), record.get("stream")
        if marker is not None:
            self.give(stream, lambda: self._passed(owner, marker))
            _join(self.clocks[self.context, getattr(stream, "value", stream) or 0], record["clock"])
        return 0

    @collector_paused
    def _passed(self, owner, marker):
        """Does what a stream was given before a mark."""
        queue = self.queues.get(owner, [])
        while marker in queue:
            queue.pop(0)()

    def _cuEventCreate(self, into, flags):
        into._obj.value = self.made("event", {"flags": flags})

    def _cuEventDestroy_v2(self, event):
        return self.end(event, "event")

    def _cuEventRecord(self, event, stream):
        record = self.find(event, "event")
        if record is None:
            return 400
        self._recorded(record, stream)
        return 0

    def _recorded(self, record, stream):
        key = (self.context, getattr(stream, "value", stream) or 0)
        marker = self.give(stream, lambda: None)
        record.update(marker=marker, stream=key, clock=dict(self.clocks[key]))

    def _is_pending(self, record):
        return record.get("marker") in self.queues.get(record.get("stream"), [])

    def _cuEventQuery(self, event):
        record = self.find(event, "event")
        return 400 if record is None else NOT_READY if self._is_pending(record) else 0

    def _cuEventSynchronize(self, event):
        record = self.find(event, "event")
        if record is None:
            return 400
        if self._is_pending(record):
            self._passed(record["stream"], record["marker"])
        _join(self.host, record.get("clock", {}))
        return 0

    def _cuEventElapsedTime(self, into, start, end):
        first, last = self.find(start, "event"), self.find(end, "event")
        if first["flags"] & 2 or last["flags"] & 2 or self._is_pending(last):
            return self.misuse("events that tell no time, or have not happened")
        into._obj.value = 1.5
        return 0

    # Code

    def _cuLinkCreate_v2(self, count, options, values, into):
        logs = dict(zip(options[:count], values[:count]))
        into._obj.value = self.made("link", {"text": b"", "log": (logs[5], logs[6])})

    def _cuLinkAddData_v2(self, state, kind, data, size, name, count, options, values):
        found = self.find(state, "link")
        if kind != 1 or len(data) != size or data[-1:] != b"\0":
            return self.misuse("what is linked is no PTX that ends with a zero")
        if b".version" not in data:
            log, room = found["log"]
            ctypes.memmove(log, b"no .version\0", min(room, 12))
            return 218
        found["text"] += data[:-1]
        return 0

    def _cuLinkComplete(self, state, image, size):
        found = self.find(state, "link")
        found["image"] = ctypes.create_string_buffer(b"CUBIN" + found["text"])
        image._obj.value = ctypes.addressof(found["image"])
        size._obj.value = len(found["image"]) - 1
        self.assembled += 1

    def _cuLinkDestroy(self, state):
        return self.end(state, "link")

    def _cuModuleLoadData(self, into, image):
        if not image.startswith(b"CUBIN"):
            return self.misuse("a module is no cubin", 200)
        entries = {}
        for name, parameters in _ENTRY.findall(image):
            found = re.findall(rb"\.param[^,]*", parameters)
            entries[name.decode()] = [int(m[1]) if (m := re.search(rb"\[(\d+)\]", p)) else 8 for p in found]
        into._obj.value = self.made("module", entries)
        return 0

    def _cuModuleUnload(self, module):
        self.drain_all()
        number = getattr(module, "value", module)
        for handle, (kind, _, what) in list(self.alive.items()):
            if kind == "function" and what["module"] == number:
                del self.alive[handle]
        return self.end(module, "module")

    def _cuModuleGetFunction(self, into, module, name):
        entries = self.find(module, "module")
        if entries is None or name.decode() not in entries:
            return 500
        number = getattr(module, "value", module)
        what = {"name": name.decode(), "module": number, "sizes": entries[name.decode()], "shared": 48 << 10, "wide": 0}
        into._obj.value = self.made("function", what)
        return 0

    def _cuFuncGetAttribute(self, into, attribute, function):
        self.find(function, "function")
        into._obj.value = {0: 1024, 1: 0, 2: 0, 3: 0, 4: 32}[attribute]

    def _cuFuncSetAttribute(self, function, attribute, value):
        self.find(function, "function")["shared" if attribute == 8 else "wide"] = value

    def _launched(self, function, grid, block, shared, parameters, cluster=1):
        found = self.find(function, "function")
        if found is None:
            return None
        if shared > found["shared"] or (cluster > 8 and not found["wide"]):
            self.misuse(f"{shared} shared bytes or clusters of {cluster} were not asked for")
        if min(grid) < 1 or min(block) < 1 or np.prod(block) > 1024 or grid[0] % cluster:
            self.misuse(f"a grid of {grid}, blocks of {block}, clusters of {cluster}")
        values = [ctypes.string_at(parameters[n], size) for n, size in enumerate(found["sizes"])]
        for at, size in zip(range(len(values)), found["sizes"]):
            if size == 128 and parameters[at] % 64:
                self.misuse("a tensor map is not at a multiple of 64")
        number = getattr(function, "value", function)
        return Launched(found["name"], tuple(grid), tuple(block), shared, tuple(values), cluster, number)

    def ran(self, launched):
        """Runs a kernel; the module must still be there."""
        if self.find(launched.handle, "function") is not None:
            self.kernels[launched.name](self, launched)

    def _cuLaunchKernelEx(self, config, function, parameters, extra):
        c = config._obj
        cluster = c.attributes[0].value[0] if c.count else 1
        made = self._launched(function, c.grid, c.block, c.shared, parameters, cluster)
        self.give(c.stream, lambda: self.ran(made))
        return 0 if made else 400

    # Graphs

    def _cuGraphCreate(self, into, flags):
        into._obj.value = self.made("graph", {"nodes": [], "edges": []})

    def _cuGraphDestroy(self, graph):
        for node in self.find(graph, "graph")["nodes"]:
            self.alive.pop(node)
        return self.end(graph, "graph")

    def _node(self, into, graph, what):
        found = self.find(graph, "graph")
        into._obj.value = self.made("node", what)
        found["nodes"].append(into._obj.value)

    def _cuGraphAddKernelNode_v2(self, into, graph, before, count, params):
        p = params._obj
        made = self._launched(p.function, p.grid, p.block, p.shared, p.parameters)
        return 400 if made is None else self._node(into, graph, {"kernel": made})

    def _cuGraphAddEventRecordNode(self, into, graph, before, count, event):
        return self._node(into, graph, {"event": self.find(event, "event")})

    def _cuGraphKernelNodeSetAttribute(self, node, attribute, value):
        found = self.find(node, "node")
        found["kernel"] = found["kernel"]._replace(cluster=value._obj[0])

    def _cuGraphAddDependencies_v2(self, graph, before, after, edge, count):
        ends = before._obj.value, after._obj.value
        edges = self.find(graph, "graph")
        kinds = [self.find(end, "node") for end in ends]
        if edge._obj.type and not all("kernel" in kind for kind in kinds):
            return self.misuse("an early edge is between kernels")
        if edge._obj.type and edge._obj.from_port != 1:
            return self.misuse("an early edge leaves a kernel by port 1")
        edges["edges"].append((*ends, bool(edge._obj.type)))
        return 0

    def _cuGraphAddDependencies(self, graph, before, after, count):
        self.find(graph, "graph")["edges"].append((before._obj.value, after._obj.value, False))

    def _cuGraphInstantiateWithFlags(self, into, graph, flags):
        found = self.find(graph, "graph")
        chain = [(a, b) for a, b, _ in found["edges"]]
        if chain != list(zip(found["nodes"], found["nodes"][1:])):
            self.misuse("the nodes of a graph are no chain")
        nodes = {node: dict(self.alive[node][2]) for node in found["nodes"]}
        into._obj.value = self.made("exec", {"nodes": nodes, "early": [early for *_, early in found["edges"]]})

    def _cuGraphExecDestroy(self, made):
        return self.end(made, "exec")

    def _cuGraphExecKernelNodeSetParams_v2(self, made, node, params):
        p, found = params._obj, self.find(made, "exec")["nodes"]
        self.find(node, "node")
        number = getattr(node, "value", node)
        old = found[number]["kernel"]
        found[number] = {"kernel": self._launched(p.function, p.grid, p.block, p.shared, p.parameters, old.cluster)}

    def _cuGraphLaunch(self, made, stream):
        found = self.find(made, "exec")
        if found is None:
            return 400
        for node in found["nodes"].values():
            if "event" in node:
                self._recorded(node["event"], stream)
            else:
                self.give(stream, lambda kernel=node["kernel"]: self.ran(kernel))
        return 0

    # Tensor maps

    def _encoded(self, into, kind, element, rank, address, dims, strides, *more):
        dims, strides = tuple(dims[:rank]), tuple(strides[: rank - 1])
        if into % 64 or address % 16 or any(stride % 16 for stride in strides):
            return 1
        self.maps.append(Map(kind, element, address, dims, strides, more))
        ctypes.memmove(into, f"map {len(self.maps) - 1}".encode().ljust(128, b"\0"), 128)
        return 0

    def _cuTensorMapEncodeTiled(self, into, element, rank, address, dims, strides, box, steps, *modes):
        if max(box) > 256:
            return 1
        return self._encoded(into, "tiled", element, rank, address, dims, strides, tuple(box), tuple(steps), modes)

    def _cuTensorMapEncodeIm2col(self, into, element, rank, address, dims, strides, lower, upper, *more):
        channels, pixels, steps, *modes = more
        told = (tuple(lower), tuple(upper), channels, pixels, tuple(steps), tuple(modes))
        return self._encoded(into, "im2col", element, rank, address, dims, strides, *told)

    def map_of(self, parameter):
        """What a parameter that is a tensor map was encoded from."""
        return self.maps[int(parameter.rstrip(b"\0").split()[1])]

    def word(self, parameter):
        """A parameter of 64 bits as a number with a sign."""
        return int.from_bytes(parameter, "little", signed=True)

    def array(self, parameter, dtype, count, write=False):
        """The memory that a parameter points to."""
        dtype = np.dtype(dtype)
        return self.view(self.word(parameter), count * dtype.itemsize, write).view(dtype)


def _join(clock, other):
    for key, time in other.items():
        clock[key] = max(clock.get(key, 0), time)


def _is_in_finaliser():
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def ptx(*names, parameters=3, maps=0):
    """A text in which there are kernels of some names, with parameters of 64 bits and tensor maps."""
    listed = [f".param .u64 p{n}" for n in range(parameters)] + [f".param .align 64 .b8 m{n}[128]" for n in range(maps)]
    entries = "".join(f"\n.visible .entry {name}({', '.join(listed)})\n{{ ret; }}" for name in names)
    return f".version 8.1\n.target sm_90a\n.address_size 64\n{entries}\n".encode()
