"""Writers of weft operators as ONNX nodes, by subject; each file registers its own."""

from . import control, detection, index, layers, math, norm, pool, quantised, reduce, rnn, shape
