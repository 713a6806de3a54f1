"""Decoders on the GPU that is here: `python tests/gpu/run_generation.py` runs each part in a process of its own with a
limit. Small networks with random weights are held against the CPU, token by token; then it prints how many tokens a
second a GPT-2 of 124 million parameters writes, which share of memory's rate that is, and the same for PyTorch with a
cache of fixed size in a CUDA graph, where that has the GPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
RATE = 4.3e12  # bytes a second that kernels of an H200 read
BOUNDS = {"fp32": 2e-4, "tf32": 2e-2, "fp16": 2e-2, "bf16": 1e-1}  # of the largest score
CONTEXT, WARM, TIMED = 256, 20, 150


def drawn(weft, model):
    """The model with random parameters everywhere."""
    weft.manual_seed(5)
    for name, parameter in model.named_parameters():
        noise = weft.randn(parameter.shape)
        parameter.data.copy_(1 + 0.3 * noise if parameter.ndim == 1 and name.endswith("weight") else 0.08 * noise)
    return model


def small(weft):
    from weft.generation import GPT2, GPT2Settings, Llama, LlamaSettings

    llama = LlamaSettings(503, 256, 700, 3, 8, 2, max_position_embeddings=400)
    return {"gpt2": GPT2(GPT2Settings(503, 400, 192, 3, n_head=3)), "llama": Llama(llama)}


def agree(weights):
    """Scores after each token of a sequence, prompts of several lengths, and what is written."""
    import weft
    from weft.generation import Generator

    good = True
    for name, model in small(weft).items():
        drawn(weft, model)
        here, there = Generator(model), Generator(model, weights, target="cuda")
        tokens = np.random.default_rng(1).integers(0, 503, 330).tolist()
        worst = 0.0
        for first, count in ((1, 40), (37, 20), (300, 30)):
            for generator in (here, there):
                generator.reset()
            for some in (tokens[:first], *([token] for token in tokens[first : first + count])):
                wanted, found = here.feed(some), there.feed(some)
                worst = max(worst, float(np.abs(found - wanted).max() / np.abs(wanted).max()))
        wanted, found = (generator.generate(tokens[:9], 60) for generator in (here, there))
        same = next((n for n, pair in enumerate(zip(found, wanted)) if pair[0] != pair[1]), len(wanted))
        fits = worst <= BOUNDS[weights] and (weights != "fp32" or found == wanted)
        told = f"at most {worst:.1e} apart; the first {same} of {len(wanted)} tokens are the CPU's"
        print(f"{name} {weights}: {'agree' if fits else 'DIFFER'}, {told}", flush=True)
        good = good and fits
    return good


def speed(weights):
    """Tokens a second of a large network, one sequence at a time, with scores on the host after each."""
    from weft.generation import GPT2, Generator, GPT2Settings

    model = GPT2(GPT2Settings())
    begun = time.perf_counter()
    generator = Generator(model, weights, context=CONTEXT, target="cuda")
    scores = generator.feed(list(range(16)))
    ready = time.perf_counter() - begun
    taken = seconds(lambda token: generator.feed([token]), int(scores.argmax()))
    share = generator.weight_bytes / taken / RATE
    told = f"{1 / taken:.0f} tokens a second, {share:.0%} of 4.3 TB/s by weights alone; ready after {ready:.1f} s"
    print(f"gpt2 124M {weights}: weft {told}", flush=True)
    try:
        import torch
    except ImportError:
        return True
    if torch.cuda.is_available():
        peer(torch, model, weights, generator.weight_bytes)
    return True


def seconds(feed, token):
    """What a token takes, after some."""
    for number in range(WARM + TIMED):
        if number == WARM:
            begun = time.perf_counter()
        token = int(feed(token).argmax())
    return (time.perf_counter() - begun) / TIMED


def peer(torch, model, weights, weight_bytes):
    """PyTorch's eager operators, captured once."""
    torch.backends.cuda.matmul.allow_tf32 = weights == "tf32"
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(weights, torch.float32)
    params = {name: torch.tensor(value.numpy()).to("cuda", dtype) for name, value in model.state_dict().items()}
    token, place = (torch.zeros(1, dtype=torch.int64, device="cuda") for _ in range(2))
    step = torch_step(torch, params, model.settings, CONTEXT, token, place)
    with torch.no_grad():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scores = step()

        def feed(number):
            token.fill_(number)
            graph.replay()
            place.add_(1)
            return scores.cpu().numpy()

        place.fill_(16)
        taken = seconds(feed, 3)
    share = weight_bytes / taken / RATE
    print(f"gpt2 124M {weights}: PyTorch {1 / taken:.0f} tokens a second, {share:.0%} of 4.3 TB/s", flush=True)


def torch_step(torch, p, s, context, token, place):
    """A step over keys and values of fixed size, as a function without arguments: scores of what comes next."""
    F = torch.nn.functional
    width = s.n_embd // s.n_head
    like = p["wte.weight"]
    caches = [torch.zeros(2, s.n_head, context, width, dtype=like.dtype, device=like.device) for _ in range(s.n_layer)]
    numbers = torch.arange(context, device=like.device)

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], s.layer_norm_epsilon)

    def product(x, name):
        return torch.addmm(p[name + ".bias"], x, p[name + ".weight"])

    def step():
        x = p["wte.weight"][token] + p["wpe.weight"][place]
        seen = (numbers <= place)[None, None]
        for number, (keys, values) in enumerate(caches):
            at = f"h.{number}."
            q, k, v = product(norm(x, at + "ln_1"), at + "attn.c_attn").view(3, s.n_head, 1, width)
            keys.index_copy_(1, place, k)
            values.index_copy_(1, place, v)
            y = F.scaled_dot_product_attention(q[None], keys[None], values[None], attn_mask=seen)
            x = x + product(y.reshape(1, -1), at + "attn.c_proj")
            inner = F.gelu(product(norm(x, at + "ln_2"), at + "mlp.c_fc"), approximate="tanh")
            x = x + product(inner, at + "mlp.c_proj")
        return (norm(x, "ln_f") @ p["wte.weight"].T)[0].float()

    return step


PARTS = {
    **{f"agree {weights}": (lambda weights=weights: agree(weights), 14) for weights in ("fp32", "fp16")},
    **{f"speed {weights}": (lambda weights=weights: speed(weights), 16) for weights in ("fp32", "fp16")},
    **{f"agree {weights}": (lambda weights=weights: agree(weights), 14) for weights in ("tf32", "bf16")},
}
USUAL = ("agree fp32", "agree fp16", "speed fp32", "speed fp16")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help=f"parts with this in their names, of {', '.join(PARTS)}")
    parser.add_argument("--more", type=float, default=1, help="by what limits are multiplied")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return 0 if PARTS[options.part][0]() else 1
    failed = 0
    names = [name for name in PARTS if options.only in name] if options.only else USUAL
    for name in names:
        failed += run(name, PARTS[name][1] * options.more)
    print(f"{failed} of {len(names)} failed" if failed else "all agree", flush=True)
    return 1 if failed else 0


def run(name: str, limit: float) -> int:
    """A part in a process of its own; gives 1 where it failed."""
    command = [sys.executable, str(HERE), f"--part={name}"]
    try:
        made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit)
    except subprocess.TimeoutExpired as stopped:
        print(f"{(stopped.stdout or b'').decode()[-2000:]}{name}: stopped after {limit:.0f} s", flush=True)
        return 1
    print(made.stdout.decode()[-4000:], end="", flush=True)
    if made.returncode:
        print(f"{name}: FAILED", flush=True)
    return int(made.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
