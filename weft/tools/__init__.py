"""What the command line does: run, info, demo."""
