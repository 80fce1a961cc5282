"""A panel as a folder: its arrays mapped from files, so that it may be larger than memory.

What comes in are panels of neighbouring series, one after the other; what goes out is a folder that
`open_store` returns as one panel, whose arrays with a row per row are read-only maps of the files.
Promised: the folder appears whole or not at all, and the panel is bit for bit the one it was made of.

    panel.json      format, schema, clock, counts, fingerprint, notes, how the table was read
    keys.arrow      one row per series
    values codes time                                        .npy, a row per row
    indptr static static_codes observed_ends                 .npy, a row per series
"""

from __future__ import annotations

import importlib.metadata
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import TypeAdapter

from forecaster.atomic import atomic_folder
from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.calendar import Calendar
from forecaster.panel.findings import Finding
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema

FORMAT = 1
CARD = "panel.json"
KIND = "panel store"
_ROWS = ("values", "codes", "time")
_SERIES = ("static", "static_codes", "observed_ends")
_CALENDAR, _NOTES = TypeAdapter(Calendar), TypeAdapter(tuple[Finding, ...])
_DAMAGE = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError,
    OSError, EOFError, TokenError, DataError,
)  # fmt: skip


def is_store(source: object) -> bool:
    """Whether a source is the path of a store."""
    return isinstance(source, str | Path) and (Path(source).expanduser() / CARD).is_file()


class StoreWriter:
    """Gathers the panels of neighbouring series in a folder."""

    def __init__(self, folder: Path, files: Mapping[str, BinaryIO]):
        self.folder, self._files = folder, files
        self._first: Panel | None = None
        self._rows = 0
        self._small: dict[str, list[NDArray[Any]]] = {name: [] for name in ("indptr", *_SERIES)}
        self._keys: list[pl.DataFrame] = []

    def append(self, panel: Panel) -> None:
        """Adds the next series; schema and clock are those of the first panel."""
        for name in _ROWS:
            array = getattr(panel, name)
            if self._first is None:
                self._files[name].write(_header(array, 0))
            array.tofile(self._files[name])
        self._first = self._first or panel
        for name in _SERIES:
            array = getattr(panel, name)
            if name == "observed_ends":
                array = np.where(array < 0, array, array + self._rows)
            self._small[name].append(array)
        self._small["indptr"].append(panel.indptr[:-1] + self._rows)
        self._keys.append(panel.keys)
        self._rows += panel.n_rows

    def finish(self, data: DataConfig, notes: Sequence[Finding]) -> None:
        """Writes what is known at the end only.

        Args:
            data: how the table was read.
            notes: of the whole panel.
        """
        panel = self._first
        assert panel is not None
        for name in _ROWS:
            file = self._files[name]
            file.seek(0)
            file.write(_header(getattr(panel, name), self._rows))
            file.flush()
        self._small["indptr"].append(np.array([self._rows], np.int64))
        for name, arrays in self._small.items():
            np.save(self.folder / f"{name}.npy", np.concatenate(arrays))
        keys = pl.concat(self._keys) if panel.keys.width else panel.keys
        with (self.folder / "keys.arrow").open("wb") as file:
            keys.write_ipc(file)
        card = {
            "format": FORMAT,
            "version": _version(),
            "name": panel.name,
            "kind": panel.kind,
            "series": sum(map(len, self._small["static"])),
            "rows": self._rows,
            "schema": panel.schema.to_dict(),
            "calendar": asdict(panel.calendar),
            "regular": panel.regular,
            "data": data.model_dump(mode="json"),
            "notes": [asdict(note) for note in notes],
        }
        _write(self.folder, card)
        _write(self.folder, {**card, "fingerprint": open_store(self.folder).fingerprint()})


@contextmanager
def writing(folder: Path) -> Iterator[StoreWriter]:
    """Yields what gathers a store that takes its name at the end; it has to be finished.

    Raises:
        OutputError: the folder is something else, cannot be written, or the disk is full.
    """
    with atomic_folder(folder, replaces=CARD, kind=KIND) as partial, ExitStack() as files:
        opened = {name: files.enter_context((partial / f"{name}.npy").open("wb")) for name in _ROWS}
        yield StoreWriter(partial, opened)


def write_store(panel: Panel, folder: Path, data: DataConfig) -> Panel:
    """Writes a panel to a folder, part by part, and returns it mapped from there.

    Args:
        panel: any.
        folder: appears whole or not at all; a store that is there is replaced.
        data: how the table was read.

    Raises:
        OutputError: the folder is something else, cannot be written, or the disk is full.
    """
    with writing(folder) as store:
        for _, part in panel.parts():
            store.append(part)
        store.finish(data, panel.notes)
    return open_store(folder)


