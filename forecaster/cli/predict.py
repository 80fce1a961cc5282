"""`forecaster predict`: a model and a table, or a table alone → a file of keyed forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forecaster import api
from forecaster.api.requests import bounds_of, hierarchy_request, refuse, total_request
from forecaster.cli import options, results
from forecaster.errors import ConfigError, visible
from forecaster.forecast.bands import check_levels
from forecaster.forecast.writer import PICTURES, ROWS, folder_of
from forecaster.options import DataOptions

if TYPE_CHECKING:
    from forecaster.forecast.classification import Classification
    from forecaster.forecast.forecast import Forecast
    from forecaster.forecast.hierarchy import Hierarchy
    from forecaster.forecast.totals import TotalRequest, Totals
    from forecaster.forecast.what_if import WhatIf
    from forecaster.panel.tree import HierarchyRequest
    from forecaster.runs.batch_predict import BatchResult, Engine


@options.flags_of(api.Forecaster.predict_to, "path", table=api.predict)
def predict(
    model: options.ModelOrTable,
    data: options.ModelTable = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File for the forecasts: .csv, .parquet or .xlsx. Default: print the first rows."
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture of the first few series: .png.")] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="ray", help="Make the parts on a cluster of machines.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster; auto: the running one. Default: one started here.")
    ] = None,
    **given: Any,
) -> dict[str, Any]:
    """Forecast every series of a table.

    Without a model, which is then made of the table at once, --horizon is required.

    Writes one row per (series, channel, lead), with quantiles, keyed in the table's own names; with
    --samples one row per (series, channel, sample, lead), with --sum one per group and period, with --hierarchy
    one per (node, channel, lead), with --what-if three of each: base, what-if and difference. Memory stays
    bounded, and the same command resumes one that was killed; not with --hierarchy and --what-if.
    """
    saved, table = results.model_and_table(model, data)
    tables, overwrite = (table, given["future"], given["covariates"]), given.pop("overwrite")
    request: TotalRequest | HierarchyRequest | None
    request = total_request(given["sum"], given["by"], given["sum_partial"])
    given["what_if"] = given["what_if"] or None
    if given["what_if"] is not None:
        from forecaster.panel.known import changes_of

        changes_of(given["what_if"])
    others = {name: given[name] for name in ("sum", "only", "what_if")}
    request = hierarchy_request(given["hierarchy"], given["reconcile"], **others) or request
    bounds = bounds_of(*(given.pop(name) for name in ("lower", "upper", "integer")))
    check_levels(given["levels"], given["quantiles"])
    if given["samples"] is not None and request is None and given["what_if"] is None:
        asked = {name: given[name] for name in ("levels", "quantiles")}
        refuse(asked, "a file of sample paths (--samples)")
    results.check_files({PICTURES: plot}, tables, overwrite)
    batch: dict[str, Any] = {"engine": engine, "address": address}
    if out is None:
        batch |= {name: given.pop(name) for name in ("parts", "devices", "restart", "shard")}
        if needless := [f"--{name}" for name, value in batch.items() if value]:
            raise ConfigError(f"{', '.join(needless)}: give --out, a file for the forecasts")
        elsewhere = None
    else:
        resumes = given["parts"] or folder_of(out).exists()
        results.check_files({ROWS: out}, tables, overwrite or resumes)
        elsewhere = _engine(engine, address, given["devices"])
    loaded: api.Forecaster | api.Classifier
    if saved is None:
        loaded, given = results.without_fit(table, given["horizon"], given, **bounds)
    else:
        results.refuse_of_table(bounds)
        given |= {"data": table}
        given |= _early(Path(saved), given)
        loaded = api.load(saved)
    if isinstance(loaded, api.Classifier):
        given = results.refuse_options(given, "predict_to")
    with results.progress("predicting") as update:
        if out is None:
            for name in ("sum", "by", "sum_partial", "hierarchy", "reconcile"):
                given.pop(name, None)
            return _print_first(loaded, request, plot, given | {"progress": update})
        done = loaded.predict_to(out, engine=elsewhere, overwrite=overwrite, progress=update, **given)
    _print_outcome(done)
    _print_parts(done, given.get("samples") if request is None else None)
    drawn = {"plot": None} if plot is None else results.put(done.first(), None, plot)
    return {
        "out": done.path,
        "plot": drawn["plot"],
        "whole": done.whole,
        "parts": done.n_blocks,
        "parts_made": done.made,
        "summary": done.report,
        "findings": done.findings,
    }


def _early(model: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tables as one panel where horizon, series and cutoff could be checked before torch loads."""
    from forecaster.forecast.model_folder import early_panel

    roles = {name: given[name] for name in DataOptions.__annotations__ if name in given}
    names = ("data", "future", "covariates", "only", "cutoff", "horizon")
    panel = early_panel(model, roles=roles, **{name: given[name] for name in names})
    return {} if panel is None else {"data": panel, "future": None, "covariates": None}


