"""Ctrl-C, remembered: libraries that are stopped half-way swallow it, or say something else is wrong.

What comes in: SIGINT. What goes out: KeyboardInterrupt, as ever, and the knowledge that it was there:
what fails after it failed because of it, and is no fault to be shown. Where it cannot be raised, as in
a finaliser, it is raised again a moment later.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_LATER_SECONDS = 0.02


class Interrupt:
    """Whether Ctrl-C was pressed in a `with` block."""

    def __init__(self) -> None:
        self.came = False
        self._hears = False

    def __enter__(self) -> Self:
        # Whoever started this process may have had it ignored.
        self._hears = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._hears:
            signal.signal(signal.SIGINT, self._take)
            sys.unraisablehook = self._unraisable
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._hears:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = sys.__unraisablehook__

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        raise KeyboardInterrupt

    def _unraisable(self, unraisable: Any) -> None:
        """Passes over what could not be raised because Ctrl-C came in its way."""
        if not self.came:
            sys.__unraisablehook__(unraisable)
        elif issubclass(unraisable.exc_type, KeyboardInterrupt):
            again = threading.Timer(_LATER_SECONDS, _thread.interrupt_main)
            again.daemon = True
            again.start()
