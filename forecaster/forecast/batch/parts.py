"""A folder of parts: what is there is whole, and of the same result.

What comes in: blocks of series, forecast by whatever process. What goes out: one Parquet file per block
beside a record of what it holds, and at the end all of them as one file. Promised: a part appears whole
or not at all; what another model, other data or other arguments made is refused; what is counted is
what is written; the merged file depends on none of who made which part, when, and how often it began.

    terms.json                  what every part agrees on
    part-000017.parquet .json   block 17; its record, written after it: counts, sha256
    manifest.json               all records, once all parts are there and are left as such
    panel/ model/               while other processes need them
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forecaster.atomic import atomic_file
from forecaster.errors import OutputError
from forecaster.forecast.batch.plan import Plan
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.predictor import Predictor
from forecaster.panel.frames import merge_parts
from forecaster.panel.panel import Panel

_TERMS, MANIFEST = "terms.json", "manifest.json"
SHARED = ("panel", "panel.source.json", "model")
"""What other processes, or a later start, read: table as a store, what it was made of, model."""


@dataclass(frozen=True)
class Record:
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


def forecast_block(predictor: Predictor, panel: Panel, number: int, plan: Plan) -> Forecast:
    """Returns the forecast of one block: the same bits in any process.

    Args:
        predictor: of the plan's model.
        panel: all series.
        number: of the block.
        plan: what is asked.
    """
    return predictor.forecast(panel.between(*plan.series_of(number)), plan.task)


def write_part(predictor: Predictor, panel: Panel, number: int, plan: Plan) -> Record:
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
    record = Record(part.name, *counts_of(forecast), rows.height, sha256)
    _write_json(part.with_suffix(".json"), asdict(record))
    return record


def rows_of(forecast: Forecast) -> Any:
    """Returns the rows that a part holds: of the sample paths where these were asked for."""
    return forecast.rows if forecast.paths is None else forecast.sample_rows


def counts_of(forecast: Forecast) -> tuple[int, int, str]:
    """Returns how many series there are, how many have no forecast, and why the first has none."""
    reasons = [status for status in forecast.status if status != "ok"]
    return len(forecast.series), len(reasons), reasons[0] if reasons else ""


class Parts:
    """The folder of the parts of one result."""

    def __init__(self, folder: Path, n_blocks: int):
        self.folder = folder
        self._n_blocks = n_blocks

    @property
    def begun(self) -> bool:
        """Whether some result was begun in the folder."""
        return (self.folder / _TERMS).is_file()

    def begin(self, terms: Mapping[str, Any], numbers: Iterable[int]) -> dict[int, Record]:
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

    def leave(self, terms: Mapping[str, Any], records: Iterable[Record]) -> Path:
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

    def _finished(self, number: int) -> Record | None:
        part = self.folder / part_name(number)
        try:
            record = Record(**json.loads(part.with_suffix(".json").read_text(encoding="utf-8")))
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
