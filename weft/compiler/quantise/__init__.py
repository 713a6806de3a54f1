"""Models to models of bytes: what values reach while samples run, and a graph with quantize and dequantize in it."""
