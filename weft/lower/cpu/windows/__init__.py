"""Convolutions of eager calls: sums over windows, whose sizes are arguments."""
