"""A panel store: a folder whose arrays are mapped, so that a panel may be larger than memory.

`StoreWriter` gathers panels of neighbouring series; `open_store` maps the folder as one read-only
panel, bit for bit the one that was written; `stored_panel` checks it against settings and a model.
The folder appears whole or not at all.

    panel.json      format, schema, calendar, counts, fingerprint, notes, how the table was read
    keys.arrow      one row per series
    values codes time                                        .npy, one entry per row
    indptr static static_codes observed_ends                 .npy, one entry per series
    members                                                  .npy, likewise; absent = every channel
"""

from __future__ import annotations

import io
import json
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, TypeGuard

import numpy as np
import polars as pl
from pydantic import TypeAdapter

from forecaster.config import COLUMN_LISTS, DataConfig
from forecaster.errors import DataError
from forecaster.files import atomic_folder
from forecaster.panel.arrays import Array
from forecaster.panel.calendar import Calendar, parse_freq
from forecaster.panel.categories import recoded
from forecaster.panel.findings import Finding, refuse_errors
from forecaster.panel.panel import Panel
from forecaster.panel.pivoted import check_storable
from forecaster.panel.schema import Schema

FORMAT = 1
CARD = "panel.json"
KIND = "panel store"
_ROWS = ("values", "codes", "time")
_SERIES = ("static", "static_codes", "observed_ends")
FILES = rf"panel\.json|keys\.arrow|({'|'.join((*_ROWS, 'indptr', *_SERIES, 'members'))})\.npy"
"""Pattern of the names in the folder of a store."""
_CYCLES = ("season_length", "periods")
"""Settings that leave the arrays as they are and may be changed."""
_CALENDAR, _NOTES = TypeAdapter(Calendar), TypeAdapter(tuple[Finding, ...])
_DAMAGE = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError,
    OSError, EOFError, TokenError, DataError,
)  # fmt: skip


def is_store(source: object) -> TypeGuard[str | Path]:
    """Returns whether a source is the path of a store."""
    return isinstance(source, str | Path) and (Path(source).expanduser() / CARD).is_file()


class StoreWriter:
    """Gathers the panels of neighbouring series in a folder."""

    def __init__(self, folder: Path, files: Mapping[str, BinaryIO]):
        self.folder, self._files = folder, files
        self._first: Panel | None = None
        self._rows = 0
        self._small: dict[str, list[Array]] = {name: [] for name in ("indptr", *_SERIES)}
        self._keys: list[pl.DataFrame] = []

    def append(self, panel: Panel) -> None:
        """Adds the next series; schema and calendar are those of the first panel."""
        for name in _ROWS:
            array = getattr(panel, name)
            if self._first is None:
                self._files[name].write(_header(array, 0))
            self._files[name].write(array.tobytes())  # tofile does not say why it fails
        self._first = self._first or panel
        for name in _SERIES:
            array = getattr(panel, name)
            if name == "observed_ends":
                array = np.where(array < 0, array, array + self._rows)
            self._small[name].append(array)
        if panel.members is not None:
            self._small.setdefault("members", []).append(panel.members)
        self._small["indptr"].append(panel.indptr[:-1] + self._rows)
        self._keys.append(panel.keys)
        self._rows += panel.n_rows

    def finish(self, data: DataConfig, notes: Sequence[Finding]) -> None:
        """Writes headers, keys and card; `data`: how the table was read, `notes`: of all of it."""
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
    """Yields the writer of a store; call its `finish` before the end.

    Raises:
        OutputError: the folder is something else, cannot be written, or the disk is full.
    """
    with atomic_folder(folder, replaces=CARD, kind=KIND, holds=FILES) as partial, ExitStack() as files:
        opened = {name: files.enter_context((partial / f"{name}.npy").open("wb")) for name in _ROWS}
        yield StoreWriter(partial, opened)


def write_store(panel: Panel, folder: Path, data: DataConfig) -> Panel:
    """Writes a panel to a folder, block by block, and returns it mapped from there."""
    with writing(folder) as store:
        for _, part in panel.parts():
            store.append(part)
        store.finish(data, panel.notes)
    return open_store(folder)


