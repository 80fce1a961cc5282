"""Columns that a table must have, and names that its keys must not: told all at once."""

from __future__ import annotations

import re

from forecaster.panel.findings import Faults, fault
from forecaster.panel.reading.table import Table, did_you_mean, listing
from forecaster.panel.roles.columns import require_columns
from forecaster.panel.schema import Schema

_RESULTS = {"lead", "cutoff", "channel", "forecast", "mean", "status", "actual"}


def require_schema(schema: Schema, table: Table, covariates: Table | None) -> None:
    """Refuses a table that lacks columns of the schema.

    Args:
        schema: of the table, or of a model.
        table: has its keys, time and targets.
        covariates: may have the covariates that the table lacks.

    Raises:
        DataError: a line per column.
    """
    faults, columns = Faults(), table.frame.columns
    with faults:
        _refuse_result_names(schema, table)
    wanted = {
        "a target": schema.melted or schema.target,
        "a series key": () if schema.melted else schema.series,
        "the time column": () if schema.time is None else (schema.time,),
    }
    for flag, names in wanted.items():
        with faults:
            require_columns(names, columns, table.name, flag)
    with faults:
        _require_covariates(schema, table, covariates)
    faults.refuse()


def _refuse_result_names(schema: Schema, table: Table) -> None:
    faults = Faults()
    keys = () if schema.melted else schema.series
    for name in (*keys, *([schema.time] if schema.time is not None else [])):
        if name in _RESULTS or re.fullmatch(r"q0\.\d+", name):
            with faults:
                raise fault(
                    "names",
                    f"{table.name}: the key column '{name}' has the name of a result",
                    "rename it",
                    where=name,
                )
    faults.refuse()


def _require_covariates(schema: Schema, table: Table, covariates: Table | None) -> None:
    faults = Faults()
    known = [name for name in table.frame.columns if name != schema.time]
    there = {*known, *(covariates.frame.columns if covariates is not None else ())}
    for name in (*schema.past, *schema.known, *schema.static):
        if name not in there:
            other = f" or {covariates.name}" if covariates is not None else ""
            with faults:
                raise fault(
                    "columns",
                    f"{table.name}: no column '{name}' in it{other}, a covariate of the model"
                    f"{did_you_mean(name, known)}; the columns are {listing(table.frame.columns)}",
                    "join it, or pass the table that holds it with --covariates",
                    where=name,
                )
    faults.refuse()
