"""`forecaster backtest`: a model and a table, or a table alone → scores at past cutoffs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forecaster import api
from forecaster.cli import options, results
from forecaster.errors import ConfigError
from forecaster.forecast.bands import check_levels
from forecaster.forecast.model_folder import is_model
from forecaster.forecast.writer import PAGES, PICTURES, ROWS


@options.flags_of(api.Forecaster.backtest, "keep", table=api.backtest)
def backtest(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|DATA",
            help="Folder written by forecaster fit, or models:/NAME@champion; or a table to fit and score.",
        ),
    ],
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="Table to score the model on.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File for all rows: .csv, .parquet or .xlsx.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture of the last cutoff: .png.")] = None,
    report: Annotated[Path | None, typer.Option(help="Page for a browser: .html.")] = None,
    overwrite: options.Overwrite = False,
    leaderboard: Annotated[
        bool,
        typer.Option("--leaderboard", help="Rank each expert alone too; --plot draws the ranking."),
    ] = False,
    presets: Annotated[
        str | None, typer.Option(metavar="A,B", help="Presets or --config files for the leaderboard.")
    ] = None,
    fit: Annotated[
        bool, typer.Option("--fit/--no-fit", help="Fit before the cutoffs, or score the table alone.")
    ] = True,
    preset: options.Preset = None,
    config: options.ConfigFile = None,
    sets: options.Sets = None,
    **given: Any,
) -> dict[str, Any]:
    """Score a model at past cutoffs, beside baselines.

    By default its settings are fitted again to the rows before the first cutoff, so that no scored row
    has been seen. Without a model the settings are the defaults, or those of --preset and --config.
    """
    further = presets.split(",") if presets else [] if leaderboard else None
    if given["refit"].isdigit():
        given["refit"] = int(given["refit"])
    experts = given.pop("experts")
    has_model = is_model(model)
    if further is not None and (has_model or data is not None):
        raise ConfigError(f"--leaderboard fits a table anew: leave out the model {model}")
    if further is not None and not fit:
        raise ConfigError(
            "--leaderboard, --presets: they fit, and have the row `no fit`; leave out --no-fit"
        )
    if has_model and data is None:
        raise ConfigError(f"Missing argument DATA: the table to score {model} on")
    saved, table = results.model_and_table(model, data)
    if saved is not None and (preset or config or sets or experts is not None):
        raise ConfigError(
            "--preset, --config, --set, --experts: a model has its own; leave them out, or the model"
        )
    if saved is not None and not fit:
        raise ConfigError(f"--no-fit scores a table alone: leave it out, or the model {model}")
    check_levels(given["levels"], given["quantiles"])
    if out is not None and given["update_every"] is not None:
        given["keep"] = out.with_name(f"{out.name}.run")
    outputs = {ROWS: out, PICTURES: plot, PAGES: report}
    inputs = (table, given["covariates"], *(given["others"] or ()))
    results.check_files(outputs, inputs, overwrite)

    from forecaster.config import config_from, load_config
    from forecaster.runs.console import Screen

    result: Any
    loaded = None if saved is None else api.load(saved)
    if isinstance(loaded, api.Classifier):
        result = loaded.backtest(table, **results.refuse_options(given, "backtest"))
        Screen().print_class_summary(result)
    elif loaded is not None:
        result = loaded.backtest(table, **given)
        Screen().print_summary(result)
    else:
        settings = config_from(load_config(config, sets or ()), None, {}, preset)
        further_options = {"presets": further, "experts": experts, "fit": fit}
        result = api.backtest(table, config=settings, **further_options, **given)
        Screen().print_summary(result)
    files = results.put(result, out, plot, report)
    return {**results.about_scores(result), **files}
