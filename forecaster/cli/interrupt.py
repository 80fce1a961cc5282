"""Signals of a command: Ctrl-C is noted, for libraries swallow it; SIGTERM unwinds the work."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from types import FrameType
from typing import Any, Self


class Interrupt:
    """Whether Ctrl-C was pressed in a `with` block; KeyboardInterrupt is raised as ever."""

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> Self:
        # A parent process may have had the signal ignored; that holds.
        self._heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._heeded:
            signal.signal(signal.SIGINT, self._handle)
            sys.unraisablehook = self._raise_again
        signal.signal(signal.SIGTERM, _terminate)
        return self

    def __exit__(self, *error: object) -> None:
        if self._heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = sys.__unraisablehook__

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        signal.default_int_handler(number, frame)

    def _raise_again(self, unraisable: Any) -> None:
        """Raises Ctrl-C a moment later where it hit a finaliser, which cannot raise."""
        if not self.came:
            sys.__unraisablehook__(unraisable)
        elif issubclass(unraisable.exc_type, KeyboardInterrupt):
            again = threading.Timer(0.02, _thread.interrupt_main)
            again.daemon = True
            again.start()


def _terminate(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
    raise SystemExit(128 + number)
