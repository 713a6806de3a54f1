"""What goes wrong while a node of a model file is converted becomes one error that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..base.errors import Error, FormatError, OutOfMemory, RunError

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
