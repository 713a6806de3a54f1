"""Passes about numbers of fewer bits: of precisions that are asked for by name, and of networks that are quantised."""

from . import narrow_products as narrow_products
from . import quantised as quantised
from . import round_images as round_images
from . import short_floats as short_floats
