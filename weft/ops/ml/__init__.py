"""Learned models that are no networks: ensembles of decision trees."""

from . import trees
