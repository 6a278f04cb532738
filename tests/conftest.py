"""What holds for all tests: a busy machine is no fault, so hypothesis sets no time limit for an example (pytest does, for a test)."""

from hypothesis import settings

settings.register_profile("tokiod", deadline=None)
settings.load_profile("tokiod")
