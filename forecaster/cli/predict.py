"""`forecaster predict`: a model and a table in, a file of keyed forecasts out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forecaster.cli import imports, options, results
from forecaster.errors import ConfigError

if TYPE_CHECKING:
    from forecaster.runs.batch_predict import BatchResult, Engine


@options.reads_table
def predict(
    model: options.Model,
    data: options.Data,
    out: Annotated[Path, typer.Option(help="File for the forecasts: .csv or .parquet.")],
    future: options.Future = None,
    covariates: options.Covariates = None,
    horizon: options.Horizon = None,
    cutoff: Annotated[
        str,
        typer.Option(metavar="own|last|DATE", help="Where each forecast starts: own end, or a date."),
    ] = "own",
    samples: Annotated[
        int | None, typer.Option(min=1, help="Write this many joint sample paths per series instead.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample paths.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Picture of the first few series: .png.")] = None,
    parts: Annotated[
        bool, typer.Option("--parts", help="Leave one file per 1,024 series, in the folder OUT.parts.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Make only share K (1 to N) of the parts. The same command without it ends the work.",
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="Processes, each with a GPU of its own, or a share of the cores."),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew where parts are there already.")
    ] = False,
    engine: Annotated[
        str | None, typer.Option(metavar="ray", help="Make the parts on a cluster of many machines.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Of the Ray cluster; auto: the one around. Else one is started here."),
    ] = None,
    *,
    told: options.Told,
) -> None:
    """Forecast every series of a table.

    Writes one row per (series, channel, lead), with quantiles, keyed in the table's own names; with
    --samples one row per (series, channel, sample, lead). Memory stays bounded, and a command that was
    killed goes on where it was when it is given again.
    """
    from rich.console import Console
    from rich.progress import Progress

    from forecaster import api
    from forecaster.runs.console import print_findings

    results.refuse_unwritable(out, plot, data, future, covariates)
    roles = options.declared(told)
    share = None if shard is None else _share(shard)
    elsewhere = _engine(engine, address, devices)
    with imports.undisturbed():  # torch comes with the model
        loaded = api.load(model)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("forecasting", total=None)
        done = loaded.predict_to(
            out,
            data,
            future=future,
            covariates=covariates,
            cutoff=cutoff,
            horizon=horizon,
            samples=samples,
            seed=seed,
            parts=parts,
            shard=share,
            devices=devices,
            restart=restart,
            engine=elsewhere,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
            **roles,
        )
    print_findings(console, [found for found in done.findings if found.severity == "warning"])
    typer.echo(done.report)
    _say(done, samples)
    if plot is not None:
        results.put(done.first(), None, plot)


def _share(text: str) -> tuple[int, int]:
    """Returns K and N of "K/N"."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None:
        raise typer.BadParameter(
            f"{text!r}: expected K/N, as 2/8 for the second of eight", param_hint="--shard"
        )
    return int(found[1]), int(found[2])


def _engine(name: str | None, address: str | None, devices: int | None) -> Engine | None:
    """Returns what makes the parts in the place of this machine; None where nothing was asked for."""
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


def _say(done: BatchResult, samples: int | None) -> None:
    if done.there:
        typer.echo(f"{done.there:,} of {done.n_blocks:,} parts were there already")
    if not done.whole:
        typer.echo(
            f"made {done.made:,} of {done.n_blocks:,} parts in {done.path}; the same command without "
            "--shard makes what is missing and puts all together"
        )
    else:
        paths = "" if samples is None else f": {samples:,} paths of each series"
        typer.echo(f"wrote {done.path}{paths}")
