"""Archives of programs: what `weft.jit.save` and PyTorch's `torch.jit.save` write."""
