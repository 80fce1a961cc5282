"""Partitions of a batch forecast: one file per block of series, written by any process, then merged."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from forecaster.config import config_from
from forecaster.errors import OutputError
from forecaster.files import atomic_file
from forecaster.forecast.artifact import Artifact, load_artifact
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.predictor import BLOCK, ForecastWindow, Predictor
from forecaster.panel.build import open_panel
from forecaster.panel.frames import merge_parts
from forecaster.panel.panel import Panel


@dataclass(frozen=True)
class PartitionJob:
    """All that a process needs to make parts."""

    parts: str
    """Folder of the parts."""
    task: ForecastWindow
    """What is asked of every series."""
    n_series: int
    """Of the whole panel."""
    model: str = ""
    """Folder of the model, where other processes are to load it."""
    store: str = ""
    """Folder of the panel as a store, where other processes are to open it."""
    roles: Mapping[str, Any] = field(default_factory=dict)
    """What was said of the table's columns and of how it is read."""

    @property
    def n_blocks(self) -> int:
        """Partitions of the whole result."""
        return -(-self.n_series // BLOCK)

    def series_of(self, number: int) -> tuple[int, int]:
        """Returns the first series of a block, and the one after its last."""
        return number * BLOCK, min((number + 1) * BLOCK, self.n_series)

    def to_json(self) -> str:
        """Returns the plan as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PartitionJob:
        """Returns the plan that `to_json` wrote."""
        told = json.loads(text)
        task = told.pop("task")
        return cls(**told, task=ForecastWindow(**task))

    def opened(self, device: str = "cpu", lanes: int | None = None) -> tuple[Predictor, Panel]:
        """Returns the model on a device and the panel, in a process that has neither.

        Args:
            device: as torch names it.
            lanes: batches worked on at a time; None = as many as there are cores.
        """
        artifact = load_artifact(self.model)
        panel = open_for(artifact, self.store, None, None, self.roles)
        return Predictor(artifact, device, lanes), panel


def open_for(
    artifact: Artifact,
    data: object,
    future: object | None,
    covariates: object | None,
    roles: Mapping[str, Any],
) -> Panel:
    """Returns a table opened with a model's roles, categories and frequency.

    Args:
        artifact: the model.
        data: path, glob, frame or store.
        future: covariates known in advance.
        covariates: a second table, joined on series and time.
        roles: columns that are called otherwise in this table, in the model's order.
    """
    told = config_from(None, None, roles).data
    schema = artifact.schema.renamed(told)
    # What the fit was told holds, unless this table is said to be written otherwise.
    reading = artifact.config.replaced(data=told.model_dump(include=set(roles))).data
    return open_panel(data, reading, schema=schema, covariates=covariates, future=future)


def terms(artifact: Artifact, panel: Panel, task: ForecastWindow, device: str) -> dict[str, Any]:
    """Returns what two parts of one result have to agree on, by the name it has in messages.

    Args:
        artifact: the model.
        panel: all series.
        task: what is asked of each.
        device: what kind forecasts them; another rounds otherwise.
    """
    text = panel.calendar.text
    return {
        "format": 1,
        "model": digest_of(artifact),
        "data": _digest(panel.fingerprint(), _without_reasons(panel)),
        "series": panel.n_series,
        "block": BLOCK,
        "cutoff": "own" if task.cutoff is None else text(task.cutoff),
        "horizon": task.horizon,
        "samples": task.num_samples,
        "seed": task.seed,
        "device": torch.device(device).type,
        "torch": torch.__version__,
    }


def digest_of(artifact: Artifact) -> str:
    """Returns a sha256 of all of a model that its forecasts depend on."""
    digest = hashlib.sha256()
    for name, weight in sorted(artifact.ensemble.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().numpy().tobytes())
    settings = artifact.config.model_dump(mode="json")
    columns = artifact.schema.to_dict() | {"reasons": None}
    made_of = {name: settings[name] for name in ("model", "target")}
    said = (artifact.ensemble.weights, asdict(artifact.shape), made_of, columns)
    digest.update(_digest(*said).encode())
    return digest.hexdigest()


def _without_reasons(panel: Panel) -> dict[str, Any]:
    return panel.schema.to_dict() | {"reasons": None}


def _digest(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def folder_of(out: Path) -> Path:
    """Returns where the parts of a file lie."""
    return out.with_name(f"{out.name}.parts")


_TERMS, MANIFEST = "terms.json", "manifest.json"
SHARED = ("panel", "panel.source.json", "model")
"""What other processes, or a later start, read: table as a store, what it was made of, model."""


@dataclass(frozen=True)
class PartRecord:
    """What a part holds."""

    part: str
    """Name of the file."""
    series: int
    """Series in it."""
    without_forecast: int
    """Series whose rows are empty."""
    reason: str
    """Why the first of them is."""
    rows: int
    """Rows in it."""
    sha256: str
    """Of the file."""


def part_name(number: int) -> str:
    """Returns the name of the file of a block."""
    return f"part-{number:06d}.parquet"


def forecast_block(predictor: Predictor, panel: Panel, number: int, plan: PartitionJob) -> Forecast:
    """Returns the forecast of one block: the same bits in any process.

    Args:
        predictor: of the plan's model.
        panel: all series.
        number: of the block.
        plan: what is asked.
    """
    return predictor.forecast(panel.between(*plan.series_of(number)), plan.task)


def write_part(predictor: Predictor, panel: Panel, number: int, plan: PartitionJob) -> PartRecord:
    """Forecasts one block and writes its part, whole or not at all; any process may.

    Args:
        predictor: of the plan's model.
        panel: all series.
        number: of the block.
        plan: what is asked, and where the parts are.

    Raises:
        OutputError: it cannot be written.
    """
    forecast = forecast_block(predictor, panel, number, plan)
    content = io.BytesIO()
    rows = rows_of(forecast)
    rows.write_parquet(content)
    part = Path(plan.parts) / part_name(number)
    with atomic_file(part) as partial:
        partial.write_bytes(content.getbuffer())
    sha256 = hashlib.sha256(content.getbuffer()).hexdigest()
    record = PartRecord(part.name, *counts_of(forecast), rows.height, sha256)
    _write_json(part.with_suffix(".json"), asdict(record))
    return record


def rows_of(forecast: Forecast) -> Any:
    """Returns the rows that a part holds: of the sample paths where these were asked for."""
    return forecast.rows if forecast.paths is None else forecast.sample_rows


def counts_of(forecast: Forecast) -> tuple[int, int, str]:
    """Returns how many series there are, how many have no forecast, and why the first has none."""
    reasons = [status for status in forecast.status if status != "ok"]
    return len(forecast.series), len(reasons), reasons[0] if reasons else ""


class Partitions:
    """The folder of the parts of one result."""

    def __init__(self, folder: Path, n_blocks: int):
        self.folder = folder
        self._n_blocks = n_blocks

    @property
    def begun(self) -> bool:
        """Whether some result was begun in the folder."""
        return (self.folder / _TERMS).is_file()

    def begin(self, terms: Mapping[str, Any], numbers: Iterable[int]) -> dict[int, PartRecord]:
        """Returns the records of the parts that are there already, by block; a damaged one is not.

        Args:
            terms: what all parts agree on.
            numbers: of the blocks that are asked about.

        Raises:
            OutputError: the folder is something else, or holds parts of another result.
        """
        refuse_foreign(self.folder)
        if self.begun:
            found = json.loads((self.folder / _TERMS).read_text(encoding="utf-8"))
            _refuse_others(self.folder, found, terms)
        else:
            _write_json(self.folder / _TERMS, dict(terms))
        there = {number: self._finished(number) for number in numbers}
        return {number: record for number, record in there.items() if record is not None}

    def merge(self, out: Path) -> None:
        """Writes all parts as one .csv or .parquet file, whole or not at all, and removes them.

        Raises:
            OutputError: the file cannot be written.
        """
        files = [self.folder / part_name(number) for number in range(self._n_blocks)]
        # Beside the parts: what a kill leaves of it goes with them.
        merged = self.folder / f"merged{out.suffix.lower()}"
        with atomic_file(merged) as partial:
            merge_parts(files, partial, out.suffix.lower())
        try:
            merged.replace(out)
        except OSError as error:
            raise OutputError(f"{out}: cannot be written: {error.strerror}") from error
        self.remove()

    def leave(self, terms: Mapping[str, Any], records: Iterable[PartRecord]) -> Path:
        """Returns the manifest of the parts, written beside them.

        Args:
            terms: what they agree on.
            records: of all blocks, in order.
        """
        entries = [asdict(record) for record in records]
        counts = {
            name: sum(entry[name] for entry in entries)
            for name in ("series", "rows", "without_forecast")
        }
        manifest = self.folder / MANIFEST
        _write_json(manifest, {**counts, "terms": dict(terms), "parts": entries})
        for stale in self.folder.glob(".*.partial"):
            stale.unlink()
        return manifest

    def remove(self) -> None:
        """Removes the folder; the terms last, so that a kill leaves a folder one can go on with."""
        refuse_foreign(self.folder)
        if self.folder.exists():
            for path in self.folder.iterdir():
                if path.name != _TERMS:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
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


def refuse_foreign(folder: Path) -> None:
    """Raises `OutputError` where a folder for parts is there and is something else."""
    ours = {_TERMS, *SHARED}
    if folder.exists() and not (
        folder.is_dir()
        and ((folder / _TERMS).is_file() or {path.name for path in folder.glob("[!.]*")} <= ours)
    ):
        raise OutputError(f"{folder}: exists and is not a folder of parts; choose another --out")


def _refuse_others(folder: Path, found: Mapping[str, Any], terms: Mapping[str, Any]) -> None:
    def shown(value: Any) -> str:
        text = "none" if value is None else str(value)
        return f"{text[:12]}…" if len(text) == 64 else text

    differing = [name for name in terms if found.get(name) != terms[name]]
    if differing:
        said = "; ".join(f"{n} {shown(found.get(n))} there, {shown(terms[n])} now" for n in differing)
        raise OutputError(
            f"{folder}: holds finished parts of another forecast ({said}): give the same model, data "
            "and arguments again to finish it, or --restart to begin anew"
        )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
