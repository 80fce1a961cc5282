"""Standard output and error as they happen to be: full, closed, ASCII only.

What comes in: the process's own streams. What goes out: the same, which take any text; a stream that
takes nothing more is a fault of one line.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress


def take_any_text() -> None:
    """Lets both streams show what their encoding has no sign for as an escape, not as a fault."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed, or a notebook's
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def flush_output() -> None:
    """Writes out what standard output holds; one that takes nothing more is left alone from then on.

    Raises:
        OSError: why it takes nothing more.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        # Else the interpreter tries again on its way out, and complains.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def told(error: OSError) -> str:
    """Returns in one line what the system refused."""
    return ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)