def open_store(source: str | Path) -> Panel:
    """Returns the panel of a store; nothing with a row per row is read.

    Raises:
        DataError: the store is damaged, or of another format.
    """
    folder = Path(source).expanduser()
    card = read_card(folder)
    try:
        schema = Schema.from_dict(card["schema"])
        arrays: dict[str, Any] = {name: _mapped(folder / f"{name}.npy") for name in _ROWS}
        # Mapped first: a header cannot claim more than the file holds.
        arrays |= {name: np.array(_mapped(folder / f"{name}.npy")) for name in ("indptr", *_SERIES)}
        if (file := folder / "members.npy").exists():
            arrays["members"] = np.array(_mapped(file))
        observed_ends = arrays.pop("observed_ends")
        panel = Panel(
            schema=schema,
            calendar=_CALENDAR.validate_python(card["calendar"] | {"periods": schema.periods}),
            keys=pl.read_ipc((folder / "keys.arrow").read_bytes()),
            kind=str(card["kind"]),
            name=str(card["name"]),
            notes=_NOTES.validate_python(card["notes"]),
            **arrays,
        )
        _check_arrays(panel, observed_ends)
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
    """Returns the card of a store, once its format is known to be readable."""
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
        found = card.get("format")
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{folder}: damaged panel store ({error}); convert again") from error
    if found != FORMAT or type(found) is not int:
        raise DataError(
            f"{folder}: panel store of format {reprlib.repr(found)}, expected format {FORMAT}: upgrade "
            "attention-forecaster, or convert again"
        )
    return dict(card)


def _header(array: Array, rows: int) -> bytes:
    """Returns the .npy header of an array of so many rows; its own length is always the same."""
    header = io.BytesIO()
    facts = np.lib.format.header_data_from_array_1_0(array[:0])
    np.lib.format.write_array_header_1_0(header, facts | {"shape": (rows, *array.shape[1:])})
    return header.getvalue()


def _mapped(path: Path) -> Array:
    return np.load(path, mmap_mode="r")


def _check_arrays(panel: Panel, observed_ends: Array) -> None:
    """Raises ValueError where arrays do not fit each other or their schema."""
    schema, indptr, calendar = panel.schema, panel.indptr, panel.calendar
    if (calendar.freq, calendar.time_zone) != (schema.freq, schema.time_zone):
        raise ValueError(f"calendar of {calendar.freq}, schema of {schema.freq}")
    if calendar.integer != (schema.time_dtype == "integer"):
        raise ValueError(f"calendar and schema disagree on times: {schema.time_dtype}")
    if indptr.ndim != 1 or indptr.dtype != np.int64 or len(indptr) < 1:
        raise ValueError("indptr.npy holds no first rows")
    if indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise ValueError("indptr.npy does not rise from 0")
    rows, series = int(indptr[-1]), len(indptr) - 1
    for name, array, shape, dtype in (
        ("values", panel.values, (rows, len(schema.columns)), np.float64),
        ("codes", panel.codes, (rows, len(schema.code_columns)), np.int32),
        ("time", panel.time, (rows,), np.int64),
        ("static", panel.static, (series, len(schema.static_numeric)), np.float64),
        ("static_codes", panel.static_codes, (series, len(schema.static_category)), np.int32),
        ("observed_ends", observed_ends, (series, 2), np.int64),
        ("members", panel.present, (series, panel.n_channels), np.bool_),
    ):
        if array.shape != shape or array.dtype != dtype:
            expected = f"{np.dtype(dtype)} {shape}"
            raise ValueError(f"{name}.npy is {array.dtype} {array.shape}, expected {expected}")
    if panel.keys.width != len(schema.series):
        raise ValueError(f"keys.arrow has {panel.keys.width} columns, expected {len(schema.series)}")
    if panel.keys.width and panel.keys.height != series:
        raise ValueError(f"keys.arrow has {panel.keys.height} rows, expected {series}")
    if ((observed_ends < -1) | (observed_ends >= rows)).any():
        raise ValueError(f"observed_ends.npy names rows beyond the {rows} there are")


