"""Which column is what, as one frozen `Schema`, with the reason for every column's role.

A schema holds all that is needed to read another table the same way, and travels with the artifact as
JSON: unknown keys are ignored and absent ones have defaults.
"""

from __future__ import annotations

import itertools
import re
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import polars as pl
from pydantic import TypeAdapter

from forecaster.config import COLUMN_LISTS, DataConfig
from forecaster.errors import ConfigError
from forecaster.panel.calendar import Calendar, parse_freq
from forecaster.panel.names import common, without
from forecaster.panel.numbers import Decimals
from forecaster.panel.timestamps import PARTS, TimeParts

Names = tuple[str, ...]
TimeDtype = Literal["date", "datetime", "integer", "string", "digits"]
_PLAIN = re.compile(r"U?Int\d+|Float\d\d|String|Date(?:time)?|Time")
_KEYS, _ENUM = re.compile(r"U?Int\d+|Categorical"), "Enum(categories="


def two_roles(roles: Mapping[str, Iterable[Any]]) -> Iterator[tuple[str, str]]:
    """Yields columns that have two roles, and the error; `roles`: columns by the name of their option."""
    owner = dict[str, str]()
    for role, names in roles.items():
        for name in names:
            if name in owner:
                yield name, f"column '{name}' is declared twice, by --{owner[name]} and --{role}"
            owner[name] = role


def holiday_columns(countries: Names) -> Names:
    """Returns the names of the covariates made of countries' holidays: holiday; holiday_DE, holiday_FR."""
    return ("holiday",) if len(countries) == 1 else tuple(f"holiday_{name}" for name in countries)


@dataclass(frozen=True)
class Pivot:
    """How the series of a long table became channels: those of a group, or all, of one series."""

    series: Names
    """Columns of the table that together name a series."""
    target: str
    """Column to forecast."""
    keys: tuple[Names, ...]
    """Key of each channel as text: a value for each column of `series` that names no group."""
    covariates: dict[str, Names]
    """Columns that each covariate became: one for all channels, or one per channel in their order."""

    @property
    def series_names(self) -> Names:
        """Names of the channels: those of the series."""
        return tuple("/".join(key) for key in self.keys)


