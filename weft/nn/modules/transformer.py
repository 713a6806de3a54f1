"""The Transformer and its parts."""

__all__: list[str] = []
