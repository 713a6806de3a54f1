"""Products of matrices and what eliminates in them."""