def _write(folder: Path, card: dict[str, Any]) -> None:
    text = json.dumps(card, indent=1, ensure_ascii=False)
    (folder / CARD).write_text(text + "\n", encoding="utf-8")


def stored_panel(
    source: str | Path,
    data: DataConfig,
    *,
    schema: Schema | None = None,
    covariates: object | None = None,
    future: object | None = None,
) -> Panel:
    """Returns the panel of a store, with a model's categories where a model is given.

    Args:
        source: the store.
        data: settings for reading; with a schema only `on_duplicates` matters.
        schema: of a model.
        covariates, future: refused: they are part of a conversion.

    Raises:
        DataError: naming everything that needs another conversion.
    """
    panel = open_store(source)
    found = [
        _again(f"{source}: a panel store takes no further table", flag)
        for flag, given in (("covariates", covariates), ("future", future))
        if given is not None
    ]
    if schema is None:
        as_converted(source, data)
        refuse_errors(found)
        return panel.with_cycles(*panel.schema.cycles(data))
    if schema.label is None:
        panel = panel.without_label()
    if schema.pivot != panel.schema.pivot:
        check_storable(schema, str(source))
    found += _contradictions(source, schema.settings(), panel.schema.settings(), "the model has")
    axes = [
        f"{'' if one.regular else 'ir'}regular rows and {one.time_zone or 'no time zone'}"
        for one in (panel.schema, schema)
    ]
    if axes[0] != axes[1]:
        text = f"{source}: the store has {axes[0]}, the model {axes[1]}"
        found.append(_again(text, "freq", schema.freq))
    repair = _converted(source).on_duplicates
    if repair != "error":
        given = {"on_duplicates": data.on_duplicates}
        found += _contradictions(source, given, {"on_duplicates": repair})
    refuse_errors(found)
    facts = ("time_dtype", "time_unit", "time_zone", "local", "time_format", "time_parts", "dtypes")
    own = {name: getattr(panel.schema, name) for name in facts}
    panel = recoded(panel, schema.categories)
    panel = replace(panel, schema=replace(schema, **own))
    return panel.with_cycles(*schema.cycles(data))


def as_converted(source: object, data: DataConfig) -> DataConfig:
    """Returns the settings for reading a source: for a store, those of its conversion.

    Raises:
        DataError: with a line for every setting that contradicts the conversion.
    """
    if not is_store(source):
        return data
    converted = _converted(source)
    stored = converted.model_dump() | open_store(source).schema.settings()
    wanted = {}
    for name, field in DataConfig.model_fields.items():
        given = getattr(data, name)
        if name in _CYCLES or given in (field.default, getattr(converted, name)):
            continue
        if name not in COLUMN_LISTS or set(given) != set(stored[name]):
            wanted[name] = parse_freq(given) if name == "freq" else given
    refuse_errors(_contradictions(source, wanted, stored))
    cycles = {name: getattr(data, name) for name in _CYCLES if getattr(data, name) is not None}
    return converted.model_copy(update=cycles)


def _converted(source: str | Path) -> DataConfig:
    try:
        return DataConfig.model_validate(read_card(Path(source).expanduser()).get("data"))
    except ValueError as error:
        raise DataError(f"{source}: damaged panel store (how it was read); convert again") from error


def _contradictions(
    source: str | Path, wanted: Mapping[str, Any], stored: Mapping[str, Any], owner: str = ""
) -> list[Finding]:
    """Returns an error for each setting of `owner` (empty = the caller) that the store does not have."""
    found = []
    for name, given in wanted.items():
        if given != stored[name]:
            both = (given, stored[name])
            new, old = (",".join(one) if isinstance(one, tuple) else str(one or "") for one in both)
            asked = f"{owner} {name} {new or 'none'}" if owner else f"{_flag(name)} {new}"
            text = f"{source}: {asked}: the store was converted with {old or 'none'}"
            found.append(_again(text, name, new))
    return found


def _again(text: str, name: str, value: str = "FILE") -> Finding:
    advice = f"convert the table again with {_flag(name)} {value}"
    return Finding("error", "store", text, advice.strip())


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
