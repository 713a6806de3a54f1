"""A decoder that writes text: a small GPT-2 learns the Zen of Python character by character, then writes it token by
token from its cache, with its weights in fp32, in 8 bits and in 4; on a GPU in fp32 and fp16.

It prints the loss as it goes, what is written after "Beautiful", and how fast.

python examples/generate.py
"""

import argparse
import codecs
import contextlib
import io
import time

import weft
from weft import nn
from weft.generation import GPT2, Generator, GPT2Settings, Sampler

with contextlib.redirect_stdout(io.StringIO()):  # it prints itself when it is imported
    import this

TEXT = codecs.decode(this.s, "rot13")
LETTERS = sorted(set(TEXT))
LENGTH, BATCH, PROMPT = 48, 24, "Beautiful"


def encode(text):
    """Characters as numbers."""
    return [LETTERS.index(letter) for letter in text]


def trained(steps):
    """A network that has read the text."""
    model = GPT2(GPT2Settings(len(LETTERS), n_positions=512, n_embd=64, n_layer=2, n_head=4))
    windows = weft.tensor(encode(TEXT)).unfold(0, LENGTH + 1, 1)  # every place of the text, with what follows
    optimizer = weft.optim.AdamW(model.parameters(), lr=6e-3)
    schedule = weft.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    for step in range(steps):
        batch = windows[weft.randint(len(windows), (BATCH,))]
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % max(steps // 5, 1) == 0 or step == steps - 1:
            print(f"step {step:3}  loss {loss.item():.3f}")
    return model


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--steps", type=int, default=400, help="batches to learn from (default: 400)")
    options.add_argument("--letters", type=int, default=30, help="characters to write (default: 30)")
    options.add_argument("--temperature", type=float, default=0.2, help="how free it writes (default: 0.2)")
    options.add_argument("--target", default="cpu", help="where it writes: cpu or cuda (default: cpu)")
    given = options.parse_args()

    weft.manual_seed(0)
    model = trained(given.steps)
    for weights in ("fp32", "int8", "int4") if given.target == "cpu" else ("fp32", "fp16"):
        generator = Generator(model, weights, target=given.target)
        generator.generate(encode(PROMPT), 2)  # makes its programs
        start = time.perf_counter()
        print(f"\n{weights}: {PROMPT}", end="")
        for token in generator.stream(encode(PROMPT), given.letters, Sampler(given.temperature, top_k=5, seed=1)):
            print(LETTERS[token], end="", flush=True)
        seconds = time.perf_counter() - start
        print(f"\n{given.letters / seconds:.0f} tokens a second, {generator.weight_bytes} bytes of weights")


if __name__ == "__main__":
    main()
