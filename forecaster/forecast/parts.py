"""A batch prediction in parts: one Parquet file per block of series, made by any process, then merged.

A part appears whole or not at all; parts of another model, table or request are refused; the merged
file does not depend on which process made which part, nor on restarts. The folder holds

    terms.json                  what all parts have in common
    part-000017.parquet .json   block 17; its record, written after it: counts, sha256
    manifest.json               all records, where the parts are the result
    panel/ model/               while other processes need them
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from forecaster.errors import OutputError
from forecaster.files import atomic_file, reason_of, write_text
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.result import Predicted
from forecaster.forecast.runner import BLOCK
from forecaster.forecast.saved_model import load_artifact
from forecaster.forecast.source import Source
from forecaster.forecast.task import Task
from forecaster.panel.frames import merge_parts
from forecaster.panel.panel import Panel

Predict = Callable[[Panel], Predicted]
_TERMS, MANIFEST = "terms.json", "manifest.json"
SHARED = ("panel", "panel.source.json", "model")
"""Files for other processes and later starts: table as a store, its sources, model."""


@dataclass(frozen=True)
class PartRecord:
    """What a part holds."""

    part: str
    """File name."""
    series: int
    without_forecast: int
    """Series and channels whose rows are empty."""
    reason: str
    """The most frequent of them."""
    rows: int
    sha256: str

    @classmethod
    def of(cls, found: Predicted, rows: int, part: str = "", sha256: str = "") -> PartRecord:
        """Returns the record of a prediction of so many rows."""
        return cls(part, found.panel.n_series, *found.lost, rows, sha256)


@dataclass(frozen=True)
class PartitionJob:
    """What a process needs to make parts. Block k holds series k · block and the following."""

    parts: str
    """Folder of the parts."""
    task: Task
    n_series: int
    source: Source
    """For other processes a store."""
    model: str = ""
    """Folder of the model, for other processes."""
    block: int = BLOCK
    """Series of a block."""

    @property
    def n_blocks(self) -> int:
        """Parts of the whole result."""
        return -(-self.n_series // self.block)

    def series_of(self, number: int) -> tuple[int, int]:
        """Returns the first series of a block, and the one after its last."""
        return number * self.block, min((number + 1) * self.block, self.n_series)

    def opened(self, device: str = "cpu", lanes: int | None = None) -> tuple[Predict, Panel]:
        """Returns what predicts on a device and the panel; `lanes` = concurrent batches."""
        artifact = load_artifact(self.model)
        panel = self.source.panel(artifact).only(self.source.only)
        return self.task.predict(artifact, device, lanes), panel


def part_name(number: int) -> str:
    """Returns the file name of a block's part."""
    return f"part-{number:06d}.parquet"


def write_part(predict: Predict, panel: Panel, number: int, job: PartitionJob) -> PartRecord:
    """Predicts one block, the same bits in any process, and writes its part and record.

    Raises:
        OutputError: it cannot be written.
    """
    found = predict(panel.between(*job.series_of(number)))
    rows, content = rows_of(found), io.BytesIO()
    rows.write_parquet(content)
    part = Path(job.parts) / part_name(number)
    with atomic_file(part) as partial:
        partial.write_bytes(content.getbuffer())
    sha256 = hashlib.sha256(content.getbuffer()).hexdigest()
    record = PartRecord.of(found, rows.height, part.name, sha256)
    _write_json(part.with_suffix(".json"), asdict(record))
    return record


def rows_of(found: Predicted) -> Any:
    """Returns the rows that a part holds: sample paths where these were requested."""
    if isinstance(found, Forecast) and found.paths is not None:
        return found.sample_rows
    return found.rows


