"""Sequences of several lengths against PyTorch: packed, padded, and back, with gradients."""

import copy
import pickle

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.nn.utils import rnn

rng = np.random.default_rng(0)
LENGTHS = [[4, 2, 2, 1], [2, 4, 1, 4], [1], [3, 3], [1, 5, 2]]
RESTS = [(), (3,), (2, 3)]


def outcome(library, program, *arrays):
    """What a program gives in a library, and the gradients of the arrays it was given."""
    tensors = [library.tensor(array, requires_grad=array.dtype.kind == "f") for array in arrays]
    results = plain(program(library, library.nn.utils.rnn, *tensors))
    total = sum(
        (value * library.arange(1, value.numel() + 1).reshape(value.shape)).sum()
        for value in flat(program(library, library.nn.utils.rnn, *tensors))
        if value.requires_grad
    )
    if not isinstance(total, int):
        total.backward()
    return results, [tensor.grad for tensor in tensors]


def flat(value):
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in flat(item)]
    return [] if value is None else [value]


def plain(value):
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return None if value is None else value.detach()


def agree(program, *arrays):
    expected, got = (outcome(library, program, *arrays) for library in (oracle("torch"), weft))
    assert len(flat(expected)) == len(flat(got))
    for theirs, ours in zip(flat(expected), flat(got)):
        assert (str(ours.dtype), tuple(ours.shape)) == (str(theirs.dtype).replace("torch", "weft"), tuple(theirs.shape))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy())


def sequences(lengths, rest=(3,)):
    return [rng.normal(size=(length, *rest)).astype("float32") for length in lengths]


