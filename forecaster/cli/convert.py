"""`forecaster convert`: a table of any size → a panel store."""

from __future__ import annotations

from typing import Any

from forecaster import api
from forecaster.cli import options, results


@options.flags_of(api.convert)
def convert(**given: Any) -> dict[str, Any]:
    """Write a table of any size to a folder that the other verbs read instead.

    The table is streamed: only its longest series has to fit in memory.
    """
    panel = api.convert(**given)
    return {"out": given["store"], **results.about_table(panel)}
