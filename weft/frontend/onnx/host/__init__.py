"""Steps of ONNX operators on the host, by subject; each file registers its own."""

from . import extents, labels, maps, sequences, strings, tokens
