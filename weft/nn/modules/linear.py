"""Products with a matrix of weights."""

__all__: list[str] = []
