"""Softmax over many classes, rare ones in clusters."""

__all__: list[str] = []
