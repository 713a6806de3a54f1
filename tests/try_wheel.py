"""What an installed weft must do far from its repository; the wheel's own environment runs it.

Everything a user has then is the package: the model and the pictures come from inside it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import weft

assert "site-packages" in weft.__file__, f"not the installed package: {weft.__file__}"
data = Path(weft.__file__).parent / "data"
command = Path(sys.executable).with_name("weft")


def printed(*words: str | Path) -> str:
    run = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=True)
    return run.stdout


digits = np.load(data / "digits.npz")
model = weft.compile(data / "digits.onnx")
images = digits["images"][:64] / np.float32(16)
(logits,) = model.run({"input": images})
right = np.mean(logits.argmax(axis=1) == digits["labels"][:64])
assert right > 0.95, f"{right:.0%} of 64 digits are recognised"

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder) / "digits.weft")
    again = weft.runtime.load(Path(folder) / "digits.weft")
    assert np.array_equal(again.run({"input": images})[0], logits)

x = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2.0, 4.0, 6.0]
unit = weft.jit.CompilationUnit("def double(x: Tensor) -> Tensor:\n    return x.add(x)\n")
assert unit.double(x).tolist() == weft.compile(lambda x: x * 2)(x).tolist() == [2.0, 4.0, 6.0]

assert weft.__version__ in printed(command, "--version")
assert "output" in printed(command, "run", data / "digits.onnx", "--shape", "input=1,1,8,8")
print(f"the wheel of weft {weft.__version__} works")
