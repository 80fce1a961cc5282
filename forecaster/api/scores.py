"""Scores: of a table, of settings beside each other, and of forecasts of any origin."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack, cast

from forecaster import options
from forecaster.api.requests import (
    call_of,
    hierarchy_request,
    open_request,
    other_forecasts,
    refuse,
    runs_on_device,
    with_options,
)
from forecaster.config import Config, config_from, load_preset, required_horizon
from forecaster.errors import ConfigError
from forecaster.forecast.bands import check_levels
from forecaster.options import DataOptions, Option, public
from forecaster.panel.findings import check_paths

if TYPE_CHECKING:
    from forecaster.evaluation.backtest import Backtest
    from forecaster.evaluation.leaderboard import Leaderboard
else:
    from forecaster.lazy import Backtest, Leaderboard


@public
@runs_on_device
def backtest(
    data: options.Table,
    horizon: options.Horizon = None,
    windows: options.Windows = 8,
    refit: options.Refit = "once",
    *,
    config: options.Settings = None,
    preset: options.Preset = None,
    experts: options.Experts = None,
    presets: Annotated[
        options.Presets | None,
        Option(
            "Further presets or YAML files of settings, for a leaderboard. Or settings by name. "
            "None = no leaderboard."
        ),
    ] = None,
    stride: options.Stride = None,
    gap: options.Gap = 0,
    others: options.Others = None,
    hierarchy: options.ScoredHierarchy = None,
    reconcile: options.Reconcile = None,
    covariates: options.Covariates = None,
    only: options.Scored = None,
    fit: options.Fit = True,
    levels: options.Levels = None,
    quantiles: options.Quantiles = None,
    update_every: options.UpdateEvery = None,
    keep: options.Keep = None,
    quiet: options.Quiet = False,
    tracking: options.Tracking = True,
    name: options.Name = None,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "Backtest":
    """Returns the backtest of a configuration: fits it first, no saved model is needed.

    Without a fit it scores what `predict` forecasts from the rows before each cutoff; nothing is recorded.

    Raises:
        ConfigError: a setting is wrong, or contradicts `fit=False`.
        DataError: the table cannot be understood, or has too little history for so many windows.

    Example:
        >>> backtest("sales.csv", horizon=28, windows=8).summary   # doctest: +SKIP
    """

    if not fit:
        refuse(
            {"presets": presets, "refit": None if refit == "once" else refit, "gap": gap or None},
            "a backtest without a fit",
        )
    settings = config_from(config, horizon, data_options, preset)
    settings = with_options(settings, tracking and fit, experts)
    if settings.data.label is not None:
        raise ConfigError(
            "label: expected a saved classifier and a table with classes to score it on, found settings: fit "
            "first (its scores are of held-out series), then backtest the model on another table"
        )
    required_horizon(settings)
    check_levels(levels, quantiles)
    check_paths(data, covariates)
    tree = hierarchy_request(hierarchy, reconcile, only=only)

    from forecaster.runs.pipeline import BacktestOptions, run_backtest_pipeline
    from forecaster.runs.resume import FitRequest

    bands = (levels, quantiles, update_every)
    scoring = BacktestOptions(windows, refit, gap, stride, None, only, fit, *bands)
    tables = other_forecasts(others)
    contenders = None if presets is None else _presets(presets, settings)
    settings, panel = open_request(FitRequest(settings, data, covariates=covariates))
    source = (data, settings.data, covariates)
    more: dict[str, Any] = {"horizon": horizon, "config": config, "preset": preset, "experts": experts}
    more |= {"presets": presets, "others": others, "covariates": covariates} | data_options
    more |= {"hierarchy": hierarchy, "reconcile": reconcile}
    command = call_of("fc.backtest", data, scoring, **more)
    return run_backtest_pipeline(
        settings,
        panel,
        scoring,
        settings.tracking,
        source,
        quiet,
        name,
        command,
        contenders,
        tables,
        tree,
        keep,
    )


def _presets(presets: options.Presets, settings: Config) -> dict[str, Config]:
    """Returns configs by name that differ from some settings in how a model is made alone."""
    if not isinstance(presets, Mapping):
        files = [presets] if isinstance(presets, str | Path) else presets
        presets = {Path(file).stem: file for file in files}
        if len(presets) < len(files):
            raise ConfigError(f"presets {[*map(str, files)]}: expected a name of its own for each")
    alike = {name: getattr(settings, name) for name in ("data", "target", "horizon")}
    levels = {"quantile_levels": settings.model.quantile_levels}
    return {
        f"preset {name}": _preset(given).model_copy(update=alike).replaced(model=levels)
        for name, given in presets.items()
    }


def _preset(given: options.SettingsLike) -> Config:
    """Returns the config of a preset: a bare word is a name, a file has a suffix or a folder."""
    bare = isinstance(given, str) and given == Path(given).stem
    return load_preset(str(given)) if bare else config_from(given, None, {})


@public
def compare(
    data: options.Table,
    horizon: options.Horizon = None,
    *,
    presets: Annotated[
        options.Presets,
        Option("Further presets or YAML files of settings, a row each. Or settings by name."),
    ] = (),
    windows: options.Windows = 8,
    refit: options.Refit = "once",
    config: options.Settings = None,
    preset: options.Preset = None,
    experts: options.Experts = None,
    stride: options.Stride = None,
    gap: options.Gap = 0,
    others: options.Others = None,
    hierarchy: options.ScoredHierarchy = None,
    reconcile: options.Reconcile = None,
    covariates: options.Covariates = None,
    only: options.Scored = None,
    levels: options.Levels = None,
    quantiles: options.Quantiles = None,
    quiet: options.Quiet = False,
    tracking: options.Tracking = True,
    name: options.Name = None,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "Leaderboard":
    """Returns the backtest of a config beside presets, all experts of the table, and baselines.

    Raises:
        ConfigError: a setting is wrong.
        DataError: the table cannot be understood, or has too little history for so many windows.

    Example:
        >>> compare("sales.csv", 28, presets=["vanilla", "my.yaml"]).summary   # doctest: +SKIP
    """
    scores = backtest(
        data,
        horizon,
        windows,
        refit,
        config=config,
        preset=preset,
        experts=experts,
        presets=presets,
        stride=stride,
        gap=gap,
        others=others,
        hierarchy=hierarchy,
        reconcile=reconcile,
        covariates=covariates,
        only=only,
        levels=levels,
        quantiles=quantiles,
        quiet=quiet,
        tracking=tracking,
        name=name,
        device=device,
        **data_options,
    )
    return cast("Leaderboard", scores)


@public
def score(
    forecasts: Annotated[
        options.OtherTables | object,
        Option("Table of forecasts, as of `others`. Or several: files, or frames by name."),
    ],
    actuals: Annotated[object, Option("Table of the actuals, with the history before each cutoff.")],
    *,
    season: Annotated[int | None, Option("Steps of the season. None = of the calendar.")] = None,
    **data_options: Unpack[DataOptions],
) -> "Backtest":
    """Returns the scores of any forecasts beside seasonal naive, over the cells that all of them have.

    The row `forecaster` is the single table, the first of several files, or that name of a mapping; the others
    are compared with it. Scales of MASE and RMSSE come from the rows of `actuals` before each cutoff.

    Raises:
        DataError: a table cannot be understood, or they have no cell in common.
        ConfigError: two tables have one name, or none of a mapping is called forecaster.

    Example:
        >>> score("autoets.csv", "sales.csv").scores["forecaster"]["MASE"]   # doctest: +SKIP
    """
    from forecaster.evaluation.comparison import MODEL
    from forecaster.evaluation.others import check_taken, score_others
    from forecaster.panel.build import open_panel
    from forecaster.panel.forecast_rows import read_others

    given: dict[str, object] = {MODEL: forecasts}
    if isinstance(forecasts, Mapping):
        given = dict(forecasts)
    elif isinstance(forecasts, Sequence) and not isinstance(forecasts, str):
        if not all(isinstance(one, str | Path) for one in forecasts):
            raise ConfigError(f"forecasts: expected frames by name, one of them {MODEL}, found a list")
        given = {MODEL: forecasts[0]} | other_forecasts(forecasts[1:]) if forecasts else {}
    if MODEL not in given:
        raise ConfigError(f"forecasts: expected one named {MODEL}, found {', '.join(given) or 'none'}")
    check_taken([name for name in given if name != MODEL], [])
    check_paths(actuals, *given.values())
    if season is not None:
        data_options["season_length"] = season
    panel = open_panel(actuals, config_from(None, None, data_options).data)
    return score_others(panel, {name: read_others(table, panel) for name, table in given.items()})
