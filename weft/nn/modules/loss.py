"""How far an answer is from the one that is wanted."""

__all__: list[str] = []
