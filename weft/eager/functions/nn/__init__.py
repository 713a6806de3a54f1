"""nn.functional: layers, activations, norms, pools, attention, recurrence, losses."""
