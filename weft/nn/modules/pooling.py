"""Windows of images as one value each."""

__all__: list[str] = []
