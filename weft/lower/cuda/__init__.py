"""Schedules for GPUs: fused groups become loop IR whose outermost loops are blocks and threads."""
