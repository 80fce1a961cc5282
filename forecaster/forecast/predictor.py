"""Artifact + panel → `Forecast`: places the horizon, runs the ensemble in batches, keys the result.

Neither Lightning nor MLflow nor Optuna is loaded. The order of series changes no forecast, and
nothing after the cutoff but known covariates does.

Axes: N window · H lead · C channel · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forecaster.errors import ConfigError, DataError, check_count, is_count
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import COLD, Forecast, joined, none_forecast
from forecaster.forecast.model_folder import check_leads
from forecaster.model.hardware import cores, device, run_parallel
from forecaster.model.sampling import NUM_SAMPLES, Prediction
from forecaster.model.scaling import Scale
from forecaster.model.size import check_work
from forecaster.panel.arrays import blocks
from forecaster.panel.audit import check_panel
from forecaster.panel.findings import Finding, listing, refuse_errors, worst_first
from forecaster.panel.panel import MISSING, NO_TIME, Only, Panel
from forecaster.windows.batch import Inputs
from forecaster.windows.index import Int64
from forecaster.windows.store import WindowStore

BLOCK = 1024
"""Series that are forecast together. The last bits of a forecast depend on the size of its batch, and
batches never cross a block: so shards and processes give the same bits."""
_BATCH = 256  # channel-windows per batch: large enough to be fast, small enough for the cache
_CELLS = 1 << 18  # cells of a batch: long contexts go in smaller batches
_PATHS = 8192  # sample paths of a batch
_BETWEEN = "\x1f"  # the unit separator: no key holds it

Progress = Callable[[int, int], None]
"""Called with (series done, series in all)."""


@dataclass(frozen=True)
class ForecastWindow:
    """Horizon and cutoff of a forecast, resolved once over all series."""

    horizon: int
    """Leads wanted."""
    cutoff: int | None
    """Time of the cutoff of all series; None = each its own last observed target."""
    latest: int
    """Cutoff in the output of a series without any target."""
    num_samples: int | None = None
    """Sample paths to keep, and to take quantiles from; None = keep none."""
    seed: int = 0
    """Of the sample paths."""

    def cutoffs(self, panel: Panel) -> Int64:
        """Returns int64 [series] time of each cutoff; NO_TIME = a series without an observed target."""
        if self.cutoff is not None:
            return np.full(panel.n_series, self.cutoff, dtype=np.int64)
        return _own_cutoffs(panel)


def resolve_window(
    artifact: Artifact,
    panel: Panel,
    cutoff: str,
    horizon: int | None,
    num_samples: int | None = None,
    seed: int = 0,
) -> ForecastWindow:
    """Returns the window of a forecast of all series of a panel; arguments as `Predictor.predict`.

    Raises:
        ConfigError: the horizon is too long for the model, or it draws no paths.
        DataError: the date cannot be read.
    """
    wanted = artifact.horizon if horizon is None else horizon
    _check_samples(artifact, num_samples)
    check_horizon(artifact, wanted, num_samples)
    if not is_count(seed, least=0):
        raise ConfigError(f"seed {seed!r}: expected 0 or more")
    time = panel.cutoff_at(cutoff)
    if time is not None:
        return ForecastWindow(wanted, time, time, num_samples, seed)
    own = _own_cutoffs(panel)
    located = own != NO_TIME
    latest = int(own[located].max()) if located.any() else artifact.trained_until
    common = None if cutoff == "own" else latest
    return ForecastWindow(wanted, common, latest, num_samples, seed)


def check_horizon(artifact: Artifact, wanted: int, num_samples: int | None = None) -> None:
    """Refuses a horizon that the model cannot forecast.

    Raises:
        ConfigError: it is too long, no step at all, or takes hours.
    """
    model = artifact.plan.model
    check_leads(artifact.plan, wanted)
    check_count(wanted, "horizon", " steps")
    check_work(model, wanted, len(artifact.ensemble.members), num_samples)
    for member in artifact.ensemble.networks:
        covered = member.longest_horizon
        if covered is not None and wanted > covered:
            raise ConfigError(
                f"horizon {wanted}: the learned positions of this model cover {covered} steps; fit one "
                f"with --horizon {wanted}, or with other model.positions, to reach further"
            )


def _check_samples(artifact: Artifact, wanted: int | None) -> None:
    if wanted is None:
        return
    check_count(wanted, "samples", " paths")
    if artifact.plan.model.decoder != "autoregressive":
        raise ConfigError(
            f"samples {wanted}: this model's decoder is direct: it forecasts the distribution of each "
            "lead, not of the leads together; fit one with --set model.decoder=autoregressive to draw "
            "paths"
        )


def _wanted(
    panel: Panel, artifact: Artifact, window: ForecastWindow, only: Only
) -> tuple[Panel, list[Finding]]:
    """Returns the panel of the series to forecast, and a warning on new ones that cannot begin.

    A series that only the future table has needs every known covariate over the horizon: the name may be
    a typing error, whose few rows are no series.

    Raises:
        DataError: there is no such series, or it cannot begin.
    """
    new = np.arange(panel.n_series - panel.n_new, panel.n_series)
    if not len(new):
        return panel.only(only), []
    begun = _locate_leads(panel.some(new), artifact, window).cold
    names = [panel.labels[number] for number in new[~begun]]
    if not names:
        return panel.only(only), []
    text = (
        f"{len(names):,} of {len(new):,} new series cannot begin, and are left out: {listing(names, 5)}"
    )
    advice = f"give every known covariate of the {window.horizon} steps after the table's last target"
    if not artifact.ensemble.forecasts_cold:
        advice = "this model knows no level of new series: fit one to five series or more, with experts"
    left = Finding("warning", "keys", text, advice, names[0], count=len(names))
    if only is not None and {*panel.numbers(only)} & {*new[~begun]}:
        raise DataError(f"{text}; {advice}", [left])
    return panel.some(np.append(np.arange(new[0]), new[begun])).only(only), [left]


def audited(
    panel: Panel, artifact: Artifact, window: ForecastWindow, only: Only = None
) -> tuple[Panel, list[Finding]]:
    """Returns the panel of the series to forecast, and findings; one where the model has seen what is forecast.

    Raises:
        DataError: the audit finds errors, there is no such series, or a covariate known in advance is missing
            after the cutoff.
    """
    panel, left = _wanted(panel, artifact, window, only)
    found = [*left, *check_panel(panel, target=artifact.plan.target)]
    if artifact.ensemble.forecasts_cold and panel.schema.time is not None:
        found = [replace(one, severity="warning") if one.rule == "unobserved" else one for one in found]
    refuse_errors(found)
    found += _check_known(panel, artifact, window)
    # Without times rows are numbered from the end of each table: nothing can be compared.
    cutoff, seen, text = window.cutoff, artifact.trained_until, panel.calendar.text
    if cutoff is not None and cutoff < seen and panel.schema.time is not None:
        line = f"the model was trained until {text(seen)}: it has seen what follows {text(cutoff)}"
        advice = "score it with forecaster backtest, which fits again on the rows before"
        found.append(Finding("warning", "in-sample", line, advice, where=text(cutoff)))
    return panel, worst_first(found)


def _check_known(panel: Panel, artifact: Artifact, window: ForecastWindow) -> list[Finding]:
    """Refuses a future whose known covariates are not all given, where there is a forecast.

    Returns a finding where the horizon patch in which the forecast ends reads steps that are not given.

    Raises:
        DataError: names the first that is missing, and how many series lack some.
    """
    schema, model = panel.schema, artifact.plan.model
    names = (*schema.known_numeric, *schema.known_category)
    first: dict[str, str] = {}
    lacking, held = np.zeros(len(names), np.int64), np.zeros(len(names), np.bool_)
    patch, horizon = model.decoder_patch, window.horizon
    read = artifact.horizon if model.decoder_mask == "full" else -(-horizon // patch) * patch
    for start in range(0, panel.n_series if names else 0, BLOCK):
        part = panel.between(start, min(start + BLOCK, panel.n_series))
        leads = _locate_leads(part, artifact, window)
        usable = leads.usable.any(axis=1)
        empty = _unknown(leads.panel, leads.rows[usable, :read])
        held |= empty[:, horizon:].any(axis=(0, 1))
        empty = empty[:, :horizon]
        lacking += empty.any(axis=1).sum(axis=0)
        for place in np.flatnonzero(empty.any(axis=(0, 1))):
            series, lead = np.argwhere(empty[..., place])[0]
            number = np.flatnonzero(usable)[series]
            time = panel.calendar.text(int(leads.time[number, lead]))
            first.setdefault(names[place], f"series {part.labels[number]} at {time} (lead {lead + 1}")
    for name in schema.known:
        if name in first:
            raise DataError(
                f"{panel.name}: '{name}' is known in advance, but has no value for {first[name]} of "
                f"{horizon}); {lacking[names.index(name)]} of {panel.n_series} series lack some: give "
                "them with --future FILE, or shorten --horizon"
            )
    if not held.any():
        return []
    text = f"--horizon {horizon} reads {read} steps of what is known in advance, and not all are given"
    advice = "the values at the last lead stand for the rest: give all steps with --future FILE"
    where = listing([name for name, one in zip(names, held, strict=True) if one])
    return [Finding("warning", "held", text, advice, where=where, count=int(held.sum()))]


def _unknown(panel: Panel, rows: Int64) -> NDArray[np.bool_]:
    """[series, H, known] whether a known covariate, the numbers first, has no value in rows [series, H]."""
    schema, at = panel.schema, rows[..., None]
    numbers = np.array([schema.columns.index(name) for name in schema.known_numeric], np.int64)
    codes = np.array([schema.code_columns.index(name) for name in schema.known_category], np.int64)
    empty = np.isnan(panel.values[at, numbers]), panel.codes[at, codes] == MISSING
    lacks = panel.lacks((*schema.known_numeric, *schema.known_category))
    return np.concatenate(empty, axis=-1) & ~lacks[panel.series_at(rows)]


@dataclass(frozen=True)
class _Leads:
    """Rows and times of the leads of every series of a panel."""

    panel: Panel  # with the horizon's rows after every cutoff
    cutoff: Int64  # [series] row; the row before the first for a series that begins later
    rows: Int64  # [series, H]; -1 where a series has not begun
    time: Int64  # [series, H]
    usable: NDArray[np.bool_]  # [series, C] whether there is something to forecast from
    reasons: NDArray[np.str_]  # [series, C] why there is not
    cold: NDArray[np.bool_]  # [series] usable without any history

    @property
    def chosen(self) -> Int64:
        """Numbers of the series with a channel to forecast."""
        return np.flatnonzero(self.usable.any(axis=1))


def _own_cutoffs(panel: Panel) -> Int64:
    last = panel.last_observed
    return np.where(last >= 0, panel.time[last], NO_TIME)


def _locate_leads(panel: Panel, artifact: Artifact, window: ForecastWindow) -> _Leads:
    horizon = max(window.horizon, artifact.horizon)
    times = window.cutoffs(panel)
    # A series without a cutoff still gets rows in the output; their times follow the latest one.
    cutoff = np.where(times == NO_TIME, window.latest, times)
    panel = panel.reaching(cutoff, horizon)
    lead = np.arange(1, horizon + 1)
    last = panel.row_at(cutoff)
    at = np.where(last < 0, panel.indptr[:-1] - 1, last)
    rows = at[:, None] + lead
    time = panel.time[np.minimum(rows, panel.n_rows - 1)]
    unbegun = np.flatnonzero(last < 0)
    if len(unbegun):
        time[unbegun] = panel.calendar.shift(cutoff[unbegun, None], lead)
        for step in range(horizon):
            found = panel.row_at(time[:, step])[unbegun]
            rows[unbegun, step] = np.where(panel.time[found] == time[unbegun, step], found, -1)
    usable, reasons = _usable(panel, at, artifact.context_length)
    first = panel.first_observed
    cold = ((first < 0) | (first > at)) & (rows >= 0).all(axis=1) & artifact.ensemble.forecasts_cold
    cold &= panel.regular | (last >= 0)
    number = np.flatnonzero(cold)
    cold[number] = ~_unknown(panel, rows[number, : window.horizon]).any(axis=(1, 2))
    return _Leads(panel, at, rows, time, usable | cold[:, None], reasons, cold)


def _usable(panel: Panel, at: Int64, length: int) -> tuple[NDArray[np.bool_], NDArray[np.str_]]:
    first, last, channels = panel.first_observed, panel.last_observed, panel.n_channels
    begun = (first >= 0) & (first <= at)
    begin = np.maximum(panel.indptr[:-1], at - length + 1)
    usable = np.repeat((begun & (last >= begin))[:, None], channels, axis=1)
    ever = np.repeat(begun[:, None], channels, axis=1)
    # A series that goes on after its cutoff may have no observation in the context, a channel anywhere.
    unsure = np.flatnonzero(usable[:, 0] & ((last > at) | (channels > 1)))
    for part in blocks(len(unsure), length * channels):
        series = unsure[part]
        rows = np.maximum(at[series, None] - np.arange(length), begin[series, None])
        seen = panel.values[rows, :channels]
        usable[series] = (seen == seen).any(axis=1)
    for number in np.flatnonzero(begun & ~usable.all(axis=1)) if channels > 1 else ():
        past = panel.values[panel.indptr[number] : at[number] + 1, :channels]
        ever[number] = (past == past).any(axis=0)
    reasons = np.where(
        ever,
        f"no target observed in the {length} steps before the cutoff",
        "no target observed before the cutoff",
    )
    return usable, reasons


class Predictor:
    """Forecasts with one artifact."""

    def __init__(self, artifact: Artifact, on: str | None = None, lanes: int | None = None):
        """Moves the model to a device, None = a GPU if there is one; `lanes` = batches in parallel."""
        self.artifact = artifact
        self._device = on or device()
        self._lanes = lanes or (cores() if self._device == "cpu" else 1)
        # A copy: what is saved and exported stays on the processor.
        own = artifact.ensemble if self._device == "cpu" else deepcopy(artifact.ensemble)
        self._ensemble = own.eval().to(self._device)

    def predict(
        self,
        panel: Panel,
        cutoff: str = "own",
        horizon: int | None = None,
        progress: Progress | None = None,
        num_samples: int | None = None,
        seed: int = 0,
        only: Only = None,
    ) -> Forecast:
        """Returns the forecast of every series of a panel, or of some.

        Args:
            panel: opened with the artifact's schema.
            cutoff: "own" = each series from its own last observed target; "last" = all from the
                latest of these; or a date.
            horizon: leads; None = as trained. Fewer are an exact prefix, more need an autoregressive
                decoder.
            progress: called after each block of series.
            num_samples: sample paths to keep, which need an autoregressive decoder.
            seed: of the sample paths.
            only: labels of the series to forecast.

        Raises:
            ConfigError: the horizon is too long for the model, or it draws no paths.
            DataError: the audit finds errors, or a covariate known in advance is missing after the
                cutoff.
        """
        window = resolve_window(self.artifact, panel, cutoff, horizon, num_samples, seed)
        panel, found = audited(panel, self.artifact, window, only)
        forecasts, total = [], panel.n_series
        for start in range(0, total, BLOCK):
            stop = min(start + BLOCK, total)
            forecasts.append(self.forecast(panel.between(start, stop), window))
            if progress is not None:
                progress(stop, total)
        forecast = joined(panel, forecasts)
        if error := none_forecast(panel, forecast.lost, sum(map(bool, forecast.status))):
            raise error
        return replace(forecast, findings=tuple(found))

    def forecast(self, panel: Panel, window: ForecastWindow) -> Forecast:
        """Returns the forecast of at most `BLOCK` neighbouring series, with a window of all series."""
        ((_, forecast),) = self._forecasts(panel, [window])
        return replace(forecast, panel=panel)

    def inputs(self, panel: Panel, cutoff: str = "own") -> tuple[list[str], Inputs]:
        """Returns the labels of the series that can be forecast, and what the network reads of each.

        Args:
            panel: opened with the artifact's schema.
            cutoff: as in `predict`.

        Raises:
            DataError: a covariate known in advance is missing after the cutoff.
        """
        window = resolve_window(self.artifact, panel, cutoff, None)
        panel, _ = audited(panel, self.artifact, window)
        leads = _locate_leads(panel, self.artifact, window)
        chosen = leads.chosen
        store = WindowStore(leads.panel, self.artifact.plan.model, self.artifact.horizon)
        batch = store.batch(chosen, None, leads.cutoff[chosen])
        return [panel.labels[number] for number in chosen], batch.inputs

    def forecast_at(self, panel: Panel, cutoff: int) -> Forecast:
        """Returns the forecast of every series at one past cutoff (a time), with the truth."""
        return self.forecasts_at(panel, [cutoff])[0]

    def forecasts_at(
        self,
        panel: Panel,
        cutoffs: Sequence[int],
        horizon: int | None = None,
        num_samples: int | None = None,
    ) -> list[Forecast]:
        """Returns `forecast_at` of each of some past cutoffs, whose windows share batches."""
        wanted = horizon or self.artifact.horizon
        if panel.regular:  # the rows that the last cutoff needs serve all of them
            farthest = max(wanted, self.artifact.horizon)
            panel = panel.reaching(np.full(panel.n_series, max(cutoffs)), farthest)
        windows = [ForecastWindow(wanted, cutoff, cutoff, num_samples) for cutoff in cutoffs]
        forecasts = []
        for leads, forecast in self._forecasts(panel, windows):
            row = leads.rows[:, :wanted]
            truth = leads.panel.values[row, : panel.n_channels]
            forecasts.append(replace(forecast, actual=np.where(row[..., None] < 0, np.nan, truth)))
        return forecasts

    def _forecasts(
        self, panel: Panel, windows: Sequence[ForecastWindow]
    ) -> Iterator[tuple[_Leads, Forecast]]:
        """Yields the forecast of each window; those of one panel, alike but for the cutoff, share batches."""
        located = [(_locate_leads(panel, self.artifact, window), window) for window in windows]
        for _, group in groupby(located, key=lambda pair: id(pair[0].panel)):
            some = list(group)
            rows = np.concatenate([leads.cutoff[leads.chosen] for leads, _ in some])
            series = np.concatenate([leads.chosen for leads, _ in some])
            first, window = some[0]
            predicted = self._predict(first.panel, series, rows, first.rows.shape[1], window)
            begin = 0
            for leads, window in some:
                own = slice(begin, begin := begin + len(leads.chosen))
                part = Prediction(*(None if part is None else part[own] for part in predicted))  # type: ignore[arg-type]
                yield leads, self._keyed(leads, window, part)

    def quantiles(
        self, panel: Panel, series: Int64, cutoff: Int64, leads: int | None = None
    ) -> NDArray[np.float64]:
        """Returns [N, H, C, Q] quantiles at given cutoffs, data units.

        Args:
            panel: every cutoff has the model's horizon in rows after it.
            series: [N] number of the series.
            cutoff: [N] row of the last step that may be seen.
            leads: the first so many alone; None = all.
        """
        horizon = self.artifact.horizon
        window = ForecastWindow(leads or horizon, None, 0)
        if self.artifact.plan.model.decoder == "autoregressive":
            horizon = window.horizon  # patch after patch: what is not wanted need not be drawn
        predicted = self._predict(panel, series, cutoff, horizon, window)
        return predicted.quantiles.numpy()[:, :leads]

    def scales(self, panel: Panel, series: Int64, cutoff: Int64) -> Scale:
        """Returns location and scale of windows, [N, C] each, on the CPU; arguments as `quantiles`."""
        store = WindowStore(panel, self.artifact.plan.model, self.artifact.horizon)

        def of_batch(start: int) -> Scale:
            part = slice(start, start + _BATCH)
            inputs = store.batch(series[part], None, cutoff[part]).inputs.to(self._device)
            return Scale(*(unit.cpu() for unit in self._ensemble.scale(inputs)))

        found = [of_batch(start) for start in range(0, max(1, len(series)), _BATCH)]
        return Scale(*(torch.cat(units) for units in zip(*found, strict=True)))

    def _predict(
        self, panel: Panel, series: Int64, cutoff: Int64, horizon: int, window: ForecastWindow
    ) -> Prediction:
        """Runs the ensemble at given cutoffs, batch by batch, over a horizon; the window may be shorter."""
        model, channels, num_samples = self.artifact.plan.model, panel.n_channels, window.num_samples
        store = WindowStore(panel, model, horizon)
        cells = channels * (model.context_length + horizon + model.pool.history_length)
        size, keys = max(1, min(_BATCH // channels, _CELLS // cells)), None
        if model.decoder == "autoregressive":
            size = max(1, _PATHS // (channels * (num_samples or NUM_SAMPLES)))
            keys = torch.from_numpy(path_keys(panel, series, panel.time[cutoff], window.seed))

        def of_batch(start: int) -> Prediction:
            part = slice(start, start + size)
            batch = store.batch(series[part], None, cutoff[part], window.horizon)
            inputs = batch.inputs.to(self._device)
            key = None if keys is None else keys[part].to(self._device)
            predicted = self._ensemble.predict(inputs, key, num_samples)
            kept = predicted if num_samples else predicted._replace(paths=None)
            return Prediction(*(own if own is None else own.cpu() for own in kept))  # type: ignore[arg-type]

        # At least one batch: an empty one still says whether the model has a mean.
        found = run_parallel(of_batch, range(0, max(1, len(series)), size), self._lanes)
        quantiles, mean, paths = (
            # By numpy: torch would wake threads for this, and on a busy machine wait for them.
            None if part[0] is None else torch.from_numpy(np.concatenate([*map(np.asarray, part)]))
            for part in zip(*found, strict=True)
        )
        assert quantiles is not None
        return Prediction(quantiles, mean, paths)

    def _keyed(self, leads: _Leads, window: ForecastWindow, predicted: Prediction) -> Forecast:
        """Returns the prediction of chosen series as the forecast of all of them."""
        panel, horizon, chosen = leads.panel, window.horizon, leads.chosen
        found = predicted.quantiles.numpy()
        finite = np.zeros((panel.n_series, panel.n_channels), dtype=np.bool_)
        finite[chosen] = np.isfinite(found).all(axis=(1, 3))
        finite &= leads.usable
        width = found[..., -1] - found[..., 0]

        def spread(
            part: Tensor | None, axis: int, band: NDArray[np.float64]
        ) -> NDArray[np.float64] | None:
            """[chosen, …] → [series, …], NaN where there is no forecast; `axis` of the channels."""
            if part is None:
                return None
            whole = np.full((panel.n_series, *part.shape[1:]), np.nan)
            short = torch.from_numpy(_rounded(part.numpy(), band))
            whole[chosen] = self._ensemble.bounded(short).numpy()
            np.moveaxis(whole, axis, 1)[~finite] = np.nan
            return whole

        quantiles = spread(predicted.quantiles, 2, width[..., None])
        mean = spread(predicted.mean, 2, width)
        paths = spread(predicted.paths, 3, width[:, None])
        assert quantiles is not None
        done = np.where(leads.cold[:, None], COLD, "ok")
        cutoff = window.cutoffs(panel)
        reasons = np.where(leads.usable, "the forecast is not finite", leads.reasons)
        return Forecast(
            panel=panel,
            series=np.arange(panel.n_series),
            cutoff=np.where(leads.cold & (cutoff == NO_TIME), window.latest, cutoff),
            time=leads.time[:, :horizon],
            quantiles=quantiles[:, :horizon],
            levels=self.artifact.plan.model.quantile_levels,
            status=tuple(np.where(panel.present, np.where(finite, done, reasons), "").ravel().tolist()),
            mean=None if mean is None else mean[:, :horizon],
            paths=None if paths is None else paths[:, :, :horizon],
        )


def _rounded(cells: NDArray[np.float64], width: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns numbers without decimals below a ten-millionth of their band: networks compute no more."""
    with np.errstate(divide="ignore"):
        digits = np.ceil(7 - np.log10(width))
    sensible = np.abs(digits) < 40
    unit = 10.0 ** np.where(sensible, digits, 0)
    return np.where(sensible, np.round(cells * unit) / unit, cells)


def path_keys(panel: Panel, series: Int64, cutoff: Int64, seed: int) -> Int64:
    """Returns [N] random keys of sample paths: a hash of seed, series and cutoff.

    So paths are the same on every machine and beside whatever other windows. A single series without a
    key has no name in it, whatever its file's is.
    """
    names = [_BETWEEN.join(str(part) for part in row) for row in panel.keys.rows()] or [""]
    windows = zip(series.tolist(), cutoff.tolist(), strict=True)
    hashes = [
        blake2b(f"{seed}{_BETWEEN}{time}{_BETWEEN}{names[number]}".encode(), digest_size=8).digest()
        for number, time in windows
    ]
    return np.frombuffer(b"".join(hashes), dtype="<i8").astype(np.int64)
