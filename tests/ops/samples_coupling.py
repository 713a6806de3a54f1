"""Samples of probabilities of classes from those of pairs. The oracle takes libsvm's steps, number by number; they end
near the solution of the linear system that the method stands for."""

import numpy as np
from sample import Sample, samples


def stepped(r):
    """Algorithm 2 of Wu, Lin and Weng."""
    count = len(r)
    q = [[-r[j][i] * r[i][j] for j in range(count)] for i in range(count)]
    for i in range(count):
        q[i][i] = sum(r[j][i] ** 2 for j in range(count) if j != i)
    p = [1 / count] * count
    for _ in range(max(100, count)):
        qp = [sum(q[i][j] * p[j] for j in range(count)) for i in range(count)]
        pqp = sum(a * b for a, b in zip(p, qp))
        if max(abs(a - pqp) for a in qp) < 0.005 / count:
            break
        for i in range(count):
            step = (pqp - qp[i]) / q[i][i]
            p[i] += step
            pqp = (pqp + step * (step * q[i][i] + 2 * qp[i])) / (1 + step) ** 2
            qp = [(a + step * b) / (1 + step) for a, b in zip(qp, q[i])]
            p = [a / (1 + step) for a in p]
    return p


def solved(r):
    """Q p is the same number in all places, and the sum of p is 1."""
    q = -r.T * r
    np.fill_diagonal(q, np.square(r).sum(0) - np.square(np.diag(r)))
    ones = np.ones((len(r), 1))
    return np.linalg.solve(np.block([[q, ones], [ones.T, np.zeros((1, 1))]]), np.r_[np.zeros(len(r)), 1])[:-1]


def answer(r):
    made = [stepped(table.tolist()) for table in r]
    np.testing.assert_allclose(made, [solved(table) for table in r.astype(float)] or np.zeros((0,)), atol=0.02)
    return np.array(made, r.dtype).reshape(r.shape[:2])


@samples("pairwise_coupling", system="numpy")
def pairwise_coupling(rng, numpy):
    for rows, count in ((3, 2), (5, 3), (2, 5), (0, 3)):
        r = rng.uniform(0.1, 0.9, (rows, count, count))
        r = np.where(np.triu(np.ones((count, count), bool), 1), r, 1 - r.swapaxes(1, 2))
        yield Sample([r.astype(np.float32)], {}, answer, rtol=1e-4)