def open_store(source: str | Path) -> Panel:
    """Returns the panel of a store; nothing with a row per row is read.

    Raises:
        DataError: the store is damaged, or a newer version wrote it.
    """
    folder = Path(source).expanduser()
    card = read_card(folder)
    try:
        schema = Schema.from_dict(card["schema"])
        arrays: dict[str, Any] = {name: _mapped(folder / f"{name}.npy") for name in _ROWS}
        # Mapped first: a header cannot claim more than the file holds.
        arrays |= {name: np.array(_mapped(folder / f"{name}.npy")) for name in ("indptr", *_SERIES)}
        observed_ends = arrays.pop("observed_ends")
        panel = Panel(
            schema=schema,
            calendar=_CALENDAR.validate_python(card["calendar"] | {"periods": schema.periods}),
            keys=pl.read_ipc((folder / "keys.arrow").read_bytes()),
            regular=schema.regular,
            kind=str(card["kind"]),
            name=str(card["name"]),
            notes=_NOTES.validate_python(card["notes"]),
            **arrays,
        )
        _require_whole(panel, observed_ends)
    except (*_DAMAGE, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(
            f"{source}: damaged panel store ({' '.join(str(error).split())[:200]}); convert again"
        ) from error
    # Both would need to read every row; a panel derived from this one finds its own.
    vars(panel)["observed_ends"] = observed_ends
    if "fingerprint" in card:
        vars(panel)["_fingerprint"] = card["fingerprint"]
    return panel


def read_card(folder: Path) -> dict[str, Any]:
    """Returns what a store says of itself.

    Raises:
        DataError: it is damaged, or a newer version wrote it.
    """
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        found = card.get("format")
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{folder}: damaged panel store ({error}); convert again") from error
    if not isinstance(found, int) or not 1 <= found <= FORMAT:
        raise DataError(
            f"{folder}: panel store of format {found!r}; this version reads formats 1 to {FORMAT}: "
            "upgrade attention-forecaster, or convert again"
        )
    return dict(card)


def _header(array: NDArray[Any], rows: int) -> bytes:
    """Returns the .npy header of an array with so many rows; its length does not depend on them."""
    header = io.BytesIO()
    facts = np.lib.format.header_data_from_array_1_0(array[:0])
    np.lib.format.write_array_header_1_0(header, facts | {"shape": (rows, *array.shape[1:])})
    return header.getvalue()


def _mapped(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, mmap_mode="r")
    return array


def _require_whole(panel: Panel, observed_ends: NDArray[Any]) -> None:
    """Refuses arrays that do not fit each other, or their schema."""
    schema, indptr, clock = panel.schema, panel.indptr, panel.calendar
    if (clock.freq, clock.time_zone) != (schema.freq, schema.time_zone):
        raise ValueError(f"calendar of {clock.freq}, schema of {schema.freq}")
    if clock.integer != (schema.time_dtype == "integer"):
        raise ValueError(f"calendar and schema disagree on times: {schema.time_dtype}")
    if indptr.ndim != 1 or indptr.dtype != np.int64 or len(indptr) < 1:
        raise ValueError("indptr.npy holds no first rows")
    if indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise ValueError("indptr.npy does not rise from 0")
    rows, series = int(indptr[-1]), len(indptr) - 1
    expected: dict[str, tuple[tuple[int, ...], type]] = {
        "values": ((rows, len(schema.columns)), np.float32),
        "codes": ((rows, len(schema.code_columns)), np.int32),
        "time": ((rows,), np.int64),
        "static": ((series, len(schema.static_numeric)), np.float32),
        "static_codes": ((series, len(schema.static_category)), np.int32),
    }
    for name, (shape, kind) in expected.items():
        array = getattr(panel, name)
        if array.shape[:1] != shape[:1]:
            raise ValueError(f"{name}.npy has {len(array)} rows, expected {shape[0]}")
        if array.shape != shape or array.dtype != kind:
            raise ValueError(
                f"{name}.npy is {array.dtype} {array.shape}, expected {np.dtype(kind)} {shape}"
            )
    if panel.keys.width != len(schema.series):
        raise ValueError(f"keys.arrow has {panel.keys.width} columns, expected {len(schema.series)}")
    if panel.keys.width and panel.keys.height != series:
        raise ValueError(f"keys.arrow has {panel.keys.height} rows, expected {series}")
    if observed_ends.shape != (series, 2) or observed_ends.dtype != np.int64:
        raise ValueError(f"observed_ends.npy is {observed_ends.shape}, expected {(series, 2)}")
    if ((observed_ends < -1) | (observed_ends >= rows)).any():
        raise ValueError(f"observed_ends.npy names rows beyond the {rows} there are")


def _write(folder: Path, card: dict[str, Any]) -> None:
    text = json.dumps(card, indent=1, ensure_ascii=False)
    (folder / CARD).write_text(text + "\n", encoding="utf-8")


def _version() -> str:
    try:
        return importlib.metadata.version("attention-forecaster")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
