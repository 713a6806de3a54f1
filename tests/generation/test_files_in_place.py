"""Decoders from ONNX files over a cache that grows in place: scores are those of ONNX Runtime, which copies the caches,
and a token costs no copy."""

import numpy as np
import pytest

import weft
from weft.base.plan import KernelStep
from weft.base.stages import watched
from weft.generation import Generator

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
nn, F = torch.nn, torch.nn.functional

WORDS, WIDTH, HEADS, SIZE = 61, 72, 4, 8
PAST = [f"past{number}" for number in range(4)]
STEPS = (5, 1, 1, 33, 1, 2, 20, 1)


def causal(scores, before, length):
    return scores + torch.full((length, before + length), -1e9).triu(before + 1)


def last_twelve(scores, before, length):
    behind = torch.arange(before, before + length)[:, None] - torch.arange(before + length)
    return torch.where((behind >= 0) & (behind < 12), scores, -1e9)


def sharpened(scores, before, length):
    return causal(torch.tanh(scores) * 3, before, length)


def without_the_first(scores, before, length):
    return causal(scores + torch.where(torch.arange(before + length) == 0, -30.0, 0.0), before, length)


def nearer_ones_more(scores, before, length):
    return causal(scores + 0.1 * torch.arange(before + length), before, length)


def all_of_a_call(scores, before, length):
    return scores + 0.0 * before


class Decoder(nn.Module):
    """Two layers of attention over `kept` heads, and a product between; positions turn a part of each head."""

    def __init__(self, kept=2, scored=causal, fused=False, whole=True, mixed=lambda x: x):
        super().__init__()
        self.kept, self.scored, self.fused, self.whole, self.mixed = kept, scored, fused, whole, mixed
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        linears = lambda inputs, outputs: nn.ModuleList(nn.Linear(inputs, outputs) for _ in range(2))
        self.q, self.back, self.between = (
            linears(WIDTH, HEADS * SIZE),
            linears(HEADS * SIZE, WIDTH),
            linears(WIDTH, WIDTH),
        )
        self.k, self.v = linears(WIDTH, kept * SIZE), linears(WIDTH, kept * SIZE)

    def forward(self, ids, *past):
        batch, length = ids.shape
        before = past[0].shape[2]
        total = before + length
        x, present = self.words(ids), []
        angles = torch.arange(before, total)[:, None] * torch.tensor([1.0, 0.3, 0.1, 0.03])
        turns = torch.cat([angles.cos(), angles.sin()], -1)
        for layer in range(2):
            y = self.norms[2 * layer](x)
            parts = (self.q[layer](y), self.k[layer](y), self.v[layer](y))
            q, k, v = (part.view(batch, length, -1, SIZE).transpose(1, 2) for part in parts)
            k, v = torch.cat([past[2 * layer], k * turns], 2), torch.cat([past[2 * layer + 1], v], 2)
            present += [k, v]
            y = self.attended(q * turns, k, v, before).transpose(1, 2).reshape(batch, length, HEADS * SIZE)
            x = x + self.back[layer](y)
            x = x + F.gelu(self.between[layer](self.norms[2 * layer + 1](x)))
        return self.head(self.mixed(x) if self.whole else x[:, -1:]), *present

    def attended(self, q, k, v, before):
        batch, _, length, _ = q.shape
        each = (batch, self.kept, HEADS // self.kept, k.shape[2], SIZE)
        k, v = (part[:, :, None].expand(each).reshape(batch, HEADS, k.shape[2], SIZE) for part in (k, v))
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, self.scored(torch.zeros(length, k.shape[2]), before, length))
        scores = self.scored(q @ k.transpose(-1, -2) * 0.1, before, length)
        return torch.softmax(scores, -1) @ v


def exported(path, **settings):
    torch.manual_seed(4)
    network = Decoder(**settings).eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.2)
    example = (torch.zeros(1, 3, dtype=torch.long), *(torch.randn(1, network.kept, 5, SIZE) for _ in PAST))
    axes = {"ids": {1: "length"}, **{name: {2: "past"} for name in PAST}}
    torch.onnx.export(network, example, str(path), input_names=["ids", *PAST], dynamic_axes=axes, dynamo=False)
    return path


