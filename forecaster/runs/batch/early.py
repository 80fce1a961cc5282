"""A table that is read while torch is being loaded: in a short forecast each takes a third of the time.

What comes in: the folder of a model and a table, as the command line has them. What goes out: the
table, read; or as it came, where reading it now would not pay or might not succeed.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forecaster.arguments import config_of
from forecaster.config import DataConfig, parse_config
from forecaster.errors import ForecasterError
from forecaster.forecast.contract import read_json
from forecaster.panel.read import read_table
from forecaster.runs.batch.memory import SHARE, files_of, free_memory, table_memory


def read_early(model: Path, data: object, roles: Mapping[str, Any]) -> object:
    """Returns the table behind a path, read already; `data` itself where that has to wait.

    Args:
        model: folder of a saved model; anything else waits.
        data: the table.
        roles: columns that are called otherwise, and how the table is read.

    Raises:
        DataError: the table cannot be read.
    """
    if "torch" in sys.modules or not files_of(data):
        return data
    # Loading holds one core, and reading leaves Python to it.
    threading.Thread(target=importlib.import_module, args=("torch",), daemon=True).start()
    try:
        reading = _reading(model, roles)
    except ForecasterError:  # said better where the whole model is read
        return data
    fits = reading.layout != "rows" and table_memory(data) <= SHARE * free_memory()
    return read_table(data, reading) if fits else data


def _reading(model: Path, roles: Mapping[str, Any]) -> DataConfig:
    """Returns how a table is read: as the model's was, unless something else was said."""
    config = parse_config(read_json(model, "config.json"), source=str(model))
    told = config_of(None, None, roles).data
    return config.replaced(data=told.model_dump(include=set(roles))).data
