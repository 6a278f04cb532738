"""Where both programs begin. A Ctrl-C before they can handle it ends them as it ends any process, without a traceback."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator


def tokiod() -> NoReturn:
    """Run `tokiod`."""
    with _ended_by_interrupts():
        from tokiod.cli.tokiod import main  # noqa: PLC0415 - inside of the block, as below
    sys.exit(main())


def tokioctl() -> NoReturn:
    """Run `tokioctl`."""
    with _ended_by_interrupts():
        from tokiod.cli.tokioctl import run  # noqa: PLC0415 - as above
    run()


# KeyboardInterrupt can't be caught around imports: a class body turns it into a RuntimeError, and a callback discards it.
@contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Give SIGINT the system's action, unless this process was started with SIGINT ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before)
