"""Random numbers from a state that every run moves on."""

from . import draws
