"""Models that a long backtest has made so far, kept until it ends: the same call resumes from them.

rows.csv.run/<digest of model, table and options>/<time of the last row that the model knows>/
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from forecaster.config import Config
from forecaster.files import only_writer
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.parts import digest_of
from forecaster.forecast.saved_model import load_artifact, save_artifact
from forecaster.panel.panel import Panel


@dataclass(frozen=True)
class KeptModels:
    """Models by the time of the last row that they know."""

    folder: Path | None = None
    """None = nothing is kept."""

    def at(self, time: int, make: Callable[[], Artifact]) -> Artifact:
        """Returns the model of a time: as it was kept, else made and kept."""
        if self.folder is None:
            return make()
        path = self.folder / str(time)
        if not path.exists():
            save_artifact(make(), path)
        return load_artifact(path)  # type: ignore[return-value]


@contextmanager
def kept_models(
    kept_in: str | Path | None, model: Artifact | Config, panel: Panel, options: object
) -> Iterator[KeptModels]:
    """Yields the models of this backtest in a folder, which is removed once it has ended well.

    Raises:
        OutputError: another backtest writes there.
    """
    if kept_in is None:
        yield KeptModels()
        return
    folder = Path(kept_in)
    asked = model.model_dump_json() if isinstance(model, Config) else digest_of(model)
    text = json.dumps([asked, panel.fingerprint(), repr(options)])
    own = folder / hashlib.sha256(text.encode()).hexdigest()[:16]
    with only_writer(folder, folder / "lock", "backtest"):
        own.mkdir(exist_ok=True)
        yield KeptModels(own)
        for part in folder.iterdir():
            if part.is_dir():
                shutil.rmtree(part)
    with suppress(OSError):  # the lock of another backtest
        folder.rmdir()
