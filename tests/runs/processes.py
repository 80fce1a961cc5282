"""Servers in processes of their own: ports for them, and their end."""

import os
import signal
import socket
import subprocess
from contextlib import suppress


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def end(process: subprocess.Popen) -> None:
    """Ends a process in a session of its own, and all that it started, and nothing else."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)
