"""Model files are read, and what goes wrong while a node is converted becomes one error that names it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..base.errors import Error, FormatError, NotFound, OutOfMemory, RunError

# What attributes or inputs that make no sense lead to, in converters that take sense for granted.
MALFORMED = (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, ZeroDivisionError)


@contextmanager
def reading(label: str, op_type: str) -> Iterator[None]:
    """Around the conversion of a node, which `label` names."""
    try:
        yield
    except Error as error:
        error.at(label)
        raise
    except MALFORMED as error:
        raise FormatError("the node's attributes or inputs make no sense", where=label, why=str(error)[:200]) from error
    except MemoryError as error:
        raise OutOfMemory("there is not enough memory to read the node", where=label, why=str(error)) from None
    except Exception as error:
        raise RunError(
            f"the converter of {op_type} failed", where=label, why=f"{type(error).__name__}: {error}"
        ) from error


def read_bytes(path: Path, what: str) -> bytes:
    """All of a file that must be there."""
    if not path.is_file():
        raise NotFound(f"there is no {what} {str(path)!r}")
    try:
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"cannot read {str(path)!r}", why=error.strerror) from None


def check_inputs(names: Iterable[str], inputs: Sequence[str]) -> None:
    """Raises if something is said of an input that the model has not."""
    for name in names:
        if name not in inputs:
            raise NotFound(f"the model has no input {name!r}", why="its inputs: " + ", ".join(inputs))


def in_nodes(names: Sequence[str]) -> str:
    """How errors tell where something is.

    >>> in_nodes(["a", "b", "c", "d"])
    'in 4 nodes: a, b, c, ...'
    """
    return f"in {len(names)} nodes: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}"
