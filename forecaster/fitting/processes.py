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
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from forecaster.errors import ConfigError, ForecasterError

REFUSED = 2
"""Exit code of a child that raised a `ForecasterError`."""
_MAIN = "from forecaster.fitting.processes import run_child; run_child()"
_END_SECONDS = 10


class Child:
    """A process that runs `module:function(parent)`; `name` is its name in messages."""

    def __init__(self, function: str, name: str, environment: Mapping[str, str] | None = None):
        if os.name == "nt":
            raise ConfigError(
                f"{name}: several processes on one machine need Linux or macOS, found Windows; leave out "
                "--devices and --workers"
            )
        self.name = name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._connection, theirs = Pipe()
        package = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        with theirs:
            self._process = subprocess.Popen(
                # -P: a file in the working folder must not hide a module of Python's own.
                [sys.executable, "-P", "-c", _MAIN, function, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, **(environment or {}), "PYTHONPATH": paths},
                pass_fds=[theirs.fileno()],
            )

    def fileno(self) -> int:
        """Returns the file descriptor that `ready` waits on."""
        return self._connection.fileno()

    def send(self, message: Any) -> None:
        """Sends a message; `receive` shows whether the child is still there."""
        with suppress(BrokenPipeError, ConnectionResetError):
            _send(self._connection, message)

    def receive(self) -> Any:
        """Returns the next message.

        Raises:
            EOFError: the child ended.
            ForecasterError: it ended the child.
        """
        try:
            message = pickle.loads(self._connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            self._process.wait()
            raise EOFError(self.name) from None
        if isinstance(message, ForecasterError):
            raise message
        return message

    def failure(self) -> str | None:
        """Returns how the child failed; None while it runs, and after exit code 0 or `REFUSED`."""
        code = self._process.poll()
        if code in (None, 0, REFUSED):
            return None
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{self.name} {how}" + (f": {lines[-1].strip()}" if lines else "")

    def end(self) -> None:
        """Ends the child; one that has not exited after ten seconds is killed."""
        self._connection.close()
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def ready(children: Iterable[Child]) -> list[Child]:
    """Waits for the next messages; returns the children that have sent one or ended."""
    return wait(list(children))  # type: ignore[arg-type, return-value]


class Parent:
    """The process that started this one, which ends when the parent closes the connection."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._messages: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: Any) -> None:
        """Sends a message to the parent."""
        _send(self._connection, message)

    def receive(self) -> Any:
        """Returns the next message."""
        return self._messages.get()

    def _read(self) -> None:
        try:
            while True:
                self._messages.put(pickle.loads(self._connection.recv_bytes()))
        except (EOFError, ConnectionResetError):
            os._exit(0)  # whatever is being done has no purpose now
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)


def _send(connection: Connection, message: Any) -> None:
    # Not `Connection.send`: its pickler, as torch extends it, would share the memory of tensors.
    connection.send_bytes(pickle.dumps(message))


def run_child() -> None:
    """Runs the function named by the first argument, as `Child` starts it."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides
        signal.signal(number, signal.SIG_IGN)
    function, handle = sys.argv[1:]
    parent = Parent(Connection(int(handle)))
    module, name = function.split(":")
    code = 0
    try:
        getattr(import_module(module), name)(parent)
    except ForecasterError as error:
        parent.send(error)
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


def this_process() -> str:
    """Returns what identifies this process: host, process id, start time."""
    import psutil

    return f"{socket.gethostname()} {os.getpid()} {psutil.Process().create_time():.0f}"


def is_gone(process: str) -> bool | None:
    """Returns whether a process has ended; None if it ran on another machine."""
    import psutil

    try:
        host, pid, started = process.rsplit(" ", 2)
        if host != socket.gethostname():
            return None
        found = psutil.Process(int(pid))
        # Process ids are used again; start times are good to a second.
        same = abs(found.create_time() - float(started)) <= 2
        return not same or found.status() == psutil.STATUS_ZOMBIE
    except (ValueError, psutil.Error):
        return True
