"""Random numbers, the same as PyTorch's from the same seed: `generator.py` is a stream of bits with
its seeds and state, `distributions.py`, `poisson.py` and `shuffle.py` make numbers of them."""
