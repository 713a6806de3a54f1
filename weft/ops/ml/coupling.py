"""Probabilities of classes from those of all pairs of them (Wu, Lin and Weng 2004, their second method)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.dtype import FLOAT64
from ...base.shape import unify_dim
from .._families import Inferred, Shapes, define, floating, ranked
from .._kernels import Body, variable

STEPS = 100  # at most; as many as there are classes where those are more
NEAR = 0.005  # the error at which it ends, over the number of classes


def _shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    rows, classes, others = ranked(ins[0], 3, "the data")
    rows_out, classes_out = ranked(outs[0], 2, "the output")
    rows, classes = unify_dim(rows, rows_out), unify_dim(unify_dim(classes, others), classes_out)
    return [(rows, classes, classes)], [(rows, classes)]


def _reference(r: Any) -> Any:
    return np.array([_coupled(table) for table in r.astype(FLOAT64)], r.dtype).reshape(r.shape[:2])


def _coupled(r: Any) -> Any:
    """p that has the least sum of (r_ji p_i - r_ij p_j)^2, and 1 as its sum: Newton's steps, a coordinate at a time."""
    count = len(r)
    apart = ~np.eye(count, dtype=bool)
    q = np.where(apart, -r.T * r, np.diag(np.square(r).sum(0, where=apart)))
    p = np.full(count, 1 / max(count, 1))
    for _ in range(max(STEPS, count)):
        qp = q @ p
        pqp = p @ qp
        if np.max(np.abs(qp - pqp), initial=0) < NEAR / max(count, 1):
            break
        for t in range(count):
            step = (pqp - qp[t]) / q[t, t]
            p[t] += step
            pqp = (pqp + step * (step * q[t, t] + 2 * qp[t])) / (1 + step) ** 2
            qp = (qp + step * q[t]) / (1 + step)
            p /= 1 + step
    return p


def _kernels(inputs: Any, outputs: Any) -> Any:
    """A row a thread."""
    ((rows, count, _), _), (_, dtype) = inputs[0], outputs[0]
    body = Body("pairwise_coupling", inputs, outputs)
    matrix = body.temporary((rows, count, count), FLOAT64)
    vectors = body.temporary((rows, 2, count), FLOAT64)
    views = {0: (rows, count, count), 1: (rows, count), matrix: (rows, count, count), vectors: (rows, 2, count)}
    with body.kernel(views, rows * count * count * 20) as (b, r, out, q, v), b.parallel("row", rows) as row:
        pqp, error = variable(b, "pqp", 0, FLOAT64), variable(b, "error", 1, FLOAT64)
        left = variable(b, "left", max(STEPS, count))
        p, qp = (lambda t: v[row, 0, t]), (lambda t: v[row, 1, t])
        with b.loop("t", count) as t:
            b.store(v, (row, 0, t), 1 / count)
            b.store(pqp, (), 0)
            with b.loop("j", count) as j, b.when(j.not_equal(t)):
                to, back = te.cast(r[row, j, t], FLOAT64), te.cast(r[row, t, j], FLOAT64)
                b.store(q, (row, t, j), -(to * back))
                b.store(pqp, (), pqp[()] + to * to)
            b.store(q, (row, t, t), pqp[()])
        with b.repeat_while((left[()] > 0) & te.logical_not(error[()] < NEAR / max(count, 1))):
            b.store(left, (), left[()] - 1)
            b.store(pqp, (), 0)
            with b.loop("t", count) as t:
                b.store(v, (row, 1, t), 0)
                with b.loop("j", count) as j:
                    b.store(v, (row, 1, t), qp(t) + q[row, t, j] * p(j))
                b.store(pqp, (), pqp[()] + p(t) * qp(t))
            b.store(error, (), 0)
            with b.loop("t", count) as t:
                b.store(error, (), te.max(error[()], te.abs(qp(t) - pqp[()])))
            with b.when(te.logical_not(error[()] < NEAR / max(count, 1))), b.loop("t", count) as t:
                step = b.let("step", (pqp[()] - qp(t)) / q[row, t, t])
                grown = b.let("grown", step + 1.0)
                raised = pqp[()] + step * (step * q[row, t, t] + qp(t) * 2.0)
                b.store(pqp, (), raised / (grown * grown))
                b.store(v, (row, 0, t), p(t) + step)
                with b.loop("j", count) as j:
                    b.store(v, (row, 1, j), (qp(j) + step * q[row, t, j]) / grown)
                    b.store(v, (row, 0, j), p(j) / grown)
        with b.loop("t", count) as t:
            b.store(out, (row, t), te.cast(p(t), dtype))
    return body.kernels


pairwise_coupling = define(
    "pairwise_coupling",
    "Probabilities p of classes from r, where r[i, j] is that of class i if it is i or j: those for which the sum of "
    "(r_ji p_i - r_ij p_j)^2 is least, found to within 0.005 / classes as libsvm does. The diagonal is not read.",
    level=10,
    inputs={"data": "(rows, classes, classes)"},
    shape=_shape,
    dtype=floating,
    reference=_reference,
    kernels=_kernels,
)
