"""The steps of a gradient in one go: a rule that composes element-wise operators and reductions is
one native computation, where its arrays are large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.dtype import BOOL, FLOAT32, FLOAT64
from ...compiler.disk_cache import is_own
from ...core.op import Op
from ...core.pattern import OpPattern
from ...core.plan import Plan
from ...lower.cpu.nests.element import Element, element_of
from ..autograd.derivative import KEPT_PROGRAMS, Wanted
from .calls import Array, Reason, count_declined
from .generic import run_computed
from .pointwise import op_key, run_pointwise


class FusedGradient:
    """A rule whose steps can be computed together."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.key = ("gradient", plan.keyed(op_key))  # all that decides what is computed
        self.is_own = all([is_own(Op.compute[step.op]) for step in plan.steps])
        self.elements: dict[Any, list[Element | None]] = {}
        self.routes: dict[Any, list[Element] | Reason] = {}

    def run(self, arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> list[Array] | None:
        """The results, of these shapes, for the leaves' arrays; None where native code declines."""
        spot = (*[(array.shape, array.dtype) for array in arrays], *shapes)
        bodies = self.routes.get(spot)
        if bodies is None:
            if len(self.routes) >= KEPT_PROGRAMS:
                self.routes.clear()
            bodies = self.routes[spot] = self._route(arrays, shapes)
        if isinstance(bodies, str):
            count_declined("gradient", bodies)
            return None
        if not bodies:
            return run_computed(self.key, "gradient", self.plan.compute, arrays)
        return [
            _stretched(run_pointwise((self.key, number), body, arrays), shapes[0]) for number, body in enumerate(bodies)
        ]

    def _route(self, arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> list[Element] | Reason:
        """Each result as what it does to an element, for arrays that all have its shape, or one element for all of
        it; an empty list where they need the generic way; or why there is none."""
        dtypes, whole = tuple([array.dtype for array in arrays]), shapes[0]
        if any([dtype not in (FLOAT32, FLOAT64, BOOL) for dtype in dtypes]):
            return "dtype"
        alike = all([array.shape == whole or array.size == 1 for array in arrays])
        if alike and all([shape == whole for shape in shapes]):
            if dtypes not in self.elements:
                wanted = [place for place in self.plan.results if place is not None]
                plans = [self.plan._replace(results=(place,)) for place in wanted]
                self.elements[dtypes] = [element_of(plan.compute, dtypes) for plan in plans]
            bodies = [body for body in self.elements[dtypes] if body is not None]
            if len(bodies) == len(self.elements[dtypes]):
                return bodies
        if len(set(dtypes)) > 1 or dtypes[0] == BOOL:
            return "dtype"
        if not self.is_own:  # its compute may take shapes in a way that extents do not have
            return "compute"
        return [] if all([array.size for array in arrays]) else "empty"


def _stretched(result: Array, shape: tuple[int, ...]) -> Array:
    return result if result.shape == shape else np.broadcast_to(result, shape)


def fused_gradient(wanted: Wanted) -> FusedGradient | None:
    """The rule as one computation, if it has at least two steps that do something, each
    element-wise or a reduction."""
    steps, results = wanted.plan
    if sum(not step.op.same_if_alike for step in steps) < 2:
        return None
    if not all(_fits(step.op) for step in steps):
        return None
    leaves = len(wanted.values) + len(wanted.shapes) + len(wanted.grads)
    if any(place is not None and place < leaves for place in results):
        return None
    try:
        return FusedGradient(wanted.plan)
    except TypeError:  # params without a hash
        count_declined("gradient", "attributes")
        return None


def _fits(op: Op) -> bool:
    """Whether an operator is element-wise, a reduction, or changes the shape between those."""
    if not Op.compute.contains(op) or Op.mutates.contains(op) or op.pattern > OpPattern.COMM_REDUCE:
        return False
    return op.pattern != OpPattern.INJECTIVE or op.open_body or op.same_if_alike
