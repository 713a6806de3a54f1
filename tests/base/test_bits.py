"""The Mersenne Twister gives the classic stream."""

import random

import numpy as np
import pytest

from weft.base.bits import MersenneTwister


@pytest.mark.parametrize("seed", [0, 1, 5489, 2**32 - 1, 2**32 + 17, 67280421310721])
def test_words_are_those_of_numpys_legacy_seeding(seed):
    expected = np.random.RandomState(seed % 2**32)
    ours = MersenneTwister(seed)
    for count in (1, 0, 623, 5, 2000):
        theirs = expected.randint(0, 2**32, count, dtype=np.uint32)
        assert ours.words(count).tolist() == theirs.tolist()


def test_state_goes_over_to_pythons_own_generator():
    ours = MersenneTwister(99)
    ours.words(700)
    theirs = random.Random()
    theirs.setstate((3, (*map(int, ours.block()), ours.position), None))
    assert ours.words(1300).tolist() == [theirs.getrandbits(32) for _ in range(1300)]


def test_two_words_make_a_double_word():
    words = MersenneTwister(3).words(6).tolist()
    double = MersenneTwister(3).double_words(3).tolist()
    assert double == [words[2 * i] << 32 | words[2 * i + 1] for i in range(3)]


@pytest.mark.parametrize(("size", "position"), [(623, 0), (624, -1), (624, 625)])
def test_wrong_states(size, position):
    with pytest.raises(ValueError, match="a state has 624 words"):
        MersenneTwister(1).set_block(np.zeros(size, np.uint32), position)
