"""Artifact + panel → `Forecast`.

What comes in: a saved model and a table of the same columns. What goes out: quantiles at any cutoff of
any series. Promised: nothing after the cutoff but what is known in advance changes a forecast; the
order of series does not; neither Lightning nor MLflow nor Optuna is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forecaster.errors import ConfigError, DataError
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast, joined
from forecaster.model.paths import Outlook
from forecaster.model.scaling import Scale
from forecaster.model.threads import cores, side_by_side
from forecaster.panel.arrays import blocks
from forecaster.panel.audit import check_panel
from forecaster.panel.findings import refuse_errors
from forecaster.panel.panel import MISSING, NO_TIME, Panel
from forecaster.windows.index import Int64
from forecaster.windows.store import WindowStore

BLOCK = 1024
"""Series that are forecast together: what a network says of a series depends, in its last bits, on how
many it is shown with, and they are shown in batches that never cross a block."""


@dataclass(frozen=True)
class ForecastWindow:
    """What is asked of every series alike: of one block as of another."""

    horizon: int
    """Leads wanted."""
    cutoff: int | None
    """Time that all are forecast from; None = each from its own last observed target."""
    latest: int
    """Time that the rows of a series without any target follow."""
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
    """Returns what is asked of every series of a panel.

    Args:
        artifact: the model.
        panel: all series.
        cutoff: "own" = each series from its last observed target; "last" = all from the latest of
            these; or a date, for all.
        horizon: leads; None = as trained.
        num_samples: sample paths to keep; None = none.
        seed: of the sample paths.

    Raises:
        ConfigError: the model cannot reach that far, or has no paths.
        DataError: the date cannot be read.
    """
    wanted = artifact.horizon if horizon is None else horizon
    check_horizon(artifact, wanted)
    _check_samples(artifact, num_samples)
    if cutoff not in ("own", "last"):
        time = panel.calendar.parse(cutoff)
        return ForecastWindow(wanted, time, time, num_samples, seed)
    own = _own_cutoffs(panel)
    located = own != NO_TIME
    latest = int(own[located].max() if located.any() else panel.time.max())
    return ForecastWindow(
        wanted, None if cutoff == "own" else int(own.max()), latest, num_samples, seed
    )


def _own_cutoffs(panel: Panel) -> Int64:
    last = panel.last_observed
    return np.where(last >= 0, panel.time[last], NO_TIME)


@dataclass(frozen=True)
class LeadRows:
    """Where the leads of every series of a panel lie."""

    panel: Panel
    """With the horizon's rows after every cutoff."""
    at: Int64
    """[series] row of the cutoff; the row before its first for a series that begins later."""
    rows: Int64
    """[series, H] row of each lead; -1 where a series has not begun."""
    time: Int64
    """[series, H] time of each lead."""
    usable: NDArray[np.bool_]
    """[series] whether there is something to forecast from."""
    reasons: NDArray[np.str_]
    """[series] why there is not."""


def locate_leads(panel: Panel, window: ForecastWindow, length: int, horizon: int) -> LeadRows:
    """Returns where the leads of every series of a panel lie.

    Args:
        panel: all series of a table, or some.
        window: settled over all.
        length: rows that a forecast looks back.
        horizon: leads, which may be more than the window wants.
    """
    times = window.cutoffs(panel)
    # A series without a cutoff still gets rows in the output; their times follow the latest one.
    cutoff = np.where(times == NO_TIME, window.latest, times)
    panel = panel.reaching(cutoff, horizon)
    lead = np.arange(1, horizon + 1)
    last = panel.row_at(cutoff)
    at = np.where(last < 0, panel.indptr[:-1] - 1, last)
    rows = at[:, None] + lead
    unbegun = np.flatnonzero(last < 0)
    time = panel.time[np.minimum(rows, panel.n_rows - 1)]
    if len(unbegun):
        time[unbegun] = panel.calendar.shift(cutoff[unbegun, None], lead)
        for step in range(horizon):
            wanted = cutoff.copy()
            wanted[unbegun] = time[unbegun, step]
            found = panel.row_at(wanted)[unbegun]
            rows[unbegun, step] = np.where(panel.time[found] == wanted[unbegun], found, -1)
    return LeadRows(panel, at, rows, time, *_usable(panel, at, length))


