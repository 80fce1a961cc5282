"""Groups of series and channels, by key columns and static covariates, in the caller's names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from forecaster.errors import ConfigError, DataError
from forecaster.panel.arrays import Ints
from forecaster.panel.findings import OTHER_STEP, Finding
from forecaster.panel.names import common
from forecaster.panel.panel import MISSING, Panel


@dataclass(frozen=True)
class Groups:
    """Which group each series and channel belongs to."""

    panel: Panel
    number: Ints
    """int64 [series, channel] of the group; -1 = the series has no such channel."""
    keys: pl.DataFrame
    """A row per group: the columns it was made by, and its channel where channels are apart."""

    @property
    def sizes(self) -> Ints:
        """Series and channels of each group: int64 [group]."""
        return np.bincount(self.number[self.number >= 0], minlength=max(1, self.keys.height))

    @property
    def names(self) -> list[str]:
        """One name per group."""
        alone = self._apart and self.panel.n_channels == 1
        rows = self.keys.rows() or [()]
        return ["/".join(map(str, row[: len(row) - alone])) or "all" for row in rows]

    def frame(self, group: Ints, period: Ints, **columns: Any) -> pl.DataFrame:
        """Returns rows of groups [n] and the first times of periods [n]; NaN becomes null."""
        keys = self.keys[group] if self.keys.width else self.keys
        apart = ["channel"] if self._apart else []
        made = [*keys.drop(apart), self.panel.stamps(period, "period")]
        columns = (
            {name: columns.pop(name) for name in ("steps", "series")}
            | {name: keys[name] for name in apart}
            | columns
        )
        return self.panel.with_results(made, columns)

    @property
    def _apart(self) -> bool:
        return not (self.panel.schema.pivots or self.panel.schema.melted)


def check_by(panel: Panel, by: Sequence[str] | None, results: Sequence[str]) -> None:
    """Raises a ConfigError for names that make no groups, a DataError for columns named like a result's."""
    known = [*_key_names(panel), *panel.schema.static]
    names = [] if by is None else [*by]
    if by is not None and not names:
        raise ConfigError(f"--by: expected some of {', '.join([*known, 'all'])}, found nothing")
    if unknown := [name for name in names if name not in known and names != ["all"]]:
        raise ConfigError(
            f"{panel.name}: --by {unknown[0]}: expected key columns or static covariates "
            f"({', '.join(known) or 'there are none'}), or all"
        )
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"--by {', '.join(names)}: {twice[0]} is given twice; keep one")
    check_results(panel, results, "--sum", names)


def check_results(
    panel: Panel, results: Sequence[str], option: str, statics: Sequence[str] = ()
) -> None:
    """Raises a DataError for columns that are named like a result's of an option.

    Args:
        panel: the table, whose keys, times and targets are looked at.
        results: columns that the option makes.
        option: its name.
        statics: covariates that its rows hold, too.
    """
    schema = panel.schema
    columns = [*_key_names(panel), *schema.time_parts, schema.time or "time", *schema.target_columns]
    made = [name for name in results if name != "channel" or not schema.melted]
    if clash := common((*columns, *statics), made):
        raise DataError(
            f"{panel.name}: column '{clash[0]}' is also a result's of {option}; rename it, or leave out "
            f"{option}"
        )


def check_alike(panel: Panel, findings: Iterable[Finding], option: str) -> None:
    """Raises a DataError where the audit found series with another step: a week is no day of a sum."""
    for finding in findings:
        if OTHER_STEP in finding.text:
            raise DataError(
                f"{panel.name}: {option} adds up values of equal steps, but {finding.text}: {finding.first}; "
                f"{finding.advice}"
            )


def group_series(panel: Panel, by: Sequence[str] | None) -> Groups:
    """Returns the groups of all series and channels, in the order of their first.

    Channels are apart, unless they were series of the table.

    Args:
        panel: of the series.
        by: key columns and static covariates; ["all"] = one group; None = each series of the table.

    Raises:
        DataError: a static covariate has categories that the model does not know.
    """
    schema, (n, channels) = panel.schema, panel.present.shape
    series, channel = np.divmod(np.arange(n * channels), channels)
    columns = {column.name: column for column in panel.ids(series, channel)}
    names = [*columns] if by is None else [name for name in by if [*by] != ["all"]]
    for name in names:
        if name not in columns:
            columns[name] = static_of(panel, name, "--by")[series]
    apart = not (schema.pivots or schema.melted)
    made = [columns[name] for name in names]
    made += [pl.Series("channel", np.array(schema.target)[channel])] if apart else []
    frame = pl.DataFrame(made)
    number: Ints = np.zeros(n * channels, np.int64)
    if made:
        places: dict[tuple[Any, ...], int] = {}
        number = np.array([places.setdefault(row, len(places)) for row in frame.rows()], np.int64)
        frame = frame[np.unique(number, return_index=True)[1]]
    return Groups(panel, np.where(panel.present, number.reshape(n, channels), -1), frame)


def _key_names(panel: Panel) -> list[str]:
    """Key columns of the table itself, and the one that melted channels are named by."""
    schema = panel.schema
    return [*panel.keys.columns, *(schema.channel_columns if schema.pivots else ())]


def static_of(panel: Panel, name: str, option: str) -> pl.Series:
    """Returns a static covariate, a value per series, in words where it is a category.

    Raises:
        DataError: there are categories that the model does not know; names the option that reads them.
    """
    schema = panel.schema
    if name in schema.static_numeric:
        values = pl.Series(name, panel.static[:, schema.static_numeric.index(name)]).fill_nan(None)
        whole = (values == values.round()).all() and (values.abs() < 2**53).all()
        return values.cast(pl.Int64) if whole else values
    codes = panel.static_codes[:, schema.static_category.index(name)]
    if (codes == 0).any():
        unknown = ", ".join(panel.unmet.get(name, ())[:5])
        raise DataError(
            f"{panel.name}: {option} {name}: the model does not know the categories {unknown}, and cannot "
            "tell them apart; give a key column, or fit again"
        )
    words = [None if code == MISSING else schema.categories[name][code - 1] for code in codes]
    return pl.Series(name, words, dtype=pl.String)
