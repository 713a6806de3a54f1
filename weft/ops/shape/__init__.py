"""Where elements stand: creation, views, slices, joins, gathers and scatters, padding, sorting."""

from . import create, expand, index, join, pad, part, repeat, slicing, sort, transform, views
