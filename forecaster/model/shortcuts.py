"""Work that only some inputs need, and that is skipped where none of a batch does.

A graph is made once for all inputs: while it is traced, `for_all_inputs` takes no shortcut; nor does
`torch.compile` where it would have to look at values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_taken = True


@contextmanager
def for_all_inputs() -> Iterator[None]:
    """Decides nothing by the values of tensors: what is computed, or traced, holds for all inputs."""
    global _taken
    before, _taken = _taken, False
    try:
        yield
    finally:
        _taken = before


def _may_look() -> bool:
    """Returns whether the values of tensors may decide."""
    return _taken and not torch.compiler.is_compiling()


def may_hold(mask: Tensor) -> bool:
    """Returns whether a mask is True anywhere; for all inputs, that it may be."""
    return not _may_look() or bool(mask.any())


def upper_bound(counts: Tensor, limit: int) -> int:
    """Returns the largest of some counts, of which none exceeds the limit; for all inputs, the limit."""
    return int(counts.max()) if _may_look() else limit


def shortcut(
    general: Callable[Arguments, Result],
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Marks a faster way to the result of a `general` function, which takes its place for all inputs."""

    def decorate(fast: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @wraps(fast)
        def chosen(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            function = fast if _taken else general
            return function(*args, **kwargs)

        return chosen

    return decorate
