"""Forecasts, anomalies and explanations of a table that nothing is fitted to."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from forecaster import options
from forecaster.api.models import Forecaster
from forecaster.api.requests import bounds_of, date_text, opened, runs_on_device, with_options
from forecaster.arguments import Date
from forecaster.config import Config, config_from, required_horizon
from forecaster.errors import ConfigError, DataError
from forecaster.forecast.bands import check_levels
from forecaster.options import DataOptions, public
from forecaster.panel.findings import check_paths

DETECT_HORIZON = 14
"""Steps of a model without a fit whose first one is compared; one alone would weigh experts by four errors."""

if TYPE_CHECKING:
    from forecaster.forecast.detect import Anomalies
    from forecaster.forecast.explain import Explanation
    from forecaster.forecast.forecast import Forecast
    from forecaster.forecast.what_if import WhatIf
    from forecaster.panel.panel import Only, Panel
else:
    from forecaster.lazy import Anomalies, Explanation, Forecast, WhatIf


@public
@runs_on_device
def predict(
    data: options.Table,
    horizon: options.RequiredHorizon = None,
    *,
    future: options.Future = None,
    covariates: options.Covariates = None,
    cutoff: options.Cutoff = "own",
    samples: options.Samples = None,
    seed: options.PathSeed = 0,
    only: options.Only = None,
    lower: options.Lower = None,
    upper: options.Upper = None,
    integer: options.Integer = False,
    levels: options.Levels = None,
    quantiles: options.Quantiles = None,
    fill_known: options.FillKnown = None,
    progress: options.Progress = None,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "Forecast":
    """Returns the forecast of every series in a table, or of some, without a fit.

    Experts are weighed by attention to their errors at earlier cutoffs of each series. Covariates known
    in advance are read by experts solved at once from the rows up to the cutoff. Nothing is saved or
    recorded.

    Raises:
        DataError: the table cannot be understood, holds classes, or a known covariate is missing.
        ConfigError: there is no horizon, or a level is none.

    Example:
        >>> predict("sales.csv", 28, future="promos.csv").frame   # doctest: +SKIP
    """
    check_levels(levels, quantiles)
    bounds = bounds_of(lower, upper, integer)
    model, panel = without_fit(data, horizon, future, covariates, cutoff, only, bounds, data_options)
    return model.predict(
        panel,
        cutoff=cutoff,
        progress=progress,
        samples=samples,
        seed=seed,
        only=only,
        levels=levels,
        quantiles=quantiles,
        fill_known=fill_known,
    )


@public
@runs_on_device
def what_if(
    data: options.Table,
    horizon: options.RequiredHorizon,
    future: options.Future,
    changes: options.WhatIf,
    *,
    covariates: options.Covariates = None,
    cutoff: options.Cutoff = "own",
    samples: options.Differences = None,
    seed: options.PathSeed = 0,
    only: options.Only = None,
    lower: options.Lower = None,
    upper: options.Upper = None,
    integer: options.Integer = False,
    levels: options.Levels = None,
    quantiles: options.Quantiles = None,
    fill_known: options.FillKnown = None,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "WhatIf[Forecast]":
    """Returns forecasts without a fit as a table is and with other known covariates, and their difference.

    Raises:
        DataError: the table cannot be understood, holds classes, or a known covariate is missing.
        ConfigError: there is no horizon, no such covariate or value, or a level is none.

    Example:
        >>> what_if("sales.csv", 28, "promos.csv", ["price*0.9", "promo=1"]).frame   # doctest: +SKIP
    """
    from forecaster.panel.known import changes_of

    changes_of(changes)
    check_levels(levels, quantiles)
    bounds = bounds_of(lower, upper, integer)
    model, panel = without_fit(data, horizon, future, covariates, cutoff, only, bounds, data_options)
    return model.what_if(
        panel,
        None,
        changes,
        cutoff=cutoff,
        samples=samples,
        seed=seed,
        only=only,
        levels=levels,
        quantiles=quantiles,
        fill_known=fill_known,
    )


@public
@runs_on_device
def detect(
    data: options.Table,
    *,
    level: options.Level = 99.0,
    covariates: options.Covariates = None,
    only: options.Only = None,
    progress: options.Progress = None,
    device: options.Device = None,
    **data_options: Unpack[DataOptions],
) -> "Anomalies":
    """Returns whether each observed step is inside, above or below the band forecast before it, without a fit.

    Raises:
        DataError: the table cannot be understood, or holds classes.
        ConfigError: `level` is no percentage.

    Example:
        >>> detect("sales.csv").write("anomalies.parquet")   # doctest: +SKIP
    """
    model, panel = without_fit(data, DETECT_HORIZON, None, covariates, only=only, roles=data_options)
    return model.detect(panel, level, only=only, progress=progress)


@public
def explain(
    data: options.Table,
    horizon: options.RequiredHorizon = None,
    *,
    only: options.OneSeries = None,
    channel: options.ExplainedChannel = None,
    cutoff: options.ExplainedCutoff = "own",
    future: options.Future = None,
    covariates: options.Covariates = None,
    **data_options: Unpack[DataOptions],
) -> "Explanation":
    """Returns the weights of experts in one forecast without a fit, and how covariates and the past change it.

    Raises:
        DataError: the table cannot be understood, holds classes, or has no such series or channel.
        ConfigError: there is no horizon.

    Example:
        >>> explain("sales.csv", 28, only="store_1").write("why.html")  # doctest: +SKIP
    """
    model, panel = without_fit(data, horizon, future, covariates, cutoff, only, roles=data_options)
    return model.explain(panel, only, channel, cutoff)


def without_fit(
    data: object,
    horizon: int | None,
    future: object | None = None,
    covariates: object | None = None,
    cutoff: Date = "own",
    only: "Only" = None,
    bounds: Mapping[str, float | None] | None = None,
    roles: Mapping[str, Any] | None = None,
) -> "tuple[Forecaster, Panel]":
    """Returns a model of a table that nothing is fitted to, and the table as the model reads it.

    Args:
        data, horizon, future, covariates, cutoff: as `predict`; targets after a date are not read.
        only: series to forecast; all of them are read.
        bounds: lower, upper and integer, of the target.
        roles: options of the table.

    Raises:
        DataError: the table cannot be understood, or has no such series.
        ConfigError: there is no horizon, or a class column is declared.
    """

    settings = with_options(config_from(None, horizon, roles or {}), tracking=False, target=bounds)
    required_horizon(settings)
    _refuse_classes(settings)
    check_paths(data, future, covariates)
    start = date_text(cutoff, "cutoff")

    from forecaster.panel.build import with_roles_until

    settings, panel = _opened_with_step(settings, data, future, covariates)
    _refuse_classes(settings)
    panel.only(only)
    time = panel.cutoff_at(start)
    if time is not None:
        panel = with_roles_until(panel, data, settings.data, covariates, time, future)

    # It loads torch, so it is imported after all that is quickly refused.
    from forecaster.fitting.no_fit import described, unfitted
    from forecaster.forecast.error_levels import LaterErrors
    from forecaster.forecast.source import coded

    artifact = unfitted(panel if time is None else panel.until(time), settings)
    panel = replace(coded(panel, artifact), notes=(*panel.notes, described(artifact)))
    artifact = replace(
        artifact, errors=LaterErrors(artifact, panel if time is None else panel.until(time))
    )
    return Forecaster(artifact, settings.tracking), panel


def _opened_with_step(
    config: Config, data: object, future: object | None, covariates: object | None
) -> "tuple[Config, Panel]":
    """Returns what `opened` does; where no series has two rows, with the usual step and a warning."""
    try:
        return opened(config, data, future, covariates, begin=True)
    except DataError as error:
        if [fault.rule for fault in error.findings] != ["step"]:
            raise
        step = error.findings[0].where

    from forecaster.panel.findings import Finding

    config = config.replaced(data={"freq": step})
    config, panel = opened(config, data, future, covariates, begin=True)
    text = f"no series has two rows: steps of {step} are assumed"
    finding = Finding("warning", "frequency", text, "pass another one with --freq")
    return config, replace(panel, notes=(*panel.notes, finding))


def _refuse_classes(settings: Config) -> None:
    """Raises a ConfigError where a table of classes would be forecast without a fit."""
    if label := settings.data.label:
        raise ConfigError(
            f"--label {label}: expected a table to forecast, found one of classes, which take a fit: "
            f"forecaster fit DATA --label {label} --out MODEL"
        )
