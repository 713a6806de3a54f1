"""Learned models that are no networks: ensembles of decision trees, support vector machines."""

from . import coupling, trees