class Runtime:
    """The file by ONNX Runtime, with caches that are copied."""

    def __init__(self, path, kept):
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        self.empty = {name: np.zeros((1, kept, 0, SIZE), "float32") for name in PAST}
        self.reset()

    def reset(self):
        self.past = self.empty

    def feed(self, tokens):
        scores, *past = self.session.run(None, {"ids": np.array([tokens], np.int64), **self.past})
        self.past = dict(zip(PAST, past))
        return scores[0, -1]


def tokens_of(count, seed=2):
    return np.random.default_rng(seed).integers(0, WORDS, count).tolist()


def check_steps(generator, runtime, steps=STEPS):
    told = iter(tokens_of(sum(steps)))
    for count in steps:
        some = [next(told) for _ in range(count)]
        np.testing.assert_allclose(generator.feed(some), runtime.feed(some), rtol=1e-4, atol=1e-4)


IN_PLACE = {
    "shared heads": {},
    "all heads": {"kept": HEADS},
    "one head": {"kept": 1},
    "fused": {"fused": True},
    "last scores": {"whole": False},
    "window": {"scored": last_twelve},
    "fused window": {"scored": last_twelve, "fused": True},
}


@pytest.mark.parametrize("settings", IN_PLACE.values(), ids=IN_PLACE)
def test_steps_are_those_of_the_file(settings, tmp_path):
    """Prompts of a token, of some, and of more than are read at once."""
    path = exported(tmp_path / "decoder.onnx", **settings)
    generator, runtime = Generator(path, context=80), Runtime(path, settings.get("kept", 2))
    assert generator.copies is None
    assert (generator.vocabulary, generator.context) == (WORDS, 80)
    for _ in range(2):
        check_steps(generator, runtime)
        assert generator.length == sum(STEPS)
        generator.reset()
        runtime.reset()


def test_two_programs_serve_all_lengths(tmp_path):
    path, made = exported(tmp_path / "decoder.onnx"), []
    with watched(lambda stage: made.append(stage.title)):
        generator = Generator(path)
        check_steps(generator, Runtime(path, 2), (1, 7, 40, 1, 1, 66, 3))
    assert made.count("program") == 2


def test_windows_are_rings(tmp_path):
    path = exported(tmp_path / "decoder.onnx", scored=last_twelve)
    generator, runtime = Generator(path, context=400), Runtime(path, 2)
    assert [cache.keys.shape for cache in generator._decoder._caches] == [(1, 2, 2, SIZE, 16)]
    check_steps(generator, runtime, (100, 1, 1, 70, 1))
    (cache,) = Generator(path, context=12)._decoder._caches
    assert len(cache.keys) == 1


