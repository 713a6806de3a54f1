"""What a tensor is. `tensor.py` is the class: a strided view over memory (`memory.py`) of a `storage.py`, with a place
in the autograd graph. `types.py`, `size.py`, `device.py` are the small values it is described by,
`promotion.py` and `convert.py` how dtypes meet and elements change between them. `viewing.py` makes
views, `indexing.py` reads and writes x[i], `inplace.py` writes into tensors that exist."""
