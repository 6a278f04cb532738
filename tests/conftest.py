"""What holds for all tests: a busy machine is no fault, so hypothesis sets no time limit for an example (pytest does, for a test)."""

import signal

from hypothesis import settings

settings.register_profile("tokiod", deadline=None)
settings.load_profile("tokiod")

# A shell that starts us in the background has us ignore Ctrl-C, and with us the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
