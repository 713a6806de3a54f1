"""Decoding a GPT-2 of 124 million parameters, token by token: weft beside llama.cpp on the same weights, or beside
PyTorch where llama-cpp-python is not installed. Random parameters.

    python benchmarks/generate.py                    weights of fp32, bf16, int8 and int4, 2 threads
    python benchmarks/generate.py int4 --threads 1 --past 500

Rounds alternate, and the best of each counts. Beside tokens a second stands what share of the rate at which this
machine's memory is read the bytes of the weights make that a token reads: the best of several ways to read it with as
many threads (`weft/tools/peak.py`), measured between the rounds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import weft
from weft.generation import GPT2, Generator, GPT2Settings
from weft.tools.peak import MemoryRead

KINDS = ("fp32", "bf16", "int8", "int4")
ROUNDS, TOKENS, WARM, PAUSE = 7, 12, 2, 0.3
GGUF_TYPES = {"fp32": "F32", "bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}
GGUF_NAMES = {
    "wte": "token_embd",
    "wpe": "position_embd",
    "ln_f": "output_norm",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}

Step = Callable[[int], Any]  # reads a token


class Measured(NamedTuple):
    """Tokens a second, the other's, and the share of the memory's rate."""

    kind: str
    own: float
    other: float
    gigabytes: float
    rate: float

    @property
    def ratio(self) -> float:
        return self.own / self.other

    @property
    def share(self) -> float:
        return self.own * self.gigabytes / self.rate


def measured(kind: str, threads: int = 2, past: int = 32, settings: GPT2Settings | None = None) -> Measured:
    """A kind of weights, both decoders in alternating rounds: the best of each."""
    weft.manual_seed(0)
    model = GPT2(settings)
    own = weft_step(model, kind, threads, past)
    with tempfile.TemporaryDirectory() as folder, other_step(model, kind, threads, past, Path(folder)) as other:
        memory, rate = MemoryRead(threads), 0.0
        seconds: dict[str, list[float]] = {"own": [], "other": []}
        for _ in range(ROUNDS):
            for name, step in (("own", own.step), ("other", other)):
                seconds[name].append(_round(step))
            rate = max(rate, memory.rate())
    return Measured(kind, 1 / min(seconds["own"]), 1 / min(seconds["other"]), own.gigabytes, rate)


def _round(step: Step) -> float:
    """Seconds of a token, after one that brings weights and threads back; the other's threads are asleep then."""
    time.sleep(PAUSE)
    for _ in range(WARM):
        step(5)
    start = time.perf_counter()
    for token in range(TOKENS):
        step(token)
    return (time.perf_counter() - start) / TOKENS


class OwnStep(NamedTuple):
    step: Step
    gigabytes: float  # of weights that a token reads


def weft_step(model: GPT2, kind: str, threads: int, past: int) -> OwnStep:
    """A generator with some tokens read."""
    generator = Generator(model, kind, threads=threads)
    generator.feed(list(range(past)))

    def step(token: int) -> Any:
        if generator.length == generator.context:
            generator.reset()
            generator.feed(list(range(past)))
        return generator.feed([token])

    return OwnStep(step, generator.weight_bytes / 1e9)


@contextmanager
def other_step(model: GPT2, kind: str, threads: int, past: int, folder: Path) -> Iterator[Step]:
    """llama.cpp on the same weights, or PyTorch."""
    with suppress(ImportError):
        import gguf  # noqa: F401
        from llama_cpp import Llama

        write_gguf(model, kind, folder / "model.gguf")
        # All threads for prompts too; nothing is printed but errors.
        llama = Llama(str(folder / "model.gguf"), n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)
        llama.eval(list(range(past)))

        def step(token: int) -> Any:
            if llama.n_tokens >= 1020:
                llama.reset()
                llama.eval(list(range(past)))
            llama.eval([token])

        yield step
        llama.close()
        return
    yield torch_step(model, kind, threads, past)


def other_name() -> str:
    """What stands beside weft."""
    with suppress(ImportError):
        import gguf  # noqa: F401
        import llama_cpp

        return f"llama.cpp ({llama_cpp.__version__} of its Python package)"
    import torch

    return f"PyTorch {torch.__version__}"


