"""`forecaster predict`: a model and a table → a file of keyed forecasts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forecaster import api
from forecaster.cli import options, results
from forecaster.errors import ConfigError, visible

if TYPE_CHECKING:
    from forecaster.runs.batch_predict import BatchResult, Engine


@options.flags_of(api.Forecaster.predict_to, "path")
def predict(
    model: options.Model,
    out: Annotated[Path, typer.Option(help="File for the forecasts: .csv or .parquet.")],
    plot: Annotated[Path | None, typer.Option(help="Picture of the first few series: .png.")] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Make only shard K (1 to N) of the parts; the same command without it merges them.",
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="ray", help="Make the parts on a cluster of machines.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Ray cluster; auto: the running one. Default: one started here."),
    ] = None,
    **given: Any,
) -> None:
    """Forecast every series of a table.

    Writes one row per (series, channel, lead), with quantiles, keyed in the table's own names; with
    --samples one row per (series, channel, sample, lead). Memory stays bounded, and the same command
    resumes one that was killed.
    """
    from rich.console import Console

    from forecaster.runs.console import print_findings

    results.check_outputs(out, plot, given["data"], given["future"], given["covariates"])
    part = None if shard is None else _shard(shard)
    elsewhere = _engine(engine, address, given["devices"])
    loaded = api.load(model)
    with results.progress("forecasting") as update:
        done = loaded.predict_to(out, shard=part, engine=elsewhere, progress=update, **given)
    said = [one for one in done.findings if one.severity == "warning" or one.rule == "resample"]
    print_findings(Console(stderr=True), said)
    typer.echo(visible(done.report))
    _print_parts(done, given["samples"])
    if plot is not None:
        results.put(done.first(), None, plot)


def _shard(text: str) -> tuple[int, int]:
    """Returns K and N of "K/N"."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None:
        raise typer.BadParameter(
            f"{text!r}: expected K/N, as 2/8 for the second of eight", param_hint="--shard"
        )
    return int(found[1]), int(found[2])


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
        typer.echo(f"{done.there:,} of {done.n_blocks:,} parts were there already")
    if not done.whole:
        typer.echo(
            f"made {done.made:,} of {done.n_blocks:,} parts in {done.path}; the same command without "
            "--shard makes the missing ones and merges all"
        )
    else:
        paths = "" if samples is None else f": {samples:,} paths of each series"
        typer.echo(f"wrote {done.path}{paths}")
