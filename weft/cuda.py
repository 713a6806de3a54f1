"""What there is of GPUs: asked honestly."""
