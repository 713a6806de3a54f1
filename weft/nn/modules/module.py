"""What every layer is: parameters, buffers and other modules, by name."""

__all__: list[str] = []
