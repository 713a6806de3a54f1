"""Passes that run when a precision is asked for by name."""

from . import narrow_products as narrow_products
from . import round_images as round_images
from . import short_floats as short_floats
