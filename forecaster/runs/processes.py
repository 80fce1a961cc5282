"""Child processes and stop signals: the one place where processes start, exchange messages and end.

A child is a fresh Python that runs one function of this package and exchanges pickled messages with
its parent. It exits when its parent does. The other ways failed: fork deadlocks in the threads of
polars; spawn imports the caller's script again; Lightning's `ddp` runs the caller's command again, that
a notebook does not have; torch's `elastic_launch` makes rank 0 a child, too, so that the fitted model
and its callbacks would live in another process than the caller's.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from forecaster.errors import ForecasterError

REFUSED = 2
"""Exit code of a child that raised a `ForecasterError`."""
_MAIN = "from forecaster.runs.processes import run_child; run_child()"
_END_SECONDS = 10


class Child:
    """A process that runs `module:function(parent)`; `name` is its name in messages."""

    def __init__(self, function: str, name: str, environment: Mapping[str, str] | None = None):
        self.name = name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        package = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            # -P: a file in the working folder must not hide a module of Python's own.
            [sys.executable, "-P", "-c", _MAIN, function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **(environment or {}), "PYTHONPATH": paths},
        )

    def send(self, message: Any) -> None:
        """Sends a message; `receive` tells whether the child is still there."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()

    def receive(self) -> Any:
        """Returns the next message; raises EOFError if the child ended."""
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            self._process.wait()
            raise EOFError(self.name) from None

    def failure(self) -> str | None:
        """Returns how the child failed; None while it runs, and after exit code 0 or `REFUSED`."""
        code = self._process.poll()
        if code in (None, 0, REFUSED):
            return None
        last = self.last_line()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{self.name} {how}" + (f": {last}" if last else "")

    def last_line(self) -> str:
        """Returns the last line of its standard error."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def end(self) -> None:
        """Lets a finished child exit; kills it after ten seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process.stdout.close()
        self._log.close()

    def kill(self) -> None:
        """Ends the child at once."""
        self._process.kill()
        self._process.wait()


class Parent:
    """The other end of the pipes, in the child."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[Any] = SimpleQueue()
        self._waits, self._ended = False, False
        self._out = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)  # what a library prints is no message
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: Any) -> None:
        """Sends a message to the parent."""
        pickle.dump(message, self._out)
        self._out.flush()

    def receive(self) -> Any:
        """Returns the next message; None when the parent has closed the pipe."""
        self._waits = True
        message = self._messages.get()
        self._waits = False
        if self._ended and message is not None:
            os._exit(1)
        return message

    def _read(self) -> None:
        stream = os.fdopen(0, "rb")
        try:
            while True:
                self._messages.put(pickle.load(stream))
        except (EOFError, pickle.UnpicklingError):
            self._ended = True
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        if not self._waits:  # the parent is gone, and the work has no purpose
            os._exit(1)
        self._messages.put(None)


def run_child() -> None:
    """Runs the function named by the first argument, as `Child` starts it."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides
        signal.signal(number, signal.SIG_IGN)
    module, name = sys.argv[1].split(":")
    code = 0
    try:
        getattr(import_module(module), name)(Parent())
    except ForecasterError as error:
        sys.stderr.write(f"{error}\n")
        code = REFUSED
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stderr.flush()
    os._exit(code)  # the thread that reads would otherwise hold a lock of the interpreter's


class StopSignals:
    """Notes the first SIGINT or SIGTERM, to stop work at a safe point; the second acts as usual."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """Takes the signals that are not ignored; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note) or signal.SIG_DFL

    def restore(self) -> None:
        """Puts the former handlers back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def raise_received(self) -> None:
        """Raises what the noted signal stands for, if there is one."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is not None:
            raise SystemExit(128 + self.received)

    def _note(self, number: int, frame: object) -> None:
        self.received = number
        self.restore()
