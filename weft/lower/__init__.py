"""From a fused group of nodes to kernels: stages, generic schedules, templates."""
