"""A store in the place of a table: what was said of it has to be what it was converted with.

What comes in are a store, flags and maybe a model's schema; what goes out is its panel, or one line
for everything that would need another conversion. Nothing with a row per row is read.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from forecaster.config import COLUMN_LISTS, DataConfig
from forecaster.errors import DataError
from forecaster.panel.categories import recoded
from forecaster.panel.findings import Finding, refuse_errors
from forecaster.panel.freq import parse_freq
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema
from forecaster.panel.store import is_store, open_store, read_card

_ROLES = ("time", "series", "target", "known", "past", "static", "categorical")
_REPAIRS = ("snap", "on_duplicates", "on_gaps")
"""Settings that change the arrays, and are no part of a schema."""
_CYCLES = ("season_length", "periods")
"""Settings that leave the arrays as they are, and may be said anew."""


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
        data: what was said of the table; of a model's, only repairs count.
        schema: of a model.
        covariates, future: refused: they are part of a conversion.

    Raises:
        DataError: naming everything that asks for another conversion.
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
    found += _other_roles(str(source), panel, schema)
    converted = _converted(source)
    for name in _REPAIRS:
        mine, wanted = getattr(converted, name), getattr(data, name)
        if mine not in (wanted, "error"):
            text = f"{source}: converted with {_flag(name)} {mine}, asked for with {wanted}"
            found.append(_again(text, name, str(wanted)))
    refuse_errors(found)
    clock = ("time_dtype", "time_unit", "time_zone", "time_format", "dtypes")
    own = {name: getattr(panel.schema, name) for name in clock}
    panel = recoded(panel, schema.categories)
    panel = replace(panel, schema=replace(schema, **own))
    return panel.with_cycles(*schema.cycles(data))


def as_converted(source: object, data: DataConfig) -> DataConfig:
    """Returns how a table is read: for a store, what it was converted with.

    Args:
        source: a store; for anything else the data section is returned as it is.
        data: what was said of it now.

    Raises:
        DataError: one line for everything that contradicts the conversion.
    """
    if not isinstance(source, str | Path) or not is_store(source):
        return data
    converted, schema = _converted(source), open_store(source).schema
    found = []
    for name, field in DataConfig.model_fields.items():
        said, was = getattr(data, name), getattr(converted, name)
        if said in (field.default, was) or name in _CYCLES:
            continue
        if name in (*_ROLES, "layout", "freq"):
            was = getattr(schema, name) if name != "time" else schema.time or "row"
            said = parse_freq(said) if name == "freq" else said
        same = set(said) == set(was) if name in COLUMN_LISTS else said == was
        if not same:
            shown = ",".join(was) if name in COLUMN_LISTS else was
            wanted = ",".join(said) if name in COLUMN_LISTS else said
            text = f"{source}: {_flag(name)} {wanted}: the store was converted with {shown or 'none'}"
            found.append(_again(text, name, str(wanted)))
    refuse_errors(found)
    said = {name: getattr(data, name) for name in _CYCLES if getattr(data, name) is not None}
    return converted.model_copy(update=said)


def _converted(source: str | Path) -> DataConfig:
    stored = read_card(Path(source).expanduser()).get("data", {})
    try:
        known = {name: value for name, value in stored.items() if name in DataConfig.model_fields}
        return DataConfig.model_validate(known)
    except (AttributeError, ValueError) as error:
        raise DataError(f"{source}: damaged panel store (how it was read); convert again") from error


def _other_roles(source: str, panel: Panel, schema: Schema) -> list[Finding]:
    found = []
    for name in (*_ROLES, "holidays", "layout"):
        mine, wanted = getattr(panel.schema, name), getattr(schema, name)
        if mine == wanted:
            continue
        if isinstance(mine, tuple):
            lacking = [column for column in wanted if column not in mine]
            mine, wanted = (", ".join(names) or "none" for names in (mine, wanted))
            what = f"{name} columns are {mine}"
            missing = f"; it lacks {', '.join(lacking)}" if lacking else ""
        else:
            what, missing = f"{name} is {mine or 'none'}", ""
        text = f"{source}: the store's {what}, those of the model {wanted or 'none'}{missing}"
        found.append(_again(text, name, str(wanted or "").replace(", ", ",")))
    clock = (panel.calendar.freq, panel.schema.time_zone, panel.regular)
    expected = (schema.freq, schema.time_zone, schema.regular)
    if clock != expected:
        step, zone = panel.calendar.freq, panel.schema.time_zone
        kinds = [f"{'' if regular else 'ir'}regular" for regular in (panel.regular, schema.regular)]
        text = (
            f"{source}: the store has steps of {step} ({kinds[0]}, {zone or 'no time zone'}), the "
            f"model {schema.freq} ({kinds[1]}, {schema.time_zone or 'no time zone'})"
        )
        found.append(_again(text, "freq", schema.freq))
    return found


def _again(text: str, name: str, value: str = "FILE") -> Finding:
    return Finding(
        "error", "store", text, f"convert the table again with {_flag(name)} {value}".strip()
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
