"""Attention: one kernel."""
