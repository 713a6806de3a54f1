"""Calls on tensors of a device. While a function of the table runs on such tensors, what it does goes through `Calls`,
which stands where recordings do: operators run on the device, and what numpy computes goes to the host and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.errors import Error, RunError, ShapeError
from ...core.infer import infer_node
from ...core.ir import Fact
from ...core.op import Op
from ...core.plan import Plan
from ...runtime.cuda.context import Context, platform
from .. import native
from ..autograd.modes import modes
from ..autograd.view_writes import Clear, Pick
from ..dispatch import OpKernel, computed, is_shape_alone, kernel_of
from ..functions.around import Args, Kwargs, Rest
from ..recording import StandIn
from ..tensor.device import CPU, device, located
from ..tensor.memory import Array, array_of, index_of
from ..tensor.tensor import Tensor, tensor_of, wrap
from .copies import copy_elements
from .memory import OnDevice, empty_on, uploaded
from .programs import Call, known_call, operator_call, plan_call
from .scalars import constant_on, filled, unread_on
from .told import tell_host

# Functions that take tensors of several devices: results are where the first is, or on the device that is asked for.
MIXING = frozenset("copy_ to type_as cpu cuda weft.getitem weft.setitem_ __getitem__".split())
LEAVING = frozenset("to type_as cpu cuda ToCopyBackward0".split())


class Calls:
    """What takes operators while a function runs on tensors of a device."""

    records = False  # autograd's graph is made as ever
    inside = True

    def add(self, op: Op, params: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Applies an operator, as dispatch does."""
        memories = [tensor._array for tensor in inputs]
        context = _context_of(memories)
        if context is None:
            return computed(kernel_of(op), params, inputs)
        index = context.index
        try:
            call = known_call((op, params), memories, context)
        except TypeError:  # attributes without a hash
            return self._hosted(kernel_of(op), params, inputs, index)
        if call is None:
            if any([memory.dtype.kind == "c" for memory in memories]):
                return self._hosted(kernel_of(op), params, inputs, index)
            facts = _inferred(op, params, inputs)
            if all([0 in (fact.shape or ()) for fact in facts]):
                return [wrap(empty_on(index, fact.shape, fact.dtype)) for fact in facts]  # type: ignore[arg-type]
            call = operator_call(op, params, [on_device(index, memory) for memory in memories], context)
        given = _readable(memories, call)
        made = [wrap(memory) for memory in call.run(given)]
        if call.writes:
            _write_back([(inputs[place], given[place]) for place in call.writes])
        return made

    def fused(self, plan: Plan, tensors: Sequence[Tensor]) -> list[Tensor] | None:
        """The results of the steps of a plan in one go, of which none is a leaf; None where they go one by one."""
        context = _context_of([tensor._array for tensor in tensors])
        if context is None or plan in _APART or any([tensor._array.dtype.kind == "c" for tensor in tensors]):
            return None
        memories = [on_device(context.index, tensor._array) for tensor in tensors]
        if not all([memory.size for memory in memories]):
            return None
        try:
            call = plan_call(plan, memories, context)
        except Error:  # what is wrong, the steps will tell
            _APART.add(plan)
            return None
        return [wrap(memory) for memory in call.run(_readable(memories, call))]

    def _hosted(self, kernel: OpKernel, params: Any, inputs: Sequence[Tensor], index: int) -> list[Tensor]:
        """The outputs of an operator that no kernel of a device computes: complex numbers have none."""
        tell_host(kernel.op.name)
        hosts = [tensor_of(host_of(tensor._array), [0], None, 0) for tensor in inputs]
        made = computed(kernel, params, hosts)
        if kernel.mutates:
            for place in kernel.op.mutates_of(params):
                write(inputs[place]._array, hosts[place]._array)
                inputs[place]._counter[0] += 1
        for tensor in made:
            tensor._array = uploaded(index, array_of(tensor))
        return made

    # What recordings are asked, too.

    def bring(self, tensor: Tensor, index: int) -> None:
        """Has a tensor that the host computed be on a device."""
        tensor._array = uploaded(index, array_of(tensor))

    def made(self, tensor: Tensor) -> None:
        """Told of every tensor that is made meanwhile."""

    def viewed(self, view: Tensor, source: Tensor) -> None:
        """Told of every view that is made meanwhile."""

    def asks_grad(self, tensor: Tensor) -> None:
        """Told when the gradient of a leaf is added to."""

    def sets_grad(self, tensor: Tensor) -> None:
        """Told when the gradient of a leaf is dropped."""

    def draws(self, generator: Any) -> None:
        """Told before a generator draws, which the host does."""

    def decline(self, why: str) -> None:
        """Said by a function that looks at values, which it then asks for."""

    def act(self, function: Callable[[], Any], *more: Any) -> Any:
        """What a recording runs again in every call."""
        return function()

    def put(self, target: Tensor, result: Tensor) -> None:
        """Writes values to a tensor."""
        memory, values = target._array, result._array
        if memory is not values:
            write(memory, values)

    def mapped(self, kind: type, tensor: Tensor, region: Any) -> Any:
        """A map between a base and a part of it, as `view_writes` names them."""
        source = tensor._array
        if not isinstance(source, OnDevice):
            return kind.values(source, region)  # type: ignore[attr-defined]
        words = filled(source.index, (-(-region.bytes // 8),), np.dtype(np.int64), 0)
        whole, part = (
            words.part(shape, dtype, start, strides)
            for start, shape, dtype, strides in (
                (region.base_start, region.base_shape, region.base_dtype, region.base_strides),
                (region.start, region.shape, region.dtype, region.strides),
            )
        )
        if kind is Pick:
            copy_elements(whole, source)
            return part.copy()
        if kind is not Clear:
            copy_elements(part, source)
            return whole.copy()
        copy_elements(whole, source)
        copy_elements(part, constant_on(source.index, np.zeros((), region.dtype)).broadcast(part.shape))
        return whole.copy()

    def host(self, function: Callable[..., Array], tensors: Sequence[Tensor]) -> Any:
        """Memory with what numpy computes of tensors."""
        index = index_of([tensor._array for tensor in tensors])
        if index is None:
            return function(*[array_of(tensor) for tensor in tensors])
        tell_host(getattr(function, "__name__", type(function).__name__))
        made = function(*[host_of(tensor._array) for tensor in tensors])
        return uploaded(index, made) if isinstance(made, np.ndarray) else made

    def check(self, check: Callable[[Array], None], tensor: Tensor) -> None:
        """Has a function look at values, on a copy."""
        check(host_of(tensor._array))


CALLS = Calls()


def applied(op: Op, params: Any, inputs: Sequence[Tensor]) -> list[Tensor] | None:
    """The outputs of an operator on tensors of a device; None if they are on none."""
    return None if index_of([tensor._array for tensor in inputs]) is None else CALLS.add(op, params, inputs)


def around(name: str, rest: Rest, args: Args, kwargs: Kwargs) -> Any:
    """The layer around calls of functions: one with tensors of a device runs there, and so are its results. While a
    function is recorded, the same is said of stand-ins."""
    trace = modes.trace
    if trace is not None and getattr(trace, "inside", True):
        return rest(args, kwargs)
    tensors = tensors_in((*args, *kwargs.values()) if kwargs else args)
    index, is_alike = _where(tensors)
    if index is None:
        return rest(args, kwargs)
    if not is_alike and name not in MIXING and not name.endswith("Backward0"):
        check_alike(name, tensors)
    if trace is None:
        modes.trace = CALLS
    else:
        trace.inside = True
    try:
        made = rest(args, kwargs)
        stays = name in LEAVING or (name in MIXING and tensors[0].is_cpu)
        if not stays and not (kwargs and _asks_for_host(kwargs)):
            bring(made, index)
        return made
    finally:
        if trace is None:
            modes.trace = None
        else:
            trace.inside = False


def _where(tensors: Sequence[Tensor]) -> tuple[int | None, bool]:
    """The device that some tensors are on, if one is, and whether all are there."""
    found, is_alike = None, True
    for tensor in tensors:
        memory: Any = tensor._array
        number = None if type(memory) is np.ndarray else getattr(memory, "index", None)
        if number is None:
            is_alike = False
        elif found is None:
            found = number
        elif number != found:
            is_alike = False
    return found, is_alike


def _asks_for_host(kwargs: Kwargs) -> bool:
    """Whether a function that makes a tensor is told to do so on the processor."""
    return kwargs.get("device") is not None and located(kwargs["device"]) == CPU


def bring(made: Any, index: int) -> None:
    """Has results that the host computed on the device of the others."""
    for tensor in (made,) if type(made) is Tensor else tensors_in((made,)):
        memory = tensor._array
        if type(memory) is np.ndarray or (isinstance(memory, StandIn) and memory.index is None):
            modes.trace.bring(tensor, index)


def tensors_in(values: Sequence[Any], depth: int = 4) -> list[Tensor]:
    """Tensors among values and in lists of them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)) and depth:
            found += tensors_in(value, depth - 1)
    return found


def check_alike(name: str, tensors: Sequence[Tensor]) -> None:
    """Refuses tensors of several devices; numbers of the processor go with all."""
    where = {number: tensor.device for number, tensor in enumerate(tensors) if tensor.ndim or not tensor.is_cpu}
    if len(set(where.values())) > 1:
        told = ", ".join(f"tensor {number + 1} {list(tensors[number].shape)} on {at}" for number, at in where.items())
        raise RunError(
            f"{name}: Expected all tensors to be on the same device, but found at least two devices, "
            + " and ".join(dict.fromkeys(map(str, where.values()))),
            why=f"among the arguments are {told}",
            hint="move them to one device: tensor.to(other.device)",
        )


def on_device(index: int, memory: Any) -> OnDevice:
    """Memory on a device: itself, or a copy of an array of the host."""
    if isinstance(memory, OnDevice):
        if memory.index != index:
            raise RunError(
                f"memory of {memory.device} is used on {device('cuda', index)}",
                hint="move the tensors to one device: tensor.to(other.device)",
            )
        return memory
    array: Array = memory if isinstance(memory, np.ndarray) else np.asarray(memory)
    if array.base is not None and is_shape_alone(array):
        return unread_on(index, array.shape, array.dtype)
    return constant_on(index, array) if array.size == 1 else uploaded(index, array)


def host_of(memory: Any) -> Array:
    """The elements of memory on the host."""
    return memory.read() if isinstance(memory, OnDevice) else memory


def write(target: Any, values: Any) -> None:
    """Writes elements to memory of the same shape and dtype, wherever both are."""
    if not isinstance(target, OnDevice):
        native.copy_into(target, host_of(values))
    elif isinstance(values, OnDevice) and values.index == target.index:
        copy_elements(target, values)
    else:
        target.write(host_of(values))


_APART: set[Plan] = set()  # plans whose steps go one by one


def _context_of(memories: Sequence[Any]) -> Context | None:
    """That of the device that memory is on, if some is."""
    for memory in memories:
        if type(memory) is OnDevice:
            found: Context = memory.owner.context
            return found
    index = index_of(memories)
    return None if index is None else platform().context(index)


def _readable(memories: Sequence[Any], call: Call) -> list[OnDevice]:
    """Memory as kernels read it: on the device, in order. Of some of it nothing but the shape is asked."""
    found, context = [], call.context
    for number, memory in enumerate(memories):
        if type(memory) is not OnDevice or memory.owner.context is not context:
            memory = on_device(context.index, memory)
        found.append(memory if memory.is_dense or number not in call.read else memory.copy())
    return found


def _inferred(op: Op, params: Any, inputs: Sequence[Tensor]) -> Sequence[Fact]:
    given = [Fact(tensor._array.shape, tensor._array.dtype) for tensor in inputs]
    try:
        return infer_node(op, params, given, op.name)
    except ShapeError as error:  # which is a RunError where the operator runs
        shapes = ", ".join(f"{dtype}{list(shape or ())}" for shape, dtype, *_ in given)
        raise RunError(f"{op.name} cannot be applied to {shapes}", why=error.what) from None


def _write_back(written: Sequence[tuple[Tensor, OnDevice]]) -> None:
    """What an operator wrote to copies of inputs, where it belongs."""
    for tensor, memory in written:
        if tensor._array is not memory:
            write(tensor._array, memory)
        tensor._counter[0] += 1
