"""The command `forecaster` as a process, from the first line of it to the last.

What comes in: the process's arguments and signals. What goes out: its exit code. Promised: Ctrl-C gives
130 and no traceback, from here on until Python takes itself apart. Before that, while the interpreter
starts, it dies of the signal; after it the work is done and told, and the code is the work's own.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys


def main() -> None:
    """Runs the command line as a process of its own, and leaves with its exit code."""
    hears = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    try:
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # the last thing to be done
        from forecaster.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # What torch has made on its import is no garbage; to find that out takes a third of a second.
        gc.freeze()
        if hears:
            # Nothing is left to be tidied up: what libraries still wait for may be left alone.
            signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))


if __name__ == "__main__":
    main()
