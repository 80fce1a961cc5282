"""Names of columns, in the order of a table: which of them are among others, and which are not."""

from __future__ import annotations

from collections.abc import Iterable


def common(names: Iterable[str], others: Iterable[object]) -> list[str]:
    """Returns the names that are among others, in their order.

    Example:
        >>> common(["time", "shop", "sales"], {"sales", "time"})
        ['time', 'sales']
    """
    found = {*others}
    return [name for name in names if name in found]


def without(names: Iterable[str], others: Iterable[object]) -> list[str]:
    """Returns the names that are not among others, in their order.

    Example:
        >>> without(["time", "shop", "sales"], {"sales", "time"})
        ['shop']
    """
    found = {*others}
    return [name for name in names if name not in found]