class Partitions:
    """The folder of the parts of one result."""

    def __init__(self, folder: Path):
        self.folder = folder

    def begin(self, terms: Mapping[str, Any], numbers: Iterable[int]) -> dict[int, PartRecord]:
        """Returns the records of the finished, undamaged parts among some blocks.

        Raises:
            OutputError: the folder is something else, or holds parts of another result.
        """
        self.check()
        path = self.folder / _TERMS
        if path.is_file():
            _check_terms(self.folder, json.loads(path.read_text(encoding="utf-8")), terms)
        else:
            _write_json(path, dict(terms))
        found = {number: self._finished(number) for number in numbers}
        return {number: record for number, record in found.items() if record is not None}

    def merge(self, out: Path, n_blocks: int, as_text: Callable[[Any], Any]) -> None:
        """Writes so many parts as one .csv (`as_text`), .parquet or .xlsx file, and removes them.

        Raises:
            OutputError: the file cannot be written.
        """
        files = [self.folder / part_name(number) for number in range(n_blocks)]
        # Inside the folder: what a kill leaves of it is removed with the parts. A link may lead to another disk.
        merged = out if out.is_symlink() else self.folder / f"merged{out.suffix.lower()}"
        with atomic_file(merged) as partial:
            merge_parts(files, partial, out.suffix.lower(), as_text)
        try:
            if merged != out:
                merged.replace(out)
        except OSError as error:
            raise OutputError(f"{out}: cannot be written: {reason_of(error)}") from error
        self.remove()

    def leave(self, terms: Mapping[str, Any], records: Iterable[PartRecord]) -> None:
        """Writes the manifest beside the parts, which are the result; `records` of all blocks."""
        entries = [asdict(record) for record in records]
        counts = {
            name: sum(entry[name] for entry in entries)
            for name in ("series", "rows", "without_forecast")
        }
        _write_json(self.folder / MANIFEST, {**counts, "terms": dict(terms), "parts": entries})
        for stale in self.folder.glob(".*.partial"):
            stale.unlink()

    def clear(self) -> None:
        """Empties the folder but for locks; the terms go last, so that a killed call leaves a valid folder."""
        self.check()
        left = list(self.folder.iterdir()) if self.folder.exists() else []
        for path in sorted(left, key=lambda path: path.name == _TERMS):
            if path.suffix != ".lock":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def remove(self) -> None:
        """Removes the folder."""
        self.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _finished(self, number: int) -> PartRecord | None:
        part = self.folder / part_name(number)
        try:
            record = PartRecord(**json.loads(part.with_suffix(".json").read_text(encoding="utf-8")))
            with part.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValueError, TypeError):
            return None
        return record if found == record.sha256 else None

    def check(self) -> None:
        """Raises OutputError if the folder is something else."""
        own, folder = {_TERMS, *SHARED}, self.folder
        if folder.exists() and not (
            folder.is_dir()
            and ((folder / _TERMS).is_file() or {path.name for path in folder.glob("[!.]*")} <= own)
        ):
            raise OutputError(f"{folder}: exists and is not a folder of parts; choose another --out")


def terms(artifact: Artifact[Any], panel: Panel, task: Task, device: str) -> dict[str, Any]:
    """Returns what all parts of one result have in common, by its name in messages."""
    data = panel.schema.to_dict() | {"reasons": None}
    return {
        "format": 1,
        "model": digest_of(artifact),
        "data": _digest(panel.fingerprint(), data),
        "series": panel.n_series,
        "block": BLOCK,
        **task.terms(panel),
        "device": torch.device(device).type,  # CPU and GPU round differently
        "torch": torch.__version__,
    }


def digest_of(artifact: Artifact[Any]) -> str:
    """Returns a sha256 of all of a model that its forecasts depend on."""
    digest = hashlib.sha256()
    for name, weight in sorted(artifact.ensemble.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().numpy().tobytes())
    settings = artifact.plan.model_dump(mode="json")
    columns = artifact.schema.to_dict() | {"reasons": None}
    made_of = {name: settings[name] for name in ("model", "target")}
    ensemble, effects = artifact.ensemble, artifact.effects
    if effects is not None:
        for part in vars(effects).values():
            if isinstance(part, np.ndarray):
                digest.update(np.ascontiguousarray(part).tobytes())
        columns |= {"terms": [asdict(term) for term in effects.terms]}
    of_ensemble = [getattr(ensemble, name, None) for name in ("weights", "tail_factor")]
    content = (of_ensemble, asdict(artifact.shape), made_of, columns)
    digest.update(_digest(*content).encode())
    return digest.hexdigest()


def _digest(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_terms(folder: Path, found: Mapping[str, Any], terms: Mapping[str, Any]) -> None:
    def shown(value: Any) -> str:
        text = "none" if value is None else str(value)
        return f"{text[:12]}…" if len(text) == 64 else text

    names = [name for name in terms if found.get(name) != terms[name]]
    if names:
        values = "; ".join(f"{n} {shown(found.get(n))} there, {shown(terms[n])} now" for n in names)
        raise OutputError(
            f"{folder}: holds finished parts of another prediction ({values}): give the same model, data "
            "and arguments again to finish it, or start over with --restart"
        )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
