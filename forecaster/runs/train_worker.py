"""One of the other processes of a fit, as `launch.py` starts it.

What comes in on its standard input: the work, then one training after the other. What goes out:
"ready", once; then gradients, to those that train the same. Promised: it writes no file and says
nothing unless it breaks, and it ends when the process that started it does.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from queue import SimpleQueue
from typing import Any

from forecaster.errors import ForecasterError
from forecaster.model.threads import spare_threads
from forecaster.panel.store import open_store
from forecaster.runs.checkpoints import Checkpoints
from forecaster.runs.distributed import joined
from forecaster.runs.launch import LENGTH_BYTES, READY, Training, Work
from forecaster.runs.train import TrainingContext, train
from forecaster.windows.store import WindowStore, training_store


class _Inbox:
    """What the process that started this one hands over.

    Read from the bare descriptor: the lock of `sys.stdin`, held by a thread, would break the end of
    the program.
    """

    def __init__(self) -> None:
        self.waits = True
        """Whether nothing is being trained, so that the end of the input is the end of the work."""
        self._things: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def next(self) -> Any:
        """Returns the next thing; None where there is none to come."""
        return self._things.get()

    def _read(self) -> None:
        while length := _exactly(LENGTH_BYTES):
            self._things.put(pickle.loads(_exactly(int.from_bytes(length))))
        if not self.waits:  # whatever it is waiting for will never come
            os._exit(1)
        self._things.put(None)


def main() -> int:
    """Trains along; returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the process that started this one decides
        signal.signal(number, signal.SIG_IGN)
    inbox = _Inbox()
    work: Work = inbox.next()
    store = training_store(open_store(work.store), work.config)
    files = work.checkpoints and Checkpoints(*work.checkpoints, say=lambda _: None)
    os.write(1, READY)
    os.dup2(2, 1)
    inbox.waits = False  # for the others to meet, which may never come
    try:
        with spare_threads(work.distributed.devices), joined(work.distributed):
            inbox.waits = True
            while training := inbox.next():
                inbox.waits = False
                _train(training, work, files or None, store)
                inbox.waits = True
    except ForecasterError:  # the process that started this one meets it too, and tells it
        return 2
    return 0


def _train(training: Training, work: Work, files: Checkpoints | None, store: WindowStore) -> None:
    kept = None if files is None or training.name is None else files.within(training.name)
    around = TrainingContext(distributed=work.distributed, checkpoints=kept)
    train(training.learner, store, training.split, training.config, around)


def _exactly(size: int) -> bytes:
    """Returns so many bytes of the input; none where it has ended."""
    parts: list[bytes] = []
    while size and (part := os.read(0, min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"" if size else b"".join(parts)


if __name__ == "__main__":
    sys.exit(main())
