"""Who runs a trial: a process of some machine, and whether it still lives.

What comes in: a trial of a study that many processes share. What goes out: whether its process is gone.
Promised: a process of this machine is known by its number and its start, so a number that was given
away again is not taken for it; of other machines only the silence is judged, never their clocks.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

BEAT_SECONDS = 15.0
"""A worker says this often that it lives."""
SILENT_SECONDS = 120.0
"""A worker of another machine that said nothing for so long counts as gone."""


@dataclass(frozen=True)
class Owner:
    """A process, unlike any other on any machine."""

    host: str
    """Name of the machine."""
    system: str
    """Start of the machine and its room of process numbers, as a container has one of its own."""
    pid: int
    """Number of the process."""
    started: float
    """Seconds between the start of the machine and that of the process."""

    @classmethod
    def this(cls) -> Owner:
        """Returns the process that asks."""
        return cls(socket.gethostname(), _system(), os.getpid(), _started(os.getpid()) or 0.0)

    @classmethod
    def read(cls, text: object) -> Owner | None:
        """Returns the owner that `str` wrote; None where it is no owner's text."""
        parts = str(text).rsplit(" ", 3)
        try:
            host, system, pid, started = parts
            return cls(host, system, int(pid), float(started))
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.host} {self.system} {self.pid} {self.started}"

    @property
    def is_here(self) -> bool:
        """Whether this machine can see the process, or see that there is none."""
        return (self.host, self.system) == (socket.gethostname(), _system())

    @property
    def is_gone(self) -> bool:
        """Whether a process of this machine has ended."""
        return _started(self.pid) != self.started


class Watch:
    """Tells which trials lost their worker. It learns about other machines by looking again."""

    def __init__(self, silent_seconds: float = SILENT_SECONDS):
        self._silent = silent_seconds
        self._heard: dict[int, tuple[Any, float]] = {}

    def is_lost(self, trial: FrozenTrial) -> bool:
        """Whether the worker of a running trial is gone."""
        owner = Owner.read(trial.user_attrs.get("owner"))
        if owner is not None and owner.is_here:
            return owner.is_gone
        beat, now = trial.user_attrs.get("beat"), time.monotonic()
        known = self._heard.get(trial.number)
        if known is None or known[0] != beat:
            self._heard[trial.number] = (beat, now)
            return False
        return now - known[1] > self._silent


def _started(pid: int) -> float | None:
    """Returns when a process started, in seconds after its machine; None when it runs no more."""
    try:
        # Asked first: it also sets what the process' own start is counted from, so that a clock that
        # was put right in between cancels out.
        boot = psutil.boot_time()
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return round(process.create_time() - boot, 2)
    except psutil.Error:
        return None


@lru_cache(maxsize=1)
def _system() -> str:
    """Returns what tells two machines, or two containers of one machine, of the same name apart."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return "-"
