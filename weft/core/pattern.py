"""OpPattern: how an operator may join its neighbours in one kernel."""

from __future__ import annotations


class OpPattern:
    """The order matters: a larger one is harder to fuse."""

    ELEM_WISE = 0  # out[i] = f(in[i])
    BROADCAST = 1  # out[i, j] = f(in[i]): element-wise after broadcasting
    INJECTIVE = 2  # every output element reads one input element: transpose, reshape, slices
    COMM_REDUCE = 3  # sums, maxima
    OUT_ELEMWISE_FUSABLE = 4  # conv2d, dense: element-wise work may follow inside
    OPAQUE = 8  # stands alone