@pytest.mark.parametrize("rest", RESTS, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
def test_pack_padded(lengths, rest, batch_first):
    shape = (len(lengths), 5) if batch_first else (5, len(lengths))
    x = rng.normal(size=(*shape, *rest)).astype("float32")

    def program(library, rnn, x):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
        assert type(packed) is rnn.PackedSequence
        return packed

    agree(program, x)
    agree(lambda library, rnn, x: program(library, rnn, x)[0] * 2, x)


@pytest.mark.parametrize("total", [None, 7])
@pytest.mark.parametrize("rest", RESTS, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
def test_pad_packed(lengths, rest, batch_first, total):
    def program(library, rnn, *items):
        packed = rnn.pack_sequence(list(items), enforce_sorted=False)
        return rnn.pad_packed_sequence(packed, batch_first, -2.5, total), rnn.unpack_sequence(packed)

    agree(program, *sequences(lengths, rest))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
def test_pad_sequence(lengths, batch_first, side):
    def program(library, rnn, *items):
        padded = rnn.pad_sequence(iter(items), batch_first, 1.5, side)
        return padded, rnn.unpad_sequence(padded * 1, library.tensor(lengths), batch_first)

    agree(program, *sequences(lengths))


def test_pad_sequence_of_whole_numbers_and_mixed_kinds():
    counts = [np.arange(4, dtype="int16"), np.arange(2.0)]
    agree(lambda library, rnn, *items: rnn.pad_sequence(items, padding_value=7), *counts)
    agree(lambda library, rnn, *items: rnn.pad_sequence(items[::-1]), *counts)
    agree(lambda library, rnn, x: rnn.pad_sequence(x), rng.normal(size=(3, 2)))


@pytest.mark.parametrize("lengths", [(3, 2, 1), [3, 2, 2], "int32", "float32"], ids=str)
def test_lengths_of_many_kinds(lengths):
    def program(library, rnn, x):
        kinds = library.tensor([3, 1, 1], dtype=getattr(library, lengths)) if isinstance(lengths, str) else lengths
        return rnn.pack_padded_sequence(x, kinds)

    agree(program, rng.normal(size=(4, 3)))


def test_numbers_of_a_pack_change_and_its_order_stays():
    torch = oracle("torch")
    items = sequences([2, 4, 1])
    theirs = torch.nn.utils.rnn.pack_sequence([torch.tensor(item) for item in items], enforce_sorted=False)
    ours = rnn.pack_sequence([weft.tensor(item) for item in items], enforce_sorted=False)
    assert repr(ours) == repr(theirs)
    for name in ("double", "float", "half", "long", "int", "short", "char", "byte", "cpu"):
        cast, expected = getattr(ours, name)(), getattr(theirs, name)()
        assert type(cast) is rnn.PackedSequence
        assert repr(cast) == repr(expected).replace("torch.", "weft.")
        assert (cast is ours) == (expected is theirs)
    assert ours.to(weft.float32) is ours
    assert ours.to("cpu", dtype=weft.float64).data.dtype == weft.float64
    assert (ours.is_cuda, ours.is_pinned()) == (theirs.is_cuda, theirs.is_pinned())
    for again in (copy.copy(ours), pickle.loads(pickle.dumps(ours)), ours._replace(data=ours.data)):
        assert type(again) is rnn.PackedSequence
        assert repr(again) == repr(ours)


def test_a_pack_is_made_from_its_parts():
    data, sizes, order = weft.arange(3.0), weft.tensor([2, 1]), weft.tensor([1, 0])
    assert rnn.PackedSequence((data, sizes)).batch_sizes is sizes
    assert rnn.PackedSequence(data, sizes).unsorted_indices is None
    assert rnn.PackedSequence(data, sizes, order).unsorted_indices.tolist() == [1, 0]
    assert rnn.invert_permutation(None) is None
    assert rnn.invert_permutation(weft.tensor([2, 0, 1])).tolist() == [1, 2, 0]


X = np.ones((4, 3))
REFUSED = {
    "unsorted": lambda library, rnn: rnn.pack_padded_sequence(library.tensor(X), [2, 4, 1]),
    "no steps": lambda library, rnn: rnn.pack_padded_sequence(library.tensor(X), [2, 1, 0]),
    "too few lengths": lambda library, rnn: rnn.pack_padded_sequence(library.tensor(X), [2, 1]),
    "no axis of lengths": lambda library, rnn: rnn.pack_padded_sequence(library.tensor(X), 3),
    "no lengths": lambda library, rnn: rnn.pack_padded_sequence(library.tensor(X), []),
    "one axis": lambda library, rnn: rnn.pack_padded_sequence(library.ones(3), [3]),
    "no batch": lambda library, rnn: rnn.pack_padded_sequence(library.ones(4, 0), []),
    "a list": lambda library, rnn: rnn.pack_padded_sequence([1.0], [1]),
    "short total": lambda library, rnn: rnn.pad_packed_sequence(
        rnn.pack_padded_sequence(library.tensor(X), [4, 2, 1]), total_length=3
    ),
    "a tensor as a pack": lambda library, rnn: rnn.pad_packed_sequence(library.tensor(X)),
    "a side": lambda library, rnn: rnn.pad_sequence([library.ones(2)], padding_side="up"),
    "nothing to pad": lambda library, rnn: rnn.pad_sequence([]),
    "a number": lambda library, rnn: rnn.pad_sequence(3),
    "without an axis": lambda library, rnn: rnn.pad_sequence([library.tensor(3.0)]),
    "other features": lambda library, rnn: rnn.pad_sequence([library.ones(2, 3), library.ones(2, 2)]),
    "unsorted sequences": lambda library, rnn: rnn.pack_sequence([library.ones(1), library.ones(2)]),
    "one part": lambda library, rnn: rnn.PackedSequence(library.ones(3)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    torch = oracle("torch")
    with pytest.raises(Exception) as expected:
        REFUSED[case](torch, torch.nn.utils.rnn)
    with pytest.raises(AttributeError if case == "a tensor as a pack" else weft.Error) as got:
        REFUSED[case](weft, rnn)
    assert isinstance(got.value, expected.type)


def test_padded_sequences_keep_their_shape():
    padded = rnn.pad_sequence([weft.tensor(item) for item in sequences([2, 4])])
    rnn.unpad_sequence(padded, weft.tensor([2, 4]))[0].zero_()
    assert padded.shape == (4, 2, 3)
    assert padded[0].abs().min() > 0


def test_lengths_beyond_the_steps_are_refused():
    with pytest.raises(weft.Error, match="5, but the input has 4 steps"):
        rnn.pack_padded_sequence(weft.ones(4, 2), [5, 1])
