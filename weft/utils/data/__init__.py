"""Data sets, and what loads batches of them."""
