"""MLflow's pages on a local store: one process that serves them, and its end.

What comes in: a store and a port. What goes out: an address, said when it answers. Promised: the server
listens on this machine alone; it ends with the command that started it, and its children with it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from forecaster.errors import ConfigError
from forecaster.runs.tracking.identity import without_password
from forecaster.runs.tracking.listing import database, has_store
from forecaster.runs.tracking.store import artifacts_folder

PORT = 5000
"""The first one tried."""
_HOST = "127.0.0.1"
_PORTS = 50  # tried one after the other
_START_SECONDS = 120
_END_SECONDS = 10


def serve(uri: str, port: int | None, say: Callable[[str], None]) -> int:
    """Serves a store until Ctrl-C or SIGTERM; returns the exit code.

    Args:
        uri: of the store.
        port: None = 5000 or the next free one, 0 = any.
        say: receives the address as soon as it answers.

    Raises:
        ConfigError: there is no store, it is a server itself, the port is in use, or the server ends.
    """
    shown = without_password(uri)
    if uri.startswith(("http://", "https://")):
        raise ConfigError(f"{shown} is a server already: open that address in a browser")
    if not has_store(uri):
        raise ConfigError(f"MLflow store {shown}: there is none yet; forecaster fit makes it")
    port = free_port(port)
    with tempfile.TemporaryFile() as log, _heard() as asked, _server(uri, port, log) as server:
        address = f"http://{_HOST}:{port}"
        _await(server, address, log)
        say(address)
        while not asked and server.poll() is None:
            time.sleep(0.1)
        if not asked:
            raise ConfigError(f"the MLflow server ended: {_last_line(log)}")
        return 0 if asked[0] == signal.SIGINT else 128 + asked[0]


def free_port(port: int | None) -> int:
    """Returns a port that nobody listens on.

    Args:
        port: None = 5000 or the next free one, 0 = any.

    Raises:
        ConfigError: it is in use.
    """
    tried = range(PORT, PORT + _PORTS) if port is None else (port,)
    for one in tried:
        with socket.socket() as server:
            # As the server itself will: connections that have just ended do not count.
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind((_HOST, one))
            except OSError as error:
                reason = error.strerror
                continue
            return int(server.getsockname()[1])
    if port is None:
        raise ConfigError(f"ports {PORT} to {PORT + _PORTS - 1} are in use: choose one with --port")
    raise ConfigError(
        f"--port {port}: {reason}; choose another one, or leave --port away for the next free one"
    )


@contextmanager
def _heard() -> Iterator[list[int]]:
    """Yields the signals to end that have come; from here on they do nothing else."""
    asked: list[int] = []

    def hear(number: int, frame: Any) -> None:
        asked.append(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _server(uri: str, port: int, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    words = ["--host", _HOST, "--port", str(port), "--workers", "1", "--backend-store-uri", uri]
    if uri.startswith("sqlite:///"):
        words += ["--artifacts-destination", str(artifacts_folder(uri))]
    quiet = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    folder = database(uri).parent if uri.startswith("sqlite:///") else Path.cwd()
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *words],
        env=os.environ | quiet,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,  # Ctrl-C reaches us alone, and we end all that it started
    )
    try:
        yield server
    finally:
        _end(server)


def _end(server: subprocess.Popen[bytes]) -> None:
    """Ends a server and all its children, gently at first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(_END_SECONDS)
    # Its children are gone when the group is: the second signal found nobody, or ended them.


def _await(server: subprocess.Popen[bytes], address: str, log: IO[bytes]) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        if server.poll() is not None:
            raise ConfigError(f"the MLflow server did not start: {_last_line(log)}")
        with suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=2):
            return
        time.sleep(0.1)
    raise ConfigError(f"the MLflow server did not answer within {_START_SECONDS} s: {_last_line(log)}")


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = [line for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
