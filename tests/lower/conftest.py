"""Property tests have no deadline: the machines that run them are shared."""

from hypothesis import settings

settings.register_profile("shared_machine", deadline=None)
settings.load_profile("shared_machine")
