"""What this machine computes with."""
