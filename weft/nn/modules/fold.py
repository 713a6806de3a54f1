"""Windows of images as columns, and back."""

__all__: list[str] = []