MIXING = {
    "mean": lambda x: x - x.mean(1, keepdim=True) / 2,
    "other order": lambda x: x + x.flip(1),
    "other rows": lambda x: x + x.reshape(1, 8, -1, WIDTH // 8).transpose(1, 2).reshape(1, -1, WIDTH),
}


@pytest.mark.parametrize("mixed", MIXING.values(), ids=MIXING)
def test_rows_that_depend_on_each_other(mixed, tmp_path):
    """No rows that are no tokens stand behind those that are: here a few are read one by one."""
    path = exported(tmp_path / "decoder.onnx", mixed=mixed)
    generator, runtime = Generator(path, context=80), Runtime(path, 2)
    assert generator.copies is None
    for count in (3, 5, 1, 32):
        some = tokens_of(count)
        found = generator.feed(some)
        wanted = runtime.feed(some) if count == 32 else [runtime.feed([token]) for token in some][-1]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_texts_go_on_and_end(tmp_path):
    path = exported(tmp_path / "decoder.onnx")
    generator, runtime = Generator(path, context=40), Runtime(path, 2)
    prompt = tokens_of(9)
    scores, wanted = runtime.feed(prompt), []
    for _ in range(12):
        wanted.append(int(scores.argmax()))
        scores = runtime.feed(wanted[-1:])
    first = generator.generate(prompt, 5)
    assert first == wanted[:5]
    assert generator.generate(first[-1:], 7, keep=True) == wanted[5:]
    with pytest.raises(weft.Error, match="room for 40"):
        generator.feed(tokens_of(21))
    assert len(generator.generate(tokens_of(38))) == 3  # the last is not read


def test_any_number_of_threads_gives_the_same_bits(tmp_path):
    path = exported(tmp_path / "decoder.onnx")
    found = []
    for threads in (1, 2):
        generator, told = Generator(path, context=80, threads=threads), iter(tokens_of(sum(STEPS)))
        found.append([generator.feed([next(told) for _ in range(count)]).copy() for count in STEPS])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("weights", ["bf16", "int8", "int4"])
def test_weights_of_fewer_bits(weights, tmp_path):
    """Near to the file's own scores, as far as weights that are rounded allow."""
    path = exported(tmp_path / "decoder.onnx")
    generator, runtime = Generator(path, weights, group=8, context=80), Runtime(path, 2)
    assert generator.copies is None
    tokens = tokens_of(20)
    wanted = [runtime.feed([token]) for token in tokens]
    found = [generator.feed([token]).copy() for token in tokens]
    off = np.abs(np.subtract(found, wanted)).max() / np.abs(wanted).max()
    assert 1e-5 < off < {"bf16": 0.03, "int8": 0.03, "int4": 0.4}[weights]


def written_bytes(program):
    """All that the kernels of a run write, and what the run gives."""
    roles = [slot.role for slot in program.plan.slots]
    assert all(isinstance(step, KernelStep) for step in program.plan.steps)
    assert {"input", "output"} <= set(roles)
    return program.plan.arena_bytes + sum(np.prod(spec.extents) * spec.dtype.itemsize for spec in program.outputs)


def test_no_step_copies_the_cache(tmp_path):
    """What a step has to write to is as large for any context, and less than the cache of it; of the cache itself the
    new token's numbers change alone."""
    path = exported(tmp_path / "decoder.onnx")
    short, long = (Generator(path, context=context) for context in (48, 3000))
    for rows in (1, 32):
        programs = [generator._decoder._steps[rows].program for generator in (short, long)]
        assert written_bytes(programs[0]) == written_bytes(programs[1])
        assert not programs[1].written
        made = [spec.extents for spec in programs[1].outputs]
        assert made == [(1, WORDS), (rows, 2 * 2 * SIZE), (rows, 2 * 2 * SIZE)]
    assert written_bytes(long._decoder._steps[1].program) < long._decoder._caches[0].keys.nbytes / 20
    long.feed(tokens_of(40))
    keys, values = long._decoder._caches[0].keys, long._decoder._caches[0].values
    before = keys.copy(), values.copy()
    addresses = keys.ctypes.data, values.ctypes.data
    long.feed([7])
    cache = long._decoder._caches[0]
    assert (cache.keys.ctypes.data, cache.values.ctypes.data) == addresses
    for array, old, axis in ((keys, before[0], 4), (values, before[1], 3)):
        changed = np.argwhere(array != old)
        assert len(changed) == 2 * 2 * SIZE
        assert {(block, token) for block, token in changed[:, [0, axis]].tolist()} == {(2, 8)}  # token 40


COPIED = {
    "tanh": (sharpened, "tanh"),
    "all but the first": (without_the_first, "is not softmax"),
    "nearer ones more": (nearer_ones_more, "is not softmax"),
    "all of a call": (all_of_a_call, "is not softmax"),
}


@pytest.mark.parametrize(("scored", "told"), COPIED.values(), ids=COPIED)
def test_other_attention_is_copied(scored, told, tmp_path):
    path = exported(tmp_path / "decoder.onnx", scored=scored)
    generator, runtime = Generator(path), Runtime(path, 2)
    assert told in generator.copies
    check_steps(generator, runtime, (5, 1, 3, 1))


def test_contexts(tmp_path):
    """Those that are too long to be looked at are copied."""
    path = exported(tmp_path / "decoder.onnx")
    for wrong in (0, -3):
        with pytest.raises(weft.Error, match=f"a context of {wrong} tokens"):
            Generator(path, context=wrong)
    for context in (1, 2, 5):
        generator = Generator(path, context=context)
        assert generator.copies is None
        assert len(generator.generate([3])) == context
    generator = Generator(path, context=10**8)
    assert "too much memory" in generator.copies
    check_steps(generator, Runtime(path, 2), (3, 1))
