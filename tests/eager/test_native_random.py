"""Many random words at once, against the same stream word by word."""

import numpy as np
import pytest

from weft.base import draws
from weft.base.bits import MersenneTwister
from weft.eager.native.random import normal_blocks
from weft.eager.native.thresholds import FROM
from weft.eager.native.twister import NativeTwister

COUNTS = [FROM.drawn, FROM.drawn + 1, 624 * 7, 624 * 8 + 1, 50003]


def pair(skipped):
    twisters = NativeTwister(11), MersenneTwister(11)
    for twister in twisters:
        twister.words(skipped)
    return twisters


@pytest.mark.parametrize("skipped", [0, 1, 623, 624, 625])
@pytest.mark.parametrize("count", COUNTS)
def test_words_and_what_follows(count, skipped):
    native, plain = pair(skipped)
    np.testing.assert_array_equal(native.words(count), plain.words(count))
    np.testing.assert_array_equal(native.state(), plain.state())
    np.testing.assert_array_equal(native.numbers(count), plain.numbers(count))
    np.testing.assert_array_equal(native.words(5), plain.words(5))


@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.dtype("float64")])
@pytest.mark.parametrize("count", COUNTS)
def test_normal_numbers(count, dtype):
    native, plain = pair(3)
    made = normal_blocks(native, count, dtype, 2.0, 3.0)
    close = 1e-6 if dtype == np.float32 else 1e-14
    expected = draws.normal(plain, count, dtype, 2.0, 3.0)
    np.testing.assert_allclose(made, expected, rtol=close * 4, atol=close * 20)
    np.testing.assert_array_equal(native.words(5), plain.words(5))
