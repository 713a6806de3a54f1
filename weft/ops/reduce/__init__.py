"""From many elements to few: sums, extrema, moments; scans."""

from . import reduce_moments, reductions, scan
