"""Ctrl-C, remembered: libraries that are stopped half-way swallow it, or say something else is wrong.

What comes in: SIGINT. What goes out: KeyboardInterrupt, as ever, and the knowledge that it was there:
what fails after it failed because of it, and is no fault to be shown.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any


class Interrupt:
    """Whether Ctrl-C was pressed since `listen`."""

    def __init__(self) -> None:
        self.came = False

    def listen(self) -> None:
        """Takes SIGINT from now on, unless whoever started this process had it ignored."""
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._take)
            sys.unraisablehook = self._unraisable

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        raise KeyboardInterrupt

    def _unraisable(self, unraisable: Any) -> None:
        """Passes over what could not be raised because Ctrl-C came in its way."""
        if not self.came:
            sys.__unraisablehook__(unraisable)
