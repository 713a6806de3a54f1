"""Passes that run when a precision is asked for by name."""

from . import narrow_products as narrow_products
from . import short_floats as short_floats
