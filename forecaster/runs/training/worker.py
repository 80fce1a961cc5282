"""One of the other processes of a training, as `launch.py` starts it.

What comes in on its standard input: the work. What goes out: "ready", once; then gradients, to those
that train the same. Promised: it writes no file and says nothing unless it breaks, and it ends when the
process that started it does.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading

from forecaster.errors import ForecasterError
from forecaster.model.threads import spare_threads
from forecaster.panel.stores.store import open_store
from forecaster.runs.resume.checkpoints import Checkpoints
from forecaster.runs.training.devices import joined
from forecaster.runs.training.launch import READY, Work
from forecaster.runs.training.precision import settle_precision
from forecaster.runs.training.train import Surroundings, train
from forecaster.windows.store import training_store


def main() -> int:
    """Trains along; returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the process that started this one decides
        signal.signal(number, signal.SIG_IGN)
    work: Work = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_leave_with_the_parent, daemon=True).start()
    store = training_store(open_store(work.store), work.config)
    files = work.checkpoints and Checkpoints(*work.checkpoints, say=lambda _: None)
    os.write(1, READY)
    os.dup2(2, 1)
    try:
        with spare_threads(work.place.devices), joined(work.place):
            around = Surroundings(place=work.place, checkpoints=files or None)
            settle_precision(work.learner, store, work.split, work.config, work.place)
            train(work.learner, store, work.split, work.config, around)
    except ForecasterError:  # the process that started this one meets it too, and tells it
        return 2
    return 0


def _leave_with_the_parent() -> None:
    """Ends this process when its input does, whatever it is waiting for."""
    while os.read(0, 1):  # the reader's lock, held by a thread, would break the end of the program
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
