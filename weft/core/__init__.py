"""Machinery of the graph IR: operators, symbols, graphs, inference, passes. It knows no op name."""
