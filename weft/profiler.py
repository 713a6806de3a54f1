"""Where the time of tensors' calls goes."""
