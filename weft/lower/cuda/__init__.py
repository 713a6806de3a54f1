"""Schedules, templates and layout rules of GPUs."""
