"""Rows: softmax, norms, cross entropy, attention's scores, and their gradients."""
