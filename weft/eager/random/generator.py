"""Generator: a stream of random bits with the seeds and the state of PyTorch's."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.bits import WORDS, MersenneTwister, from_state
from ...base.errors import InvalidType, InvalidValue, RunError
from ...base.forks import held_lock
from ..autograd.modes import modes
from ..native.twister import NativeTwister
from ..tensor.device import device, require_cpu
from ..tensor.memory import array_of
from ..tensor.tensor import Tensor, wrap

DEFAULT_SEED = 67280421310721
# seed, words left in the block and one, whether seeded, words used; the words; then unused numbers
# around the normal sample that is kept for the next draw, and whether there is one
_HEAD, _TAIL = struct.Struct("<QiiQ"), struct.Struct("<dddi4xf?3x")
_WORDS_BYTES = WORDS * 8
_NOTHING = np.empty(0, np.uint8)
STATE_BYTES = _HEAD.size + _WORDS_BYTES + _TAIL.size


class Generator:
    """A stream of random numbers.

    >>> Generator().manual_seed(7).initial_seed()
    7
    """

    __module__ = "weft"
    __slots__ = ("__weakref__", "_bits", "_lock", "_seed")

    def __init__(self, device: Any = "cpu") -> None:
        require_cpu(device)
        self._lock = held_lock("drawing")
        self._reseed(DEFAULT_SEED)

    def _reseed(self, seed: int) -> NDArray[np.uint8]:
        """Starts the stream of a seed; gives nothing, as an array."""
        with self._lock:
            self._seed = seed
            self._bits: MersenneTwister = NativeTwister(seed)
        return _NOTHING

    @property
    def device(self) -> device:
        return require_cpu(None)

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of a seed; negative ones count from 2**64 downwards."""
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise RunError(f"manual_seed expected a long, but got {type(seed).__name__}")
        if not -(2**63) <= seed < 2**64:
            raise InvalidValue("Overflow when unpacking long long")
        if modes.trace is None:
            self._reseed(int(seed) % 2**64)
        else:
            modes.trace.draws(self)
            modes.trace.host(partial(self._reseed, int(seed) % 2**64), ())
        return self

    def initial_seed(self) -> int:
        """The seed that the stream started from."""
        _must_not_be_recorded()
        return self._seed

    def seed(self) -> int:
        """Starts a stream that nobody can predict, and gives its seed."""
        _must_not_be_recorded()
        import secrets

        self._reseed(secrets.randbits(53))
        return self._seed

    def get_state(self) -> Tensor:
        """The state as a tensor of bytes, which PyTorch 2.13 takes as well."""
        return wrap(np.frombuffer(self._pack(), np.uint8).copy())

    def set_state(self, new_state: Tensor) -> Generator:
        """Goes on from a state that `get_state` gave, here or in PyTorch 2.13."""
        if not isinstance(new_state, Tensor):
            kind = type(new_state).__name__
            raise InvalidType(f"expected a weft.ByteTensor, but got {kind}")
        if new_state._dtype != np.uint8:
            raise InvalidType("RNG state must be a weft.ByteTensor")
        self._unpack(array_of(new_state).tobytes())
        return self

    def clone_state(self) -> Generator:
        """A generator that goes on from the same state by itself."""
        made = type(self)()
        made._unpack(self._pack())
        return made

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return _rebuild, (self._pack(),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Generator:
        return self.clone_state()

    def graph_state(self) -> Tensor:
        """The state as random operators of a graph take it: 629 words.

        >>> Generator().manual_seed(7).graph_state().shape
        weft.Size([629])
        """
        with self._lock:
            return wrap(self._bits.state())

    def set_graph_state(self, new_state: Any) -> Generator:
        """Goes on from the state that random operators of a graph left, a tensor or an array."""
        array = array_of(new_state) if isinstance(new_state, Tensor) else new_state
        if not isinstance(array, np.ndarray):
            kind = type(new_state).__name__
            raise InvalidType(f"expected a tensor or an array of words, but got {kind}")
        bits = from_state(array, NativeTwister)
        with self._lock:
            self._bits = bits
        return self

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next 32-bit words."""
        return self._bits.words(count)

    def double_words(self, count: int) -> NDArray[np.uint64]:
        """The next 64-bit words."""
        return self._bits.double_words(count)

    def _pack(self) -> bytes:
        """The state in PyTorch's form."""
        _must_not_be_recorded()
        with self._lock:
            used, kept = self._bits.position, self._bits.kept
            following = 0 if self._bits.fresh else used
            head = _HEAD.pack(self._seed, WORDS + 1 - used, 1, following)
            tail = _TAIL.pack(0.0, kept or 0.0, 0.0, kept is not None, 0.0, False)
            return head + self._bits.block().astype("<u8").tobytes() + tail

    def _unpack(self, state: bytes) -> None:
        """Takes over a state in PyTorch's form."""
        _must_not_be_recorded()
        if len(state) != STATE_BYTES:
            raise RunError(
                f"Expected a CPUGeneratorImplState of size {STATE_BYTES} "
                f"but found the input RNG state size to be {len(state)}"
            )
        seed, left, seeded, following = _HEAD.unpack_from(state)
        words = np.frombuffer(state, "<u8", WORDS, _HEAD.size)
        _, normal, _, has_normal, _, _ = _TAIL.unpack_from(state, _HEAD.size + _WORDS_BYTES)
        used = WORDS if left == 1 else following
        fits = seeded == 1 and 1 <= left <= WORDS and following <= WORDS
        if not fits or (left != 1 and left != WORDS + 1 - used) or words.max() >= 2**32:
            raise RunError("Invalid mt19937 state")
        with self._lock:
            self._seed = seed
            self._bits.set_block(words, used)
            self._bits.fresh = left == 1 and following == 0
            self._bits.kept = normal if has_normal else None


def _must_not_be_recorded() -> None:
    """Said where the state of a generator becomes one of Python's values, which no recording sees."""
    if modes.trace is not None:
        modes.trace.decline("the state of a generator is read or set")


def _rebuild(state: bytes) -> Generator:
    made = Generator()
    made._unpack(state)
    return made


default_generator = Generator()


def given(generator: Any) -> Generator:
    """The generator of a call: the default one if none is named."""
    if modes.drawing is not None:
        modes.drawing()
    if generator is None:
        generator = default_generator
    if not isinstance(generator, Generator):
        raise InvalidType(f"expected a weft.Generator, but got {type(generator).__name__}")
    if modes.trace is not None:
        modes.trace.draws(generator)
    return generator


def manual_seed(seed: int) -> Generator:
    """Starts the default generator's stream of a seed.

    >>> import weft
    >>> weft.manual_seed(7) is weft.default_generator, weft.initial_seed()
    (True, 7)
    >>> first = weft.rand(3)
    >>> generator = weft.manual_seed(7)
    >>> weft.equal(weft.rand(3), first)
    True
    """
    try:
        number = int(seed)
    except (TypeError, ValueError, OverflowError) as error:
        kind = InvalidType if isinstance(error, TypeError) else InvalidValue
        raise kind(f"a seed is a whole number, not {seed!r:.60}") from None
    return default_generator.manual_seed(number)


def seed() -> int:
    """Starts a stream of the default generator that nobody can predict, and gives its seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the default generator's stream started from."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Makes the default generator go on from a state."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Iterable[Any] | None = None, enabled: bool = True, device_type: Any = None) -> Iterator[None]:
    """Puts the default generator back to the state it had, when the block ends. It is the only one
    there is, so that `devices` may name no device but the processor.

    >>> before = get_rng_state()
    >>> with fork_rng():
    ...     _ = manual_seed(3)
    >>> bool((get_rng_state() == before).all())
    True
    """
    for name in devices or ():
        require_cpu(name)
    if device_type is not None:
        device(device_type)
    if not enabled:
        yield
        return
    before = default_generator.get_state()
    try:
        yield
    finally:
        default_generator.set_state(before)
