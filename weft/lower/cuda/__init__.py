"""Schedules, templates and layout rules of GPUs: groups become loops over blocks and threads, or kernels of tensor
cores."""
