"""Samples of random operators: PyTorch's generator, put into the same state, draws the same numbers
and comes into the same state."""

from __future__ import annotations

import struct
import warnings

import numpy as np
from sample import Sample, floats, samples

from weft.base.bits import KEPT, POSITION, STATE_WORDS, WORDS, MersenneTwister

HEAD, TAIL = struct.Struct("<QiiQ"), struct.Struct("<dddi4xf?3x")
UNITS = 2.0 ** np.array([-28, -60, -92])
EVERY = "float16 bfloat16 float32 float64".split()
# Of 16 bits a result may be rounded the other way where sines differ by a last bit.
ROUNDING = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 3e-15}


def state(rng, kept=None, drawn=None):
    """A state of a random seed that has been used for a while."""
    made = MersenneTwister(int(rng.integers(2**32)))
    made.words(int(rng.integers(1, 2000)) if drawn is None else drawn)
    made.kept = kept
    return made.state()


def generator_of(torch, words):
    """PyTorch's generator in a state."""
    words = np.asarray(words)
    used, mark = int(words[POSITION]), int(words[KEPT])
    kept = float((words[KEPT + 1 :] * UNITS)[::-1].sum()) * (-1 if mark == 2 else 1)
    head = HEAD.pack(0, WORDS + 1 - used, 1, used)
    tail = TAIL.pack(0.0, kept, 0.0, mark != 0, 0.0, False)
    data = head + words[:WORDS].astype("<u8").tobytes() + tail
    made = torch.Generator()
    made.set_state(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    return made


def words_of(generator):
    """The state of PyTorch's generator."""
    data = generator.get_state().numpy().tobytes()
    used = HEAD.unpack_from(data)[3]
    block = np.frombuffer(data, "<u8", WORDS, HEAD.size)
    _, kept, _, has, _, _ = TAIL.unpack_from(data, HEAD.size + 8 * WORDS)
    made = np.zeros(STATE_WORDS, np.uint32)
    made[:POSITION], made[POSITION] = block, used
    if has:
        whole = int(abs(kept) * 2.0**92)
        made[KEPT] = 2 if kept < 0 else 1
        made[KEPT + 1 :] = [whole >> 64, whole >> 32 & 0xFFFFFFFF, whole & 0xFFFFFFFF]
    return made


def drawn(torch, fill):
    """What PyTorch draws, and its state afterwards."""

    def oracle(words):
        generator = generator_of(torch, words)
        with warnings.catch_warnings(action="ignore"):  # of ranges that a float has not all of
            made = fill(generator)
        return made.float() if made.dtype == torch.bfloat16 else made, words_of(generator)

    return oracle


def empty(torch, shape, dtype):
    return torch.empty(shape, dtype=getattr(torch, dtype))


@samples("random_uniform")
def random_uniform(rng, torch):
    shapes = [(3,), (2, 5), (), (0, 4), (40, 33), (624,)]
    for shape, dtype in zip(shapes, [*EVERY, "float32", "float32"]):
        for low, high in ((0.0, 1.0), (-2.0, 5.3), (7.0, 7.0)):
            yield Sample(
                [state(rng, drawn=623 if shape == (3,) else None)],
                {"low": low, "high": high, "shape": shape, "dtype": dtype},
                drawn(torch, lambda g, a=(shape, dtype), r=(low, high): empty(torch, *a).uniform_(*r, generator=g)),
                rtol=0,
                atol=0,
            )


@samples("random_normal")
def random_normal(rng, torch):
    for dtype in EVERY:
        for shape in [(5,), (2, 2), (), (0,), (3, 5), (16,), (17,), (10, 31), (320,)]:
            for kept in (None, -0.75 - 2.0**-40):
                attrs = {"mean": 0.5, "std": 1.7, "shape": shape, "dtype": dtype}
                attrs = attrs if len(shape) == 1 else {"shape": shape, "dtype": dtype}
                mean, std = attrs.get("mean", 0.0), attrs.get("std", 1.0)
                yield Sample(
                    [state(rng, kept)],
                    attrs,
                    drawn(torch, lambda g, a=(shape, dtype), d=(mean, std): empty(torch, *a).normal_(*d, generator=g)),
                    rtol=ROUNDING[dtype],
                    atol=ROUNDING[dtype],
                )


@samples("random_randint")
def random_randint(rng, torch):
    cases = [
        (0, 2, "bool"),
        (0, 10, "uint8"),
        (-128, 128, "int8"),
        (-5, 100, "int64"),
        (0, 2**28 - 1, "int32"),
        (0, 2**28, "int32"),
        (-(2**31), 2**31, "int64"),
        (-(2**63), 2**63 - 1, "int64"),
        (7, 2**24 + 3, "float32"),
        (-(2**40), 2**41 + 1, "float32"),
        (-2000, 2000, "float16"),
        (-300, 70000, "bfloat16"),
        (-(2**60), 2**61, "float64"),
        (3, 4, "int16"),
    ]
    for number, (low, high, dtype) in enumerate(cases):
        shape = [(7,), (3, 40), (), (0, 2), (700,)][number % 5]
        yield Sample(
            [state(rng)],
            {"low": low, "high": high, "shape": shape, "dtype": dtype},
            drawn(torch, lambda g, a=(shape, dtype), r=(low, high): empty(torch, *a).random_(*r, generator=g)),
        )


@samples("random_bernoulli")
def random_bernoulli(rng, torch):
    shapes = [(3,), (2, 9), (), (0,), (400,), (2, 2, 2)]
    for shape, dtype in zip(shapes, [*EVERY, "bool", "int32"]):
        for p in (0.3, 0.0, 1.0):
            yield Sample(
                [state(rng)],
                {"p": p, "shape": shape, "dtype": dtype},
                drawn(torch, lambda g, a=(shape, dtype), p=p: empty(torch, *a).bernoulli_(p, generator=g)),
            )


@samples("dropout")
def dropout(rng, torch):
    yield Sample([floats(rng, (3, 4))], {}, lambda x: (x, torch.ones_like(x)))
    yield Sample([floats(rng, (3, 4))], {"rate": 0.9}, lambda x: (x, torch.ones_like(x)))
    for shape, rate in (((2, 3, 5), 0.3), ((4, 200), 0.75), ((3, 4), 0), ((3, 4), 1), ((0, 4), 0.5)):
        yield Sample(
            [floats(rng, shape), state(rng)],
            {"rate": rate, "training": True},
            lambda x, words, rate=rate: _torch_dropout(torch, x, words, rate),
            rtol=0,
            atol=0,
        )


def _torch_dropout(torch, x, words, rate):
    """As it draws from the default generator."""
    with torch.random.fork_rng():
        torch.set_rng_state(generator_of(torch, words).get_state())
        made = torch.nn.functional.dropout(x, rate)
        after = words_of(torch.default_generator)
        torch.set_rng_state(generator_of(torch, words).get_state())
        return made, torch.nn.functional.dropout(torch.ones_like(x), rate), after
