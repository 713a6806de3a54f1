"""Text generation: decoders of the GPT-2 and Llama architectures (Mistral, Qwen, Phi), run token by token over a cache.

model = weft.generation.load("folder")             config.json and safetensors, or GPT2(...), Llama(...)
generator = weft.generation.Generator(model, weights="int4")
for token in generator.stream(prompt, 50, Sampler(temperature=0.8, top_p=0.9, seed=1)):
    ...
"""

from .files import load
from .generator import Generator
from .gpt2 import GPT2, GPT2Settings
from .llama import Llama, LlamaSettings
from .sampling import Sampler

__all__ = ["GPT2", "GPT2Settings", "Generator", "Llama", "LlamaSettings", "Sampler", "load"]
