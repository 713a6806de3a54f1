"""PyTorch's vocabulary around tensors: `namespace.py` fills `weft._C` step by step,
`public_names.py` says what each name of `weft` means; futures, settings of the process, and what
`weft._utils` has."""
