"""Many elements to one along dimensions: sums, extremes, quantiles."""