def check_known(panel: Panel, artifact: Artifact, window: ForecastWindow) -> None:
    """Refuses a future whose known covariates are not all given, where there is a forecast.

    Raises:
        DataError: naming the first that is missing, and how many series lack some.
    """
    schema, lacking = panel.schema, dict.fromkeys(panel.schema.known, 0)
    if not schema.known:
        return
    named: dict[str, str] = {}
    for start in range(0, panel.n_series, BLOCK):
        part = panel.between(start, min(start + BLOCK, panel.n_series))
        # A shorter forecast is the beginning of the trained one: the last patch is read whole.
        leads = locate_leads(
            part, window, artifact.context_length, max(window.horizon, artifact.horizon)
        )
        rows = leads.rows[:, : window.horizon]
        for name in schema.known:
            if name in schema.categorical:
                empty = leads.panel.codes[rows, schema.code_columns.index(name)] == MISSING
            else:
                empty = np.isnan(leads.panel.values[rows, schema.columns.index(name)])
            missing = empty & leads.usable[:, None]
            lacking[name] += int(missing.any(axis=1).sum())
            if missing.any() and name not in named:
                series, lead = np.argwhere(missing)[0]
                time = panel.calendar.text(int(leads.time[series, lead]))
                named[name] = f"series {part.labels[series]} at {time} (lead {lead + 1}"
    for name in [name for name in schema.known if name in named]:
        raise DataError(
            f"{panel.name}: '{name}' is known in advance, but has no value for {named[name]} of "
            f"{window.horizon}); {lacking[name]} of {panel.n_series} series lack some: give them with "
            "--future FILE, or shorten --horizon"
        )


def _usable(panel: Panel, at: Int64, length: int) -> tuple[NDArray[np.bool_], NDArray[np.str_]]:
    first, last = panel.first_observed, panel.last_observed
    ever = (first >= 0) & (first <= at)
    begin = np.maximum(panel.indptr[:-1], at - length + 1)
    usable = ever & (last >= begin)
    # A series that goes on after its cutoff may have been silent before it.
    unsure = np.flatnonzero(usable & (last > at))
    for part in blocks(len(unsure), length * panel.n_channels):
        series = unsure[part]
        rows = np.maximum(at[series, None] - np.arange(length), begin[series, None])
        seen = panel.values[rows, : panel.n_channels]
        usable[series] = (seen == seen).any(axis=(1, 2))
    reasons = np.where(
        ever,
        f"no target observed in the {length} steps before the cutoff",
        "no target observed before the cutoff",
    )
    return usable, reasons


def check_horizon(artifact: Artifact, wanted: int) -> None:
    """Refuses a horizon that the model was not made for.

    Raises:
        ConfigError: the model cannot reach that far.
    """
    trained, model = artifact.horizon, artifact.config.model
    if model.decoder != "autoregressive" and not 1 <= wanted <= trained:
        raise ConfigError(
            f"horizon {wanted}: this model forecasts 1 to {trained} steps; "
            f"fit one with --horizon {wanted} to reach further, or with model.decoder autoregressive"
        )
    if wanted < 1:
        raise ConfigError(f"horizon {wanted}: expected 1 or more steps")
    for member in artifact.ensemble.members:
        covered = member.longest_horizon
        if covered is not None and wanted > covered:  # type: ignore[operator]
            raise ConfigError(
                f"horizon {wanted}: the learned positions of this model cover {covered} steps; fit one "
                f"with --horizon {wanted}, or with other model.positions, to reach further"
            )


def _check_samples(artifact: Artifact, num_samples: int | None) -> None:
    """Refuses paths of a model that has none."""
    if num_samples is None:
        return
    if num_samples < 1:
        raise ConfigError(f"samples {num_samples}: expected 1 or more paths")
    if artifact.config.model.decoder != "autoregressive":
        raise ConfigError(
            f"samples {num_samples}: this model's decoder is direct: it says how each lead is "
            "distributed by itself, not how leads go together; fit one with "
            "--set model.decoder=autoregressive to draw paths"
        )


_BATCH = 256  # channel-windows per pass: large enough to be fast, small enough for the cache
_CELLS = 1 << 18  # of all channel-windows of a pass together: long contexts go in smaller passes
_PATHS = 8192  # of all channel-windows of a pass together

_BETWEEN = "\x1f"  # the unit separator: no key holds it

Progress = Callable[[int, int], None]
"""Called with (series done, series wanted)."""


