"""How many cores torch may use.

What comes in: nothing. What goes out: a stretch of work on fewer threads than torch takes by itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def spare_threads() -> Iterator[None]:
    """Runs torch on half the cores, unless OMP_NUM_THREADS says otherwise.

    OpenMP threads spin while they wait for each other: one that must share its core with anything else
    holds up all the others. On two shared cores a training step of the default network takes 72 ms on
    one thread, and between 48 and 1,160 ms on two.
    """
    before = torch.get_num_threads()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, min(before, (os.cpu_count() or 2) // 2)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
