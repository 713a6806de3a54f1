"""Distributions of probability, with samples that have gradients."""
