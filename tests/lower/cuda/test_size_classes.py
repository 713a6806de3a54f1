"""Classes of open sizes: what is decided about a size depends on its class alone."""

import pytest

from weft.lower.cuda.size_classes import CUTS, SAMPLES, least_loss, most_common, samples
from weft.te.extents import Trace


def test_numbers_are_their_only_sample():
    assert samples(3, 400) == [(3, 400)]


@pytest.mark.parametrize(("first", "second"), [((1, 5), (8, 7)), ((9, 600), (64, 10_000)), ((513, 65), (4000, 512))])
def test_sizes_of_a_class_are_decided_alike(first, second):
    """The same samples and the same guards, which tell classes apart."""
    found = []
    for n, s in (first, second):
        trace = Trace(stays_open=True)
        batch, length = (trace.general(trace.extent(name, value)) for name, value in (("n", n), ("s", s)))
        found.append((samples(batch * length, 64, length), trace.table()))
    assert found[0] == found[1]
    table = found[0][1]
    assert table.numbers(first) is not None
    assert table.numbers(second) is not None
    for cut in CUTS:
        for place in (0, 1):
            here, beyond = list(first), list(first)
            here[place], beyond[place] = cut, cut + 1
            assert table.numbers(here) is None or table.numbers(beyond) is None


def test_samples_are_of_the_class():
    trace = Trace(stays_open=True)
    n = trace.general(trace.extent("n", 50))
    assert samples(n * 197, n) == [(197 * size, size) for size in SAMPLES[1]]
    assert SAMPLES[1][0] > CUTS[0]
    assert SAMPLES[1][-1] == CUTS[1]


def test_the_least_loss():
    """Of one case the best; of two, what is a bit behind in both goes before what is far behind in one."""
    costs = {"a": (1.0, 9.0), "b": (1.2, 3.3), "c": (5.0, 3.0)}
    one, other = (lambda choice, n=n: costs[choice][n] for n in (0, 1))
    assert (least_loss("abc", [one]), least_loss("abc", [other]), least_loss("abc", [one, other])) == ("a", "c", "b")


def test_what_is_decided_about_most_samples():
    trace = Trace(stays_open=True)
    n, s = (trace.general(trace.extent(name, 100)) for name in "ns")
    assert most_common(lambda size: size > 100, (n * 2,))
    assert most_common(lambda a, b: (a > 128) + (b > 128), (n, s)) == 1
