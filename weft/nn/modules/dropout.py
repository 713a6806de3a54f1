"""Random zeros while training."""

__all__: list[str] = []