def _print_first(
    loaded: api.Forecaster | api.Classifier,
    request: TotalRequest | HierarchyRequest | None,
    plot: Path | None,
    given: dict[str, Any],
) -> dict[str, Any]:
    """Prints the first rows instead of writing a file; returns all."""
    from forecaster.forecast.parts import rows_of
    from forecaster.forecast.totals import PATHS, TotalRequest
    from forecaster.runs.console import Screen

    found: Forecast | Classification | Totals | Hierarchy | WhatIf[Any]
    changes = given.pop("what_if", None)
    if isinstance(loaded, api.Forecaster) and changes is not None:
        given.pop("progress")
        found = loaded.what_if(**{"future": None} | given, changes=changes)
        if isinstance(request, TotalRequest):
            found = found.total(request.period, request.by, partial=request.partial)
    elif request is None or isinstance(loaded, api.Classifier):
        found = loaded.predict(**given)
    else:
        drawn = loaded.artifact.plan.model.decoder == "autoregressive"  # with the forecast
        how = {"samples": given["samples"], "seed": given["seed"]}
        given["samples"] = (given["samples"] or PATHS) if drawn else None
        found = loaded.predict(**given)
        if isinstance(request, TotalRequest):
            found = found.total(request.period, request.by, partial=request.partial, **how)
        else:
            found = found.hierarchy(request.spec, request.method, **how)
    rows = rows_of(found)
    Screen().print_rows(rows)
    _print_outcome(found)
    files = results.put(found, None, plot)
    return {
        "rows": rows,
        "plot": files["plot"],
        "summary": found.report,
        "findings": found.findings,
    }


def _print_outcome(
    done: BatchResult | Forecast | Classification | Totals | Hierarchy | WhatIf[Any],
) -> None:
    from forecaster.runs.console import Screen

    said = [one for one in done.findings if one.severity == "warning" or one.rule == "resample"]
    Screen(stderr=True).print_findings(said)
    typer.echo(visible(done.report))


def _engine(name: str | None, address: str | None, devices: int | None) -> Engine | None:
    """Returns the engine that makes the parts; None for this machine."""
    if name is None and address is None:
        return None
    if name != "ray":
        raise ConfigError(
            f"--engine {name or 'none'}: expected ray" + " with --address" * (name is None)
        )
    if devices is not None:
        raise ConfigError(f"--devices {devices}: Ray takes as many processes as its cluster has cores")
    from forecaster.runs.cluster import ray_engine

    return ray_engine(address)


def _print_parts(done: BatchResult, samples: int | None) -> None:
    if done.there:
        typer.echo(f"{done.there:,} of {done.n_blocks:,} parts were already finished")
    if not done.whole:
        typer.echo(
            f"made {done.made:,} of {done.n_blocks:,} parts in {done.path}; run the same command without "
            "--shard to make the missing ones and merge all"
        )
    else:
        paths = "" if samples is None else f": {samples:,} paths of each series"
        typer.echo(f"wrote {done.path}{paths}")
