"""Signals of a command: Ctrl-C is noted, for libraries swallow it; SIGTERM unwinds the work.

Python hears a signal when a call returns, and leaves when all threads have: where no work would be lost,
a thread ends the process a few seconds after SIGTERM.
"""

from __future__ import annotations

import _thread
import os
import signal
import socket
import sys
import threading
import time
from types import FrameType
from typing import Any, Self

_KEEPING = ("fit", "tune", "ui", "demo")
"""Verbs that have something to write, or a server to end, after SIGTERM."""
_GRACE_SECONDS = 3


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
        self._sender: socket.socket | None = None
        if not {*sys.argv[1:2]} & {*_KEEPING}:
            # Not a pipe: on Windows none was without blocking before Python 3.12.
            signals, self._sender = socket.socketpair()
            self._sender.setblocking(False)
            signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
            threading.Thread(target=_end_in_time, args=(signals,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._sender is not None:
            signal.set_wakeup_fd(-1)
            self._sender.close()
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


def _end_in_time(signals: socket.socket) -> None:
    with signals:
        while (number := signals.recv(1)) and number[0] != signal.SIGTERM:
            pass
    if number:
        time.sleep(_GRACE_SECONDS)
        os._exit(128 + signal.SIGTERM)


def _terminate(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
    raise SystemExit(128 + number)
