"""Channels of groups, interleaved."""

__all__: list[str] = []