@dataclass(frozen=True)
class Schema:
    """Roles, kinds and time axis of a table's columns."""

    time: str | None
    """Column of times, or those of their parts with commas between them; None = rows are numbered."""
    time_dtype: TimeDtype = "datetime"
    """"date", "datetime", "integer" (steps), or "string" and "digits": dates of a frame as text or as
    whole numbers, which are returned so."""
    time_unit: Literal["ms", "us", "ns"] | None = None
    """Of the caller's timestamps."""
    time_zone: str | None = None
    """Zone of the wall clock; "UTC" where text carried offsets."""
    local: bool = False
    """Whether the zone was declared: the caller's times are those of its clocks, without an offset."""
    time_format: str | None = None
    """strftime format of times written as text or whole numbers; s, ms, us or ns since 1970."""
    time_parts: TimeParts = field(default_factory=dict)
    """Empty where times are one column."""
    decimal: dict[str, Literal["", ".", ","]] = field(default_factory=dict)
    """Decimal marks of columns of numbers that were text; "" where files had both."""
    season_length: int | None = None
    """Steps of the main season where declared or found; None = it follows from the step."""
    holidays: Names = ()
    """Countries whose public holidays are the last known covariates, made from the calendar."""
    series: Names = ()
    """Columns that together name a series."""
    target: Names = ()
    """Columns to forecast, the channels."""
    label: str | None = None
    """Class column, which a model learns instead of a forecast; None = it forecasts."""
    known: Names = ()
    """Covariates known in advance."""
    past: Names = ()
    """Covariates seen only up to the cutoff."""
    static: Names = ()
    """Columns constant within a series."""
    categorical: Names = ()
    """Names among known, past and static that are categories."""
    dtypes: dict[str, str] = field(default_factory=dict)
    """The caller's dtypes of the key columns."""
    freq: str = ""
    """Step of the time axis."""
    layout: Literal["wide", "long", "rows"] = "wide"
    """"wide": value columns are channels of one series; "long": independent series; "rows": those,
    each in one row of its table."""
    categories: dict[str, Names] = field(default_factory=dict)
    """Code c >= 1 is categories[name][c - 1]; 0 = unknown."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why each column has its role, ignored ones included."""
    regular: bool = True
    """Whether rows lie on a grid of `freq`, so that gaps are filled with empty rows."""
    periods: tuple[int, ...] = ()
    """Further cycles, in steps: declared, or found in training rows."""
    melted: Names = ()
    """Columns of a wide table that were made series of one channel each (layout "long")."""
    pivot: Pivot | None = None
    """How a long table was pivoted (layout "wide"); the roles above are then those of its columns made."""
    relate: Names = ()
    """Columns that together name a group of series to pivot; empty = all are one group."""

    @property
    def known_and_holidays(self) -> Names:
        """Covariates known in advance: those of the table, then those made of its calendar."""
        return (*self.known, *holiday_columns(self.holidays))

    @property
    def known_numeric(self) -> Names:
        """Numeric known covariates, the holidays last."""
        return self._numbers(self.known) + holiday_columns(self.holidays)

    @property
    def known_category(self) -> Names:
        return self._categories(self.known)

    @property
    def past_numeric(self) -> Names:
        return self._numbers(self.past)

    @property
    def past_category(self) -> Names:
        return self._categories(self.past)

    @property
    def static_numeric(self) -> Names:
        return self._numbers(self.static)

    @property
    def static_category(self) -> Names:
        return self._categories(self.static)

    def _numbers(self, names: Names) -> Names:
        return tuple(without(names, self.categorical))

    def _categories(self, names: Names) -> Names:
        return tuple(common(names, self.categorical))

    @property
    def covariates(self) -> Names:
        """All covariates that are columns of the table, statics among them."""
        return self.past + self.known + self.static

    @property
    def key_columns(self) -> Names:
        """Columns of the table itself that name a series."""
        return () if self.melted else self.as_read.series

    @property
    def target_columns(self) -> Names:
        """Columns of the table itself to forecast."""
        return self.melted or self.as_read.target

    @property
    def pivots(self) -> bool:
        """Whether the series of the table itself are channels here, or are to become them."""
        return self.layout == "wide" and bool(self.as_read.series)

    @property
    def as_read(self) -> Schema:
        """The roles of the table itself, where that was pivoted."""
        if self.pivot is None:
            return self
        roles: dict[str, Any] = {"series": self.pivot.series, "target": (self.pivot.target,)}
        for role in _SPREAD:
            own, made = {*getattr(self, role)}, self.pivot.covariates.items()
            roles[role] = tuple(name for name, columns in made if own.intersection(columns[:1]))
        return replace(self, pivot=None, **roles)

    def pivoted(self, pivot: Pivot) -> Schema:
        """Returns the roles of the columns that a pivot makes of a long table with these roles."""
        roles: dict[str, Any] = {"series": self.relate, "target": pivot.series_names}
        # What differs within a group is no static of it.
        made = {n: c for n, c in pivot.covariates.items() if n not in self.static or len(c) == 1}
        for role in _SPREAD:
            roles[role] = tuple(itertools.chain(*(made.get(name, ()) for name in getattr(self, role))))
        return replace(self, pivot=pivot, **roles)

    @property
    def channel_columns(self) -> Names:
        """Key columns of a table that is pivoted which name its channels."""
        return tuple(without(self.as_read.series, self.relate))

    @property
    def channel_keys(self) -> pl.DataFrame:
        """The channel columns of a pivoted table in the caller's names and dtypes, a row per channel."""
        if self.pivot is None:
            return pl.DataFrame()
        text = pl.DataFrame(self.pivot.keys, schema=self.channel_columns, orient="row")
        return pl.DataFrame([_typed(ids, self.dtypes.get(ids.name, "")) for ids in text])

    @property
    def channel_of(self) -> dict[str, int]:
        """Channel of each column, targets among them, that a pivot made for one."""
        made = () if self.pivot is None else (self.target, *self.pivot.covariates.values())
        return {name: n for columns in made if len(columns) > 1 for n, name in enumerate(columns)}

    @property
    def columns(self) -> Names:
        """Columns of `Panel.values`, in order."""
        return self.target + self.past_numeric + self.known_numeric

    @property
    def code_columns(self) -> Names:
        """Columns of `Panel.codes`, in order."""
        return self.past_category + self.known_category + self.label_columns

    @property
    def label_columns(self) -> Names:
        """The class column, if any."""
        return () if self.label is None else (self.label,)

    @property
    def numbers(self) -> Names:
        """Columns of numbers in the table itself."""
        return self.target_columns + self.past_numeric + self.known_numeric + self.static_numeric

    @property
    def decimals(self) -> Decimals:
        """Decimal marks that further text has to have; one that is alone holds for all numbers."""
        marks = {*self.decimal.values()}
        alone = marks.pop() if len(marks) == 1 else ""
        # In layout "rows" the values have the names of the table's many columns.
        others = alone if self.layout == "rows" else ""
        columns = dict.fromkeys(self.as_read.numbers, alone) | self.decimal
        return Decimals(columns, others, ", as the model or the other tables have it")

    @cached_property
    def calendar(self) -> Calendar:
        """The time axis; needs `freq`."""
        integer = self.time_dtype == "integer"
        return Calendar(self.freq, self.time_zone, integer, self.season_length, self.periods)

    def settings(self) -> dict[str, Any]:
        """Returns the settings for reading that a schema fixes, by name."""
        names = (*COLUMN_LISTS, "label", "holidays", "layout", "freq")
        return {"time": self.time or "row"} | {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Returns the schema in values that JSON holds."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Schema:
        """Returns the schema that `to_dict` stored, also by another version of this package.

        Raises:
            ValueError: what is stored is no schema: kinds, names or times are wrong.
            DataError: its frequency is none.
        """
        schema = TypeAdapter(cls).validate_python(stored)
        _check_sound(schema)
        return schema

    def cycles(self, data: DataConfig) -> tuple[int | None, tuple[int, ...]]:
        """Returns the main season and the further periods: declared ones, else those of the schema."""
        periods = self.periods if data.periods is None else data.periods
        return data.season_length or self.season_length, periods

    def renamed(self, data: DataConfig) -> Schema:
        """Returns the schema for a table with other column names.

        Args:
            data: declared roles; each takes the place of this schema's columns, in their order.

        Raises:
            ConfigError: a role has another number of columns than the model was fitted with, or the
                step or layout differs.
        """
        if self.pivot is not None:
            return self._pivot_renamed(self.pivot, data)
        names: dict[str, str] = {}
        for role in COLUMN_LISTS:
            given, own = getattr(data, role), getattr(self, role)
            if not given or role == "categorical":
                continue
            if len(given) != len(own):
                raise ConfigError(
                    f"--{role} {','.join(given)}: expected {len(own)} columns instead of "
                    f"{', '.join(own) or 'none'}, found {len(given)}"
                )
            names |= dict(zip(own, given, strict=True))
        for setting in (
            "freq",
            "layout",
            "holidays",
            "time_zone",
            *(["label"] if self.label is None else []),
        ):
            given, own = getattr(data, setting), getattr(self, setting)
            if given not in (None, own) and (setting != "freq" or parse_freq(given) != own):
                words = [
                    ",".join(value) if isinstance(value, tuple) else value for value in (given, own)
                ]
                raise ConfigError(
                    f"--{setting.replace('_', '-')} {words[0]}: this model was fitted with {words[1] or 'none'}"
                )
        odd = sorted(set(data.categorical or ()) - set(self.categorical))
        if odd:
            raise ConfigError(
                f"--categorical {odd[0]}: the categories of this model are "
                f"{', '.join(self.categorical) or 'none'}; they cannot be changed after the fit"
            )

        new: dict[str, Any] = {
            role: tuple(names.get(name, name) for name in getattr(self, role)) for role in COLUMN_LISTS
        }
        if self.label is not None and data.label is not None:
            names[self.label] = new["label"] = data.label
        new["time"] = data.time if data.time not in (None, "row") else self.time
        for facts in ("decimal", "dtypes", "categories"):
            new[facts] = {names.get(name, name): fact for name, fact in getattr(self, facts).items()}
        schema = replace(self, **new)
        roles = {role: new[role] for role in ("known", "past", "static")}
        roles |= {"time": (schema.time,), "series": schema.key_columns, "target": schema.target_columns}
        for _, text in two_roles(roles | {"label": schema.label_columns}):
            raise ConfigError(f"{text}, or by the model; name another column for one of them")
        return schema

    def _pivot_renamed(self, pivot: Pivot, data: DataConfig) -> Schema:
        """Returns the schema for a long table with other column names; channels keep theirs."""
        read = self.as_read
        new = read.renamed(data)
        names = dict(zip(read.covariates, new.covariates, strict=True))
        made = {names.get(name, name): columns for name, columns in pivot.covariates.items()}
        pivot = replace(pivot, series=new.series, target=new.target[0], covariates=made)
        facts = {name: getattr(new, name) for name in ("time", "decimal", "dtypes", "relate")}
        return replace(self, pivot=pivot, series=new.relate, **facts)

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Returns (column, role, kind, reason) for every column, ignored ones last."""
        if self.pivot is not None:
            return self.as_read.rows()
        roles = {
            "label": self.label_columns,
            "target": self.target_columns,
            "known": self.known_and_holidays,
            "past": self.past,
            "static": self.static,
        }
        codes = (*self.categorical, *self.label_columns)
        found: list[tuple[str, str, str]] = []
        if self.time is not None:
            found.append((self.time, "time", self.time_dtype))
        found += [(name, "series", self.dtypes.get(name, "")) for name in self.key_columns]
        for role, names in roles.items():
            found += [(name, role, "category" if name in codes else "number") for name in names]
        seen = [row[0] for row in found]
        found += [(name, "ignored", "") for name in without(self.reasons, seen)]
        return [(*row, self.reasons.get(row[0], "")) for row in found]


_SPREAD = ("known", "past", "static", "categorical")
"""Roles that a pivot keeps."""


def _typed(ids: pl.Series, dtype: str) -> pl.Series:
    """Returns ids as the caller's dtype; as text where that does not hold all of them."""
    kind: Any = getattr(pl, dtype, pl.String) if _KEYS.fullmatch(dtype) else pl.String
    if dtype.startswith(_ENUM):
        kind = pl.Enum(literal_eval(dtype.removeprefix(_ENUM).removesuffix(")")))
    typed = ids.cast(kind, strict=False)
    return ids if typed.null_count() else typed


def _check_sound(schema: Schema) -> None:
    """Raises a ValueError for a stored schema that contradicts itself."""
    names = schema.target + schema.covariates + schema.label_columns
    if (pivot := schema.pivot) is not None:
        counts = {len(columns) for columns in pivot.covariates.values()} - {1, len(pivot.keys) or 1}
        counts |= {len(key) for key in pivot.keys} - {len(schema.channel_columns)}
        if counts or schema != schema.as_read.pivoted(pivot):
            raise ValueError("the pivot makes other columns than those with a role")
    keys, relate = schema.as_read.series, schema.relate
    if not schema.target or any(len(set(some)) < len(some) for some in (names, keys, relate)):
        raise ValueError(f"columns without a target, or named twice: {', '.join(names)[:200]}")
    if schema.pivots != (pivot is not None):
        raise ValueError(f"layout {schema.layout} of series {keys} without its pivot")
    if relate and not (schema.pivots and {*relate} < {*keys}):
        raise ValueError(f"relate {relate} of series {keys}")
    for part, dtype in schema.time_parts.values():
        if part not in PARTS or not _PLAIN.fullmatch(dtype):
            raise ValueError(f"time_parts holds {(part, dtype)}")
    if any("\0" in name for name in (*names, *keys)):
        raise ValueError("a column's name holds a NUL")
    odd = set(schema.categorical).difference(schema.covariates)
    lacking = {*schema.categorical, *schema.label_columns} - set(schema.categories)
    if odd or lacking:
        raise ValueError(f"categories of unknown columns, or none: {', '.join(odd | lacking)[:200]}")
    twice = [name for name, words in schema.categories.items() if len(set(words)) < len(words)]
    if twice:
        raise ValueError(f"categories that occur twice: {', '.join(twice)[:200]}")
    if parse_freq(schema.freq) != schema.freq:
        raise ValueError(f"freq {schema.freq!r} is not written as {parse_freq(schema.freq)!r}")
    if schema.time_zone is not None:
        try:
            pl.Series([0]).cast(pl.Datetime("us", schema.time_zone))
        except pl.exceptions.PolarsError:
            raise ValueError(f"unknown time zone {schema.time_zone!r}") from None


def comparable(one: Schema, other: Schema) -> bool:
    """Whether times of two tables can be compared: both dates, both whole numbers, or both rows."""
    return _clock(one) == _clock(other)


def _clock(schema: Schema) -> str:
    if schema.time is None:
        return "rows"
    return "whole numbers" if schema.time_dtype == "integer" else "dates"