class Predictor:
    """Forecasts with one artifact."""

    def __init__(self, artifact: Artifact, device: str = "cpu", lanes: int | None = None):
        """Takes a model to a device.

        Args:
            artifact: the model.
            device: as torch names it.
            lanes: batches that are worked on at a time; None = as many as there are cores. It changes
                no forecast.
        """
        self.artifact = artifact
        self._device = device
        self._lanes = lanes or (cores() if device == "cpu" else 1)
        self._ensemble = artifact.ensemble.eval().to(device)

    def predict(
        self,
        panel: Panel,
        cutoff: str = "own",
        horizon: int | None = None,
        progress: Progress | None = None,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> Forecast:
        """Returns the forecast of every series of a panel.

        Args:
            panel: opened with the artifact's schema.
            cutoff: "own" = each series from its own last observed target; "last" = all from the
                latest of these; or a date.
            horizon: leads wanted; fewer than the trained ones are an exact prefix, more need an
                autoregressive decoder.
            progress: told how far the work is.
            num_samples: sample paths to keep, which need an autoregressive decoder.
            seed: of the sample paths.

        Raises:
            ConfigError: the horizon is longer than the model can reach, or it cannot draw paths.
            DataError: the audit finds errors, or a covariate known in advance is missing after the
                cutoff.
        """
        window = resolve_window(self.artifact, panel, cutoff, horizon, num_samples, seed)
        found = check_panel(panel)
        refuse_errors(found)
        check_known(panel, self.artifact, window)
        forecasts, total = [], panel.n_series
        for start in range(0, total, BLOCK):
            stop = min(start + BLOCK, total)
            forecasts.append(self.forecast(panel.between(start, stop), window))
            if progress is not None:
                progress(stop, total)
        return replace(joined(panel, forecasts), findings=tuple(found))

    def forecast(self, panel: Panel, window: ForecastWindow) -> Forecast:
        """Returns the forecast of the series of a panel, which may be some neighbours of many.

        Args:
            panel: of at most `BLOCK` series, for the same bits wherever they are forecast.
            window: settled over all series.
        """
        horizon = max(window.horizon, self.artifact.horizon)
        leads = locate_leads(panel, window, self.artifact.context_length, horizon)
        forecast = self._forecast(leads, window)
        return replace(forecast, panel=panel)

    def forecast_at(self, panel: Panel, cutoff: int) -> Forecast:
        """Returns the forecast of every series at one past cutoff, with the truth that followed.

        Args:
            panel: with rows after the cutoff.
            cutoff: time of the last step that may be seen.
        """
        return self.forecasts_at(panel, [cutoff])[0]

    def forecasts_at(
        self,
        panel: Panel,
        cutoffs: Sequence[int],
        horizon: int | None = None,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> list[Forecast]:
        """Returns `forecast_at` of each of some past cutoffs, whose windows share batches.

        Args:
            panel: with rows after the cutoffs.
            cutoffs: times of the last steps that may be seen.
            horizon: leads wanted; None = as trained.
            num_samples: sample paths to keep; None = none.
        seed: of the sample paths.
        """
        wanted, length = horizon or self.artifact.horizon, self.artifact.context_length
        horizon = max(wanted, self.artifact.horizon)
        if panel.regular:  # the rows that the last cutoff needs serve all of them
            panel = panel.reaching(np.full(panel.n_series, max(cutoffs)), horizon)
        windows = [ForecastWindow(wanted, cutoff, cutoff, num_samples, seed) for cutoff in cutoffs]
        located = [locate_leads(panel, window, length, horizon) for window in windows]
        forecasts: list[Forecast] = []
        for _, group in groupby(located, key=lambda leads: id(leads.panel)):
            some = list(group)
            chosen = [np.flatnonzero(leads.usable) for leads in some]
            rows = [leads.at[series] for leads, series in zip(some, chosen, strict=True)]
            asked = np.concatenate(chosen), np.concatenate(rows)
            said = self._outlook(some[0].panel, *asked, horizon, num_samples, seed)
            ends = np.cumsum([len(series) for series in chosen])
            for leads, end, series in zip(some, ends, chosen, strict=True):
                own = slice(end - len(series), end)
                mean, paths = (None if part is None else part[own] for part in (said.mean, said.paths))
                part = Outlook(said.quantiles[own], mean, paths)
                window = windows[len(forecasts)]
                row = leads.rows[:, :wanted]
                truth = leads.panel.values[row, : panel.n_channels]
                truth = np.where(row[..., None] < 0, np.nan, truth)
                forecasts.append(
                    replace(self._placed(leads, window, chosen=series, said=part), actual=truth)
                )
        return forecasts

    def quantiles(
        self, panel: Panel, series: Int64, cutoff: Int64, leads: int | None = None
    ) -> NDArray[np.float32]:
        """Returns [N, H, C, Q] quantiles at given cutoffs, data units.

        Args:
            panel: every cutoff has the model's horizon in rows after it.
            series: [N] number of the series.
            cutoff: [N] row of the last step that may be seen.
            leads: the first so many alone; None = all.
        """
        horizon = self.artifact.horizon
        if leads is not None and self.artifact.config.model.decoder == "autoregressive":
            horizon = leads  # patch after patch: what is not wanted need not be drawn
        return self._outlook(panel, series, cutoff, horizon).quantiles.numpy()[:, :leads]

    def scales(self, panel: Panel, series: Int64, cutoff: Int64) -> Scale:
        """Returns the units that windows are scaled by, [N, C] each, on the processor.

        Args:
            panel, series, cutoff: as in `quantiles`.
        """
        store = self._store(panel, self.artifact.horizon)

        def one(start: int) -> Scale:
            part = slice(start, start + _BATCH)
            inputs = store.batch(series[part], None, cutoff[part]).inputs.to(self._device)
            return Scale(*(unit.cpu() for unit in self._ensemble.scale(inputs)))

        found = [one(start) for start in range(0, max(1, len(series)), _BATCH)]
        return Scale(*(torch.cat(units) for units in zip(*found, strict=True)))

    def _store(self, panel: Panel, horizon: int) -> WindowStore:
        codes = np.arange(1, panel.n_channels + 1)  # by place: a table may call its columns otherwise
        return WindowStore(panel, self.artifact.context_length, horizon, codes)

    def _outlook(
        self,
        panel: Panel,
        series: Int64,
        cutoff: Int64,
        horizon: int,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> Outlook:
        """What the ensemble says at given cutoffs; the paths of it only where they are to be kept."""
        model, channels = self.artifact.config.model, panel.n_channels
        store = self._store(panel, horizon)
        cells = channels * (self.artifact.context_length + horizon)
        size, keys = max(1, min(_BATCH // channels, _CELLS // cells)), None
        if model.decoder == "autoregressive":
            size = max(1, _PATHS // (channels * (num_samples or model.paths)))
            keys = torch.from_numpy(path_keys(panel, series, panel.time[cutoff], seed))

        def say(start: int) -> Outlook:
            part = slice(start, start + size)
            inputs = store.batch(series[part], None, cutoff[part]).inputs.to(self._device)
            key = None if keys is None else keys[part].to(self._device)
            said = self._ensemble.outlook(inputs, key, num_samples)
            kept = said if num_samples else said._replace(paths=None)
            return Outlook(*(own if own is None else own.cpu() for own in kept))  # type: ignore[arg-type]

        found = list(side_by_side(say, range(0, len(series), size), self._lanes))
        if not found:
            return Outlook(torch.empty(0, horizon, channels, len(model.quantile_levels)), None, None)
        quantiles, mean, paths = (
            # By numpy: torch would wake threads for this, and on a busy machine wait for them.
            None if part[0] is None else torch.from_numpy(np.concatenate([*map(np.asarray, part)]))
            for part in zip(*found, strict=True)
        )
        assert quantiles is not None
        return Outlook(quantiles, mean, paths)

    def _forecast(self, leads: LeadRows, window: ForecastWindow) -> Forecast:
        chosen = np.flatnonzero(leads.usable)
        farthest = leads.rows.shape[1]
        said = self._outlook(
            leads.panel, chosen, leads.at[chosen], farthest, window.num_samples, window.seed
        )
        return self._placed(leads, window, chosen, said)

    def _placed(
        self, leads: LeadRows, window: ForecastWindow, chosen: Int64, said: Outlook
    ) -> Forecast:
        """Returns what was said of chosen series as the forecast of all of them."""
        panel, horizon = leads.panel, window.horizon
        finite = np.zeros(panel.n_series, dtype=np.bool_)
        finite[chosen] = np.isfinite(said.quantiles.numpy()).all(axis=(1, 2, 3))

        def spread(part: Tensor | None) -> NDArray[np.float32] | None:
            """[usable, …] → [series, …], NaN where there is no forecast."""
            if part is None:
                return None
            whole = np.full((panel.n_series, *part.shape[1:]), np.nan, dtype=np.float32)
            whole[chosen] = part.numpy()
            whole[~finite] = np.nan
            return whole

        quantiles, mean, paths = (spread(part) for part in said)
        assert quantiles is not None
        broken = "the forecast is not finite: values beyond float32"
        reasons = np.where(leads.usable, broken, leads.reasons)
        return Forecast(
            panel=panel,
            series=np.arange(panel.n_series),
            cutoff=window.cutoffs(panel),
            time=leads.time[:, :horizon],
            quantiles=quantiles[:, :horizon],
            levels=self.artifact.config.model.quantile_levels,
            status=tuple(np.where(finite, "ok", reasons).tolist()),
            mean=None if mean is None else mean[:, :horizon],
            paths=None if paths is None else paths[:, :, :horizon],
        )


def path_keys(panel: Panel, series: Int64, cutoff: Int64, seed: int) -> Int64:
    """Returns [N] what the paths of each window are drawn by: a hash of seed, series and cutoff.

    Args:
        panel: for the names of series; a single series without a name has none, whatever its file's.
        series: [N] number of each window's series.
        cutoff: [N] time of the last step it may see.
        seed: any whole number.
    """
    names = [_BETWEEN.join(str(part) for part in row) for row in panel.keys.rows()] or [""]
    windows = zip(series.tolist(), cutoff.tolist(), strict=True)
    hashes = [
        blake2b(f"{seed}{_BETWEEN}{time}{_BETWEEN}{names[number]}".encode(), digest_size=8).digest()
        for number, time in windows
    ]
    return np.frombuffer(b"".join(hashes), dtype="<i8").astype(np.int64)