def write_gguf(model: GPT2, kind: str, path: Path) -> None:
    """The model as a file of llama.cpp's, with its matrices in the type that has as many bits."""
    import gguf

    settings = model.settings
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(settings.n_positions)
    writer.add_embedding_length(settings.n_embd)
    writer.add_block_count(settings.n_layer)
    writer.add_feed_forward_length(settings.hidden)
    writer.add_head_count(settings.n_head)
    writer.add_layer_norm_eps(settings.layer_norm_epsilon)
    writer.add_vocab_size(settings.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    wanted = gguf.GGMLQuantizationType[GGUF_TYPES[kind]]
    for name, value in model.state_dict().items():
        array = value.detach().numpy()
        if ".c_" in name and name.endswith("weight"):
            array = np.ascontiguousarray(array.T)
        stored = gguf.GGMLQuantizationType.F32
        if array.ndim == 2 and name != "wpe.weight":
            stored = wanted
        data = array if stored == gguf.GGMLQuantizationType.F32 else gguf.quants.quantize(array, stored)
        writer.add_tensor(_gguf_name(name), data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    stem, _, end = name.rpartition(".")
    if stem.startswith("h."):
        _, number, part = stem.split(".", 2)
        return f"blk.{number}.{GGUF_NAMES[part]}.{end}"
    return f"{GGUF_NAMES[stem]}.{end}"


def torch_step(model: GPT2, kind: str, threads: int, past: int) -> Step:
    """The same network in PyTorch, with a cache; weights of fewer bits than 16 are bf16 there."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    dtype = torch.float32 if kind == "fp32" else torch.bfloat16
    p = {name: torch.from_numpy(value.detach().numpy()).to(dtype) for name, value in model.state_dict().items()}
    s = model.settings
    caches = [torch.zeros(2, s.n_head, s.n_positions, s.n_embd // s.n_head, dtype=dtype) for _ in range(s.n_layer)]
    used = 0

    @torch.inference_mode()
    def step(token: int) -> Any:
        nonlocal used
        used = past if used == s.n_positions else used
        x = p["wte.weight"][token] + p["wpe.weight"][used]
        for number, cache in enumerate(caches):
            at = f"h.{number}."
            norm = functional.layer_norm(x, x.shape, p[at + "ln_1.weight"], p[at + "ln_1.bias"])
            made = torch.addmv(p[at + "attn.c_attn.bias"], p[at + "attn.c_attn.weight"].T, norm)
            q, k, v = made.view(3, s.n_head, 1, -1)
            cache[0, :, used], cache[1, :, used] = k[:, 0], v[:, 0]
            y = functional.scaled_dot_product_attention(q, cache[0, :, : used + 1], cache[1, :, : used + 1])
            x = x + torch.addmv(p[at + "attn.c_proj.bias"], p[at + "attn.c_proj.weight"].T, y.flatten())
            norm = functional.layer_norm(x, x.shape, p[at + "ln_2.weight"], p[at + "ln_2.bias"])
            inner = torch.addmv(p[at + "mlp.c_fc.bias"], p[at + "mlp.c_fc.weight"].T, norm)
            inner = functional.gelu(inner, approximate="tanh")
            x = x + torch.addmv(p[at + "mlp.c_proj.bias"], p[at + "mlp.c_proj.weight"].T, inner)
        used += 1
        x = functional.layer_norm(x, x.shape, p["ln_f.weight"], p["ln_f.bias"])
        return p["wte.weight"] @ x

    for token in range(past):
        step(token)
    return step


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("kinds", nargs="*", help="of weights: " + ", ".join(KINDS))
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--past", type=int, default=32, help="tokens that the cache has at first")
    given = options.parse_args()
    for kind in set(given.kinds) - set(KINDS):
        options.error(f"no weights {kind!r}; there are {', '.join(KINDS)}")
    os.environ.setdefault("OMP_NUM_THREADS", str(given.threads))
    print(f"GPT-2, 124 million parameters, {given.threads} threads, beside {other_name()}")
    print("weights  tokens/s   other  ratio     GB  share of the rate at which memory is read")
    for kind in given.kinds or KINDS:
        m = measured(kind, given.threads, given.past)
        share = f"{m.share:.0%} of {m.rate:.1f} GB/s"
        print(f"{kind:<8} {m.own:8.1f} {m.other:7.1f} {m.ratio:6.2f} {m.gigabytes:6.3f}  {share}", flush=True)


if __name__ == "__main__":
    main()
