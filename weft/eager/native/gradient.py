"""The steps of a gradient in one go: a rule that composes element-wise operators and reductions is
one native computation, where its arrays are large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.dtype import BOOL, FLOAT32, FLOAT64
from ...base.errors import Error
from ...core.op import Op
from ...core.pattern import OpPattern
from ...core.plan import Plan
from ...lower.cpu.open.pointwise import Element, element_of
from ..autograd.derivative import KEPT_PROGRAMS, UNKNOWN, Wanted
from .generic import run_computed
from .pointwise import op_key, run_pointwise

Array = np.ndarray[Any, Any]

FUSED_FROM = 1 << 8  # elements of the largest array


class FusedGradient:
    """A rule whose steps can be computed together."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.key = ("gradient", plan.keyed(op_key))
        self.elements: dict[Any, list[Element | None]] = {}
        self.routes: dict[Any, list[Element] | None] = {}
        self.fails = False

    def run(self, arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> list[Array] | None:
        """The results, of these shapes, for the leaves' arrays; None where that is not for native
        code."""
        spot = (*[(array.shape, array.dtype) for array in arrays], *shapes)
        bodies = self.routes.get(spot, UNKNOWN)
        if bodies is UNKNOWN:
            if len(self.routes) >= KEPT_PROGRAMS:
                self.routes.clear()
            bodies = self.routes[spot] = self._route(arrays, shapes)
        if bodies is None:
            return None
        if not bodies:
            return self._generic(arrays)
        return [
            _stretched(run_pointwise((self.key, number), body, arrays), shapes[0]) for number, body in enumerate(bodies)
        ]

    def _route(self, arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> list[Element] | None:
        """Each result as what it does to an element, for arrays that all have its shape, or one
        element for all of it; an empty list where they need the generic way."""
        dtypes, whole = tuple([array.dtype for array in arrays]), shapes[0]
        if any([dtype not in (FLOAT32, FLOAT64, BOOL) for dtype in dtypes]):
            return None
        alike = all([array.shape == whole or array.size == 1 for array in arrays])
        if alike and all([shape == whole for shape in shapes]):
            if dtypes not in self.elements:
                self.elements[dtypes] = [
                    element_of(self.plan._replace(results=(place,)).compute, dtypes)
                    for place in self.plan.results
                    if place is not None
                ]
            bodies = self.elements[dtypes]
            if None not in bodies:
                return bodies  # type: ignore[return-value]
        return [] if len(set(dtypes)) == 1 and dtypes[0] != BOOL else None

    def _generic(self, arrays: Sequence[Array]) -> list[Array] | None:
        if any([not array.size for array in arrays]):
            return None
        try:
            return run_computed(self.key, "gradient", self.plan.compute, arrays)
        except (Error, TypeError, ValueError, AssertionError):
            self.fails = True  # a step takes shapes in a way that extents do not have
            return None


def _stretched(made: Array, shape: tuple[int, ...]) -> Array:
    return made if made.shape == shape else np.broadcast_to(made, shape)


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
        return None


def _fits(op: Op) -> bool:
    if not Op.compute.contains(op) or Op.mutates.contains(op):
        return False
    pattern = Op.pattern.get(op)
    kinds = (OpPattern.ELEM_WISE, OpPattern.BROADCAST, OpPattern.COMM_REDUCE)
    return pattern in kinds or op.same_if_alike  # which changes shapes between the others
