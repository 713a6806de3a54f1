"""Functions and modules as programs by what they do to example inputs."""
