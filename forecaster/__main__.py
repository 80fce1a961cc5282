"""The command `forecaster` as a process: Ctrl-C gives exit code 130 and no traceback from here on."""

from __future__ import annotations

import atexit
import os
import signal
import sys


def main() -> None:
    """Runs the command line and leaves with its exit code."""
    # Registered first, so run last: while Python shuts down the exit code is that of the work.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    try:
        from forecaster.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            # Nothing is left to tidy up: exit handlers of libraries need not be waited for.
            signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))


if __name__ == "__main__":
    main()
