"""Roles of what is neither time, series nor target: declared, or told from the data.

What comes in are the columns that are left and the declared roles; what goes out are names, with a
reason noted for each. A covariate is known in advance only where declared or given in the future
table, never by a guess.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.findings import Finding, refuse_errors
from forecaster.panel.reading.table import Table, did_you_mean, listing
from forecaster.panel.roles.columns import (
    LONG_TARGETS,
    MOST_CATEGORIES,
    is_category,
    is_number,
    missing_columns,
)

MOST_CODES = 12
"""Different whole numbers up to which they may be codes of categories: the months of a year."""
ROWS_PER_CODE = 10
"""Rows of each code, on average, below which there are too few to learn from."""


def gather(
    table: Table, covariates: Table | None, time: str | None, data: DataConfig
) -> tuple[dict[str, pl.Series], tuple[str, ...]]:
    """Returns every column that may have a role, and those of a table without times.

    Raises:
        DataError: a covariate is in both tables.
    """
    pool = {column.name: column for column in table.frame.iter_columns() if column.name != time}
    if covariates is None:
        return pool, ()
    joined_on = [name for name in covariates.frame.columns if name in pool or name == time]
    extra = [name for name in covariates.frame.columns if name not in joined_on]
    carried = {*data.known, *(data.target or ()), *(data.past or ()), *(data.static or ())}
    twice = [name for name in joined_on if name in carried]
    if twice:
        raise DataError(
            f"{covariates.name}: column '{twice[0]}' is also in {table.name}; keep it in one of them"
        )
    pool |= {name: covariates.frame[name] for name in extra}
    return pool, tuple(extra) if time is not None and time not in joined_on else ()


def require_declared(data: DataConfig, names: list[str], table: Table, time: str | None) -> None:
    """Refuses declared columns that do not exist or have two roles.

    Raises:
        DataError: naming every such column and its flags.
    """
    groups = {
        "--series": data.series,
        "--target": data.target,
        "--known": data.known,
        "--past": data.past,
        "--static": data.static,
    }
    owner: dict[str, str] = {time: "--time"} if time is not None else {}
    found: list[Finding] = []
    for flag, group in groups.items():
        for name in group or ():
            if name in owner:
                found.append(
                    Finding(
                        "error",
                        "two-roles",
                        f"{table.name}: column '{name}' is declared twice, by {owner[name]} and {flag}",
                        "keep one of them",
                        where=name,
                    )
                )
            owner[name] = flag
        allowed = table.frame.columns if flag in ("--series", "--target") else names
        found += missing_columns(group or (), allowed, table.name, flag)
    refuse_errors(found)


def find_known(
    pool: dict[str, pl.Series], free: list[str], data: DataConfig, future: Table | None
) -> dict[str, str]:
    """Returns the covariates known in advance, each with the reason."""
    reasons = dict.fromkeys(data.known, "declared")
    if future is not None:
        elsewhere = {*(data.target or ()), *(data.past or ()), *(data.static or ())}
        given = {c.name for c in future.frame.iter_columns() if c.null_count() < len(c)}
        for name in free:
            target_like = data.target is None and name.lower() in LONG_TARGETS
            if name in given and name not in elsewhere and not target_like:
                reasons.setdefault(name, f"in {future.name}")
    return {name: reasons[name] for name in pool if name in reasons}


def find_static(
    pool: dict[str, pl.Series], left: list[str], data: DataConfig, one_value: set[str]
) -> dict[str, str]:
    """Returns the columns constant within a series, each with the reason."""
    if data.static is not None:
        return dict.fromkeys((name for name in pool if name in data.static), "declared")
    taken = set(data.past or ())
    return {
        name: "one value per series"
        for name in left
        if name in one_value and name not in taken and not _unusable(pool[name])
    }


def find_past(
    pool: dict[str, pl.Series], left: list[str], data: DataConfig
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the covariates seen up to the cutoff only, and the ignored columns, with reasons."""
    if data.past is not None:
        past = dict.fromkeys((name for name in pool if name in data.past), "declared")
        rest = [name for name in left if name not in past]
        return past, dict.fromkeys(rest, "ignored: the past covariates are declared")
    why = {name: _unusable(pool[name]) for name in left}
    past = {name: "every other usable column" for name in left if not why[name]}
    return past, {name: reason for name, reason in why.items() if reason}


def find_categorical(
    pool: dict[str, pl.Series], covariates: Mapping[str, int], data: DataConfig
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the covariates that are categories, and those among them that are made of numbers.

    Text and booleans always are. Of numbers, the declared ones; where nothing is declared, columns
    that look like codes: integers from 0 or 1 on without a hole, `MOST_CODES` at most, with
    `ROWS_PER_CODE` rows of each on average. Flags, weekdays, months and kinds of weather look so;
    prices of 4, 5 and 6 do not.

    Args:
        pool: the columns.
        covariates: name → number of values to judge by: rows, or series for what is static.
        data: declared roles.

    Raises:
        DataError: a declared column is no covariate, or has too many different values.
    """
    declared = data.categorical or ()
    for name in declared:
        if name not in covariates:
            raise DataError(
                f"--categorical {name}: expected a covariate, found "
                f"{'another role' if name in pool else 'no such column'}"
                f"{did_you_mean(name, list(covariates))}; the covariates are "
                f"{listing(list(covariates)) or 'none'}"
            )
        if (count := pool[name].n_unique()) > MOST_CATEGORIES:
            raise DataError(
                f"--categorical {name}: expected at most {MOST_CATEGORIES} different values, found "
                f"{count}; leave it a number"
            )
    numbers = tuple(
        name
        for name, count in covariates.items()
        if not is_category(pool[name])
        and (name in declared or (data.categorical is None and look_like_codes(pool[name], count)))
    )
    return tuple(n for n in covariates if n in numbers or is_category(pool[n])), numbers


def look_like_codes(column: pl.Series, count: int) -> bool:
    """Whether whole numbers look like codes: they run from 0 or 1 without a hole."""
    if not column.dtype.is_integer():
        return False
    # A sample rules out nearly every column of measurements.
    for part in (column.head(10_000), column):
        values = part.drop_nulls().unique().sort()
        many = len(values)
        if not 2 <= many <= MOST_CODES or many * ROWS_PER_CODE > count or values[0] not in (0, 1):
            return False
        if not bool((values - values[0] == pl.int_range(many, eager=True)).all()):
            return False
    return True


def _unusable(column: pl.Series) -> str:
    if is_category(column):
        count = column.n_unique()
        many = count > MOST_CATEGORIES
        return f"ignored: {count} different texts, more than {MOST_CATEGORIES}" if many else ""
    return "" if is_number(column) else f"ignored: neither numbers nor text ({column.dtype})"
