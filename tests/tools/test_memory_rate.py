"""What measures the rate of memory reads all of it: what it folds is what numpy folds."""

import numpy as np
import pytest

from weft.tools.peak import WAYS, MemoryRead


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_way_reads_all(threads):
    memory = MemoryRead(threads, 200_000)
    random = np.random.default_rng(threads)
    lanes = memory.found.shape[1]
    assert memory.data.nbytes >= 0.9 * 200_000
    for way in WAYS:
        memory.data[:] = 0
        places = [random.permutation(memory.data.shape[1])[:20] for _ in range(threads)]
        for row, some in zip(memory.data, places):
            row[[0, -1]] = 1 << 30, 1 << 29  # the ends, too
            row[some] |= np.uint32(1) << random.integers(0, 28, 20).astype(np.uint32)
        memory.found[:] = 0
        assert memory.seconds(way) > 0
        wanted = np.bitwise_or.reduce(memory.data.reshape(threads, -1, lanes), axis=1)
        np.testing.assert_array_equal(memory.found, wanted)


def test_a_rate_is_bytes_over_seconds(monkeypatch):
    memory = MemoryRead(2, 100_000)
    times = iter(range(1, len(WAYS) + 1))
    monkeypatch.setattr(memory, "seconds", lambda way: next(times) * 1e-3)
    assert memory.rate() == pytest.approx(memory.data.nbytes / 1e6)
