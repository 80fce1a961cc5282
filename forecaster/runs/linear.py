"""The linear forecast solved in closed form, and the choice of what it reads.

    (Σ w·x·xᵀ + α·N·I) · map = Σ w·x·y

x holds the features of a window (`model/experts.py`), y its targets less the level taken away, both in
scaled units; w is below 1 where a target lies more than ten spreads from its context; N is Σ w over the
longest training span, so that shorter spans are shrunk as much. The sums are streamed over blocks of
windows. They are kept per quarter of the training time, so that every residual is that of a map solved
without its quarter: residuals of windows in the solution gave 80 % bands that held 70 %.

Axes: B batch · R row, a channel of a window · E number that all maps read · P place in the shortest
cycle · F feature · H lead · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forecaster.config import ModelPlan, Plan
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.model.ensemble import Ensemble
from forecaster.model.experts import LinearForecast, mapped, relative
from forecaster.model.network import Network
from forecaster.model.scaling import Scale
from forecaster.panel.calendar import DAY, Calendar
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import Panel
from forecaster.runs.scales import learn_scales
from forecaster.runs.versions import versions
from forecaster.windows.batch import Batch
from forecaster.windows.index import Int64, KeyedPermutation, WindowIndex
from forecaster.windows.split import Split, split_panel
from forecaster.windows.store import training_store

ALPHAS = tuple(10.0 ** (n / 2) for n in range(-8, 2))
"""Ridge penalties tried."""
MOST_ROWS = 60_000
"""Rows that maps are solved over; more windows are an even draw."""
FOLDS = 4
"""Quarters of the training time."""
_LONGEST_LOOKBACK = 800  # by default: a solution takes the cube of what a map reads
_LOOKBACKS_IN_TABLE = 9  # a lookback is a default where the table is as many times longer
_SCORED_FOLDS = (1, 3)  # quarters whose windows score maps solved without them
_SCORED_WINDOWS = 1024
_WORTH = {"linear_period": 0.995, "": 0.99}  # of the error; more features must lower it by 1 %
_SPAN_YEARS = (1, 2, 4)
_MOST_PLACES, _ROWS_PER_FEATURE = 168, 2
_MOST_PRODUCTS = 1 << 20  # of features, over all places: a map takes 32 times that in bytes
_BLOCK_CELLS = 1 << 22
_RESIDUALS = 1 << 23  # cells from which quantiles are taken
_FAR = 10.0  # spreads
_CG_STEPS, _CG_TOLERANCE = 12, 1e-4
_TINY = 1e-12
_Key = tuple[int | None, int, bool, int | None, int]
"""Span, phases, calendar, period and number of the penalty of solved maps."""


def linear_settings(model: Any, panel: Panel, context: int) -> dict[str, object]:
    """Returns the linear settings that follow from the table, and the context they need.

    Args:
        model: the `ModelConfig`.
        panel: the table.
        context: steps that attention reads.
    """
    calendar, kind = panel.calendar, model.linear
    if kind is None:
        kind = "blend" if model.head == "quantile" and model.decoder == "direct" else "none"
    if kind == "none":
        return {"linear": kind, "context_length": context, "attention_length": context}
    lookbacks = model.lookbacks
    if lookbacks is None:
        lookbacks = _default_lookbacks(panel, context)
        if model.context_length is not None:
            lookbacks = tuple(n for n in lookbacks if n <= context) or (context,)
    window, season = max(*lookbacks, context), calendar.season_length
    lengths = (season, *(cycle_steps(calendar, name) for name in calendar.cycles))
    lags = {n for n in lengths if panel.schema.known and 1 < n <= min(window, _LONGEST_LOOKBACK)}
    return {
        "linear": kind,
        "lookbacks": lookbacks,
        "linear_lags": tuple(sorted(lags)),
        "linear_units": season if model.linear_units == "season" else model.linear_units,
        "context_length": window,
        "attention_length": context,
    }


def choose_linear(panel: Panel, plan: Plan, split: Split) -> Plan:
    """Returns the plan with phases, calendar, period, spans and ridge alphas chosen on unseen windows.

    One ability after the other is kept where it lowers the absolute errors. Two sets of windows count
    alike: the validation windows, and two quarters of the training windows, forecast by maps solved
    without them; validation alone may be of another regime. Training spans are scored by validation
    alone, because the quarters before a span are forecast by what came later.

    Args:
        panel: the table.
        plan: settled but for this.
        split: of the panel.
    """
    if plan.model.linear == "none":
        return plan
    panel = with_categories(panel, split.train_end)
    plain = plan.with_model(
        linear_phases=1, linear_calendar=False, linear_period=None, linear_spans=None
    )
    with torch.no_grad():
        return _Choice(panel, plain, split).made()


def solve_linear(network: Network, panel: Panel, plan: Plan, index: WindowIndex) -> None:
    """Solves the linear maps of a network over windows, in place.

    Args:
        network: its scales learned; one without a linear forecast stays as it is.
        panel: the table.
        plan: settled.
        index: the windows that train.
    """
    linear = network.linear
    if linear is None:
        return
    alphas = _lead_alphas(plan.model, linear.horizon)
    maps: list[list[list[Tensor]]] = []  # [span][fold, and all][map]
    with torch.no_grad():
        spans = _spans(network, panel, plan, index)
        for windows, sums in zip(spans, _sums_without(spans, range(FOLDS)), strict=True):
            own = [[_solution(linear, one, alphas) for one in part] for part in sums]
            own[-1] = _refined(windows, sums[-1], own[-1], alphas)
            for part, fold in zip(own, sums, strict=True):
                for number, (free, one) in enumerate(zip(part, fold, strict=True)):
                    part[number] = _with_periodic(
                        free, one, linear.lookbacks[number], alphas, linear.period
                    ).float()
            maps.append(own)
        for number, kept in enumerate(linear.maps):
            # Maps of several spans read the same features: their mean is one map.
            kept.copy_(torch.stack([own[-1][number] for own in maps]).mean(dim=0))
        _learn_offsets(spans, maps)


def fit_linear(panel: Panel, plan: Plan, split: Split) -> Artifact:
    """Returns an artifact of the linear forecast alone.

    Args:
        panel: the table.
        plan: settled, with a linear forecast.
        split: of the panel under this plan.
    """
    fingerprint = panel.fingerprint()
    panel, plan = with_categories(panel, split.train_end), _smallest(plan)
    if plan.fit.refit:
        split = split_panel(panel, plan.with_fit(validation=None))
    network = _bare_network(panel, plan, split)
    solve_linear(network, panel, plan, split.train)
    network.network_weight.zero_()
    return Artifact(
        schema=panel.schema,
        plan=plan,
        shape=network.shape,
        ensemble=Ensemble([network], [1.0], target=plan.target).eval().requires_grad_(False),
        trained_until=split.end,
        data=panel.name,
        fingerprint=fingerprint,
        versions=versions(),
    )


def cycle_steps(calendar: Calendar, name: str) -> int:
    """Returns the steps of a cycle of the calendar, a nominal number where they differ."""
    length = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}.get(name)
    return round(length / calendar.step) if length else int(name.split()[0])


def _default_lookbacks(panel: Panel, context: int) -> tuple[int, ...]:
    """A longer table has more lookbacks, each twice the one before."""
    calendar = panel.calendar
    longest = int((panel.last_observed - panel.indptr[:-1] + 1).max())
    first = min(context, 14 * calendar.season_length) if "day" in calendar.cycles else context
    found = [min(first, longest, _LONGEST_LOOKBACK)]
    while len(found) < 3 and 2 * found[-1] <= min(longest // _LOOKBACKS_IN_TABLE, _LONGEST_LOOKBACK):
        found.append(2 * found[-1])
    return tuple(found)


def _smallest(plan: Plan) -> Plan:
    """The plan with as little attention as there can be."""
    return plan.with_model(width=4, heads=1, encoder_layers=1, decoder_layers=1, feed_forward=1)


def _bare_network(panel: Panel, plan: Plan, split: Split) -> Network:
    """A network of the smallest size with the scales of the training rows."""
    with torch.random.fork_rng(devices=[]):
        network = Network(_smallest(plan).model, shape_of(panel, plan.horizon))
    learn_scales(network, panel, split.train_end)
    return network.eval()


def _lead_alphas(model: ModelPlan, horizon: int) -> Tensor:
    """[H] the penalty of each lead."""
    alpha = model.ridge_alpha
    assert alpha is not None
    if isinstance(alpha, float | int):
        return torch.full((horizon,), float(alpha), dtype=torch.float64)
    return torch.tensor(alpha, dtype=torch.float64).repeat_interleave(model.decoder_patch)[:horizon]


# Choice


class _Choice:
    """Greedy choice of the linear settings."""

    def __init__(self, panel: Panel, plan: Plan, split: Split):
        self._plan, self._panel, self._split = plan, panel, split
        self._places = self._cycle_places()
        widest = plan.with_model(
            linear_phases=self._places or 1, linear_calendar=bool(panel.calendar.cycles)
        )
        # The sums of the widest maps hold those of all others.
        self._network = _bare_network(panel, widest, split)
        assert self._network.linear is not None
        self._linear = self._network.linear
        self._windows: dict[int | None, _Windows] = {}
        self._folds: dict[int | None, list[list[_Sums]]] = {}
        self._add_span(None)
        self._reference: Tensor | None = None

    def made(self) -> Plan:
        """Returns the plan with everything chosen."""
        plan, calendar = self._plan, self._panel.calendar
        asked = plan.model.ridge_alpha
        alphas = [_lead_alphas(plan.model, plan.horizon)] if asked is not None else None
        loss, plan = self._best([plan], alphas or _uniform(ALPHAS, plan.horizon), asked is None)
        abilities: list[list[dict[str, object]]] = []
        if calendar.cycles:
            abilities.append([{"linear_calendar": True}])
        if self._places:
            abilities.append([{"linear_phases": self._places}])
        season = calendar.season_length
        if 2 <= season <= max(plan.model.lookbacks or (0,)) // 2:
            abilities.append([{"linear_period": season}])
        for ability in abilities:
            near = alphas or _uniform(_neighbours(plan.model.ridge_alpha), plan.horizon)
            found = self._best([plan.with_model(**one) for one in ability], near, asked is None)
            name = next(iter(ability[0]))
            if found[0] < _WORTH.get(name, _WORTH[""]) * loss:
                loss, plan = found
        return self._with_spans(plan)

    def _with_spans(self, plan: Plan) -> Plan:
        """Averages maps of shorter training spans, where that forecasts validation windows better."""
        windows, year = self._windows[None], cycle_steps(self._panel.calendar, "year")
        if self._panel.calendar.integer or not len(self._split.validation_windows):
            return plan
        spans = [n * year for n in _SPAN_YEARS if n * year < windows.steps]
        if not spans:
            return plan
        for span in spans:
            self._add_span(span)
        tries = [plan, plan.with_model(linear_spans=(*spans, None))]
        errors = self._errors(tries, [_lead_alphas(plan.model, plan.horizon)])[1, :, 0].sum(dim=-1)
        return tries[1] if errors[1] < _WORTH[""] * errors[0] else plan

    def _best(
        self, tries: Sequence[Plan], alphas: Sequence[Tensor], chooses: bool
    ) -> tuple[float, Plan]:
        """Returns the error of the best of some plans, and the plan with its best alphas."""
        errors = self._errors(tries, alphas)
        if self._reference is None:
            self._reference = errors[:, :1].amin(dim=2, keepdim=True).clamp(min=1e-30)
        judged = (errors / self._reference).sum(dim=0)  # [try, alpha, patch]
        losses = judged.amin(dim=1).sum(dim=1)
        best = int(losses.argmin())
        plan = tries[best]
        if chooses:
            chosen = [float(alphas[n][0]) for n in judged[best].argmin(dim=0).tolist()]
            plan = plan.with_model(ridge_alpha=tuple(chosen))
        return float(losses[best]), plan

    def _errors(self, tries: Sequence[Plan], alphas: Sequence[Tensor]) -> Tensor:
        """[training or validation windows, try, alpha, horizon patch] absolute errors, summed."""
        options = list(product(tries, range(len(alphas))))
        solved: dict[_Key, list[list[Tensor]]] = {}  # [fold][map]
        wanted: list[list[_Key]] = []
        for plan, number in options:
            model, keys = plan.model, list[_Key]()
            for span in model.linear_spans or (None,):
                key = (span, model.linear_phases, model.linear_calendar, model.linear_period, number)
                keys.append(key)
                if key not in solved:
                    folds = self._folds[span]
                    unlike = {id(sums): sums for sums in folds}  # most are the same one: solved once
                    maps = {
                        one: self._narrowed(sums, alphas[number], model) for one, sums in unlike.items()
                    }
                    solved[key] = [maps[id(sums)] for sums in folds]
            wanted.append(keys)
        every, split, horizon = self._windows[None], self._split, self._plan.horizon
        drawn = every.some(min(_SCORED_WINDOWS, len(split.validation_windows) or _SCORED_WINDOWS))
        errors = torch.zeros(2, len(options), horizon, dtype=torch.float64)
        validation = every.read(split.validation, split.validation_windows)
        for error, blocks in zip(errors, (drawn, validation), strict=True):
            for rows in blocks:
                unseen = torch.isin(every.fold(rows), torch.tensor([*_SCORED_FOLDS, FOLDS]))
                weight = rows.weight[unseen, None].sqrt()
                read = _read(every, rows)
                parts = {
                    key: _predicted(self._windows[key[0]], rows, read, maps)
                    for key, maps in solved.items()
                }
                for number, keys in enumerate(wanted):
                    forecast = torch.stack([parts[key] for key in keys]).mean(dim=0)
                    missed = (rows.target - forecast)[unseen].abs() * weight
                    error[number] += torch.where(missed.isfinite(), missed, 0.0).sum(dim=0)
        patches = errors.split(self._plan.model.decoder_patch, dim=-1)
        summed = torch.stack([part.sum(dim=-1) for part in patches], dim=-1)
        found: Tensor = summed.unflatten(1, (len(tries), len(alphas)))
        return found

    def _narrowed(self, every: Sequence[_Sums], alphas: Tensor, model: ModelPlan) -> list[Tensor]:
        """The maps of a model, from the sums of one that reads more."""
        linear, maps = self._linear, []
        for sums, lookback in zip(every, linear.lookbacks, strict=True):
            own = sums.pooled() if model.linear_phases == 1 else sums
            kept = torch.arange(own.gram.shape[1])
            if not model.linear_calendar:
                kept = kept[(kept < lookback) | (kept >= lookback + linear.calendar)]
                own = replace(own, gram=own.gram[:, kept][:, :, kept], cross=own.cross[:, kept])
            free = _solution(linear, own, alphas)
            period = model.linear_period
            maps.append(torch.zeros(len(free), sums.gram.shape[1], free.shape[2]))
            maps[-1][:, kept] = _with_periodic(free, own, lookback, alphas, period).float()
        return maps

    def _add_span(self, span: int | None) -> None:
        windows = _Windows(self._network, self._panel, self._plan, self._split.train, span)
        self._windows[span] = windows
        whole = None if span is None else [one.whole for one in self._folds[None][-1]]
        self._folds[span] = _without(_summed(windows), _SCORED_FOLDS, whole)

    def _cycle_places(self) -> int | None:
        """Steps of the shortest cycle, where each of its places has windows enough for its own map."""
        calendar, size = self._panel.calendar, max(self._plan.model.lookbacks or (1,))
        if not calendar.cycles:
            return None
        steps, rows = cycle_steps(calendar, calendar.cycles[0]), min(len(self._split.train), MOST_ROWS)
        enough = rows >= _ROWS_PER_FEATURE * steps * size and steps * size**2 <= _MOST_PRODUCTS
        return steps if 2 <= steps <= _MOST_PLACES and enough else None


def _uniform(alphas: Sequence[float], horizon: int) -> list[Tensor]:
    return [torch.full((horizon,), alpha, dtype=torch.float64) for alpha in alphas]


def _neighbours(chosen: object) -> list[float]:
    """The penalties chosen for horizon patches, and those next to them."""
    assert isinstance(chosen, tuple)
    own = {ALPHAS.index(alpha) for alpha in chosen}
    return [alpha for n, alpha in enumerate(ALPHAS) if own & {n - 1, n, n + 1}]


# Windows


@dataclass(frozen=True)
class _Rows:
    """A block of windows as maps read them."""

    batch: Batch
    scale: Scale
    """Units of the maps."""
    others: Tensor
    """[B, E] what all maps read beside the targets."""
    place: Tensor
    """[R]"""
    time: Tensor
    """[R] of the cutoff."""
    target: Tensor
    """[R, H] units of the maps; NaN = missing."""
    weight: Tensor
    """[R]"""
    spreads: Tensor
    """[R] unit of the maps per spread of the row's context."""


class _Windows:
    """The windows of a training span, block by block; memory does not grow with their number."""

    def __init__(
        self, network: Network, panel: Panel, plan: Plan, index: WindowIndex, span: int | None = None
    ):
        assert network.linear is not None
        index = index if span is None else _recent(panel, index, span)
        self.network, self.linear = network, network.linear
        self._store, self._time, self._index = training_store(panel, plan), panel.time, index
        together = 1 if index.channels == panel.n_channels else panel.n_channels
        self._numbers = _drawn(len(index), MOST_ROWS // together)
        widest = max(weights.shape[1] for weights in self.linear.maps)
        read = (widest + self.linear.horizon) * together
        # Covariates of the past are no feature, but cut out with the rest.
        columns = together + panel.values.shape[1] - panel.n_channels
        cut = (self._store.context_length + self._store.horizon) * columns
        self._size = max(1, _BLOCK_CELLS // max(read, cut))
        own = index.count > 0
        last = index.first[own] + (index.count[own] - 1) * index.stride
        self._from = int(panel.time[index.first[own]].min()) if own.any() else 0
        self._until = int(panel.time[last].max()) if own.any() else -1
        self.steps = round((self._until - self._from) / panel.calendar.step) + 1
        """Of the time axis, from the first cutoff to the last."""

    def blocks(self) -> Iterator[_Rows]:
        return self.read(self._index, self._numbers)

    def some(self, most: int) -> Iterator[_Rows]:
        """Yields the rows of an even draw of at most `most` windows."""
        return self.read(self._index, self._numbers[_drawn(len(self._numbers), most)])

    def read(self, index: WindowIndex, numbers: Int64) -> Iterator[_Rows]:
        """Yields the rows of windows of any index of the panel."""
        network, linear = self.network, self.linear
        for start in range(0, len(numbers), self._size):
            series, channel, cutoff = index.locate(numbers[start : start + self._size])
            batch = self._store.batch(series, channel if index.channels > 1 else None, cutoff)
            inputs = batch.inputs
            scale = network.scaler(inputs.context, inputs.observed, inputs.channel)
            known = network.embedding.known_scaler(inputs.known, inputs.known_observed)
            units = linear.units(inputs, scale)
            target = units.apply(batch.target).transpose(1, 2).flatten(0, 1)
            target = torch.where(target.isfinite(), target, torch.nan)
            spreads = relative(units, scale)
            # A target is far off by what its window knows, however little a season differs.
            far = target.abs().nan_to_num(0.0).amax(dim=1).double()
            if linear.apart is not None:
                far = far * spreads
            weight = (_FAR / far.clamp(min=_FAR)).square()
            others, place = linear.others(inputs, known), linear.place(inputs)
            time = torch.from_numpy(self._time[cutoff]).repeat_interleave(inputs.channel.shape[1])
            yield _Rows(batch, units, others, place, time, target, weight, spreads)

    def features(self, rows: _Rows, number: int) -> tuple[Tensor, Tensor]:
        """Returns [R, F] what a map reads, and [R, H] what it should forecast; float64.

        A row beyond float32 reads nothing and should forecast nothing.
        """
        features, level = self.linear.features(rows.batch.inputs, rows.scale, rows.others, number)
        finite = features.sum(dim=1).isfinite()
        features = torch.where(finite[:, None], features, 0.0)
        target = torch.where(finite[:, None], rows.target - level[:, None], torch.nan)
        return features.double(), target.double()

    def fold(self, rows: _Rows) -> Tensor:
        """Returns [R] the quarter of this span that a row falls into; `FOLDS` = none."""
        size = max(1, -(-(self._until - self._from + 1) // FOLDS))
        fold = (rows.time - self._from).div(size, rounding_mode="floor")
        return torch.where((rows.time < self._from) | (rows.time > self._until), FOLDS, fold)


def _spans(network: Network, panel: Panel, plan: Plan, index: WindowIndex) -> list[_Windows]:
    """The windows of each training span, the longest first."""
    spans = sorted(plan.model.linear_spans or (None,), key=lambda n: -(n or 1 << 62))
    return [_Windows(network, panel, plan, index, span) for span in spans]


def _recent(panel: Panel, index: WindowIndex, span: int) -> WindowIndex:
    """The windows whose cutoff is among the last `span` steps of training cutoffs."""
    own = index.count > 0
    if not own.any():
        return index
    last = int(panel.time[index.first[own] + (index.count[own] - 1) * index.stride].max())
    begin = panel.rows_until(int(last - span * panel.calendar.step))
    late = np.maximum(0, -(-(begin - index.first) // index.stride))
    count = np.maximum(0, index.count - late)
    return WindowIndex(index.first + late * index.stride, count, index.stride, index.channels)


def _drawn(size: int, most: int) -> Int64:
    """At most `most` of `size` numbers, rising; the same ones every time."""
    if size <= most:
        return np.arange(size)
    return np.sort(KeyedPermutation(size, seed=0, epoch=0)(np.arange(most)))


# Normal equations


@dataclass(frozen=True)
class _Sums:
    """Normal equations of a map; float64."""

    gram: Tensor
    """[P, F, F]"""
    cross: Tensor
    """[P, F, H]"""
    weight: Tensor
    """[P] Σ w."""
    seen: Tensor
    """[P, H] Σ w of rows whose target is observed."""
    whole: Tensor
    """[P] Σ w of the longest span and all quarters: what penalties are multiplied by."""

    @classmethod
    def over(cls, parts: Sequence[_Sums], whole: Tensor | None = None) -> _Sums:
        """Adds parts of the windows up; `whole` None = these parts are all there are."""
        first, *others = parts
        found = cls(*(getattr(first, field.name).clone() for field in fields(cls)))
        for part in others:  # one after the other: stacked, they would take their memory twice
            for field in fields(cls):
                getattr(found, field.name).add_(getattr(part, field.name))
        return found if whole is None else replace(found, whole=whole)

    def filled(self, right: Tensor) -> Tensor:
        """[P, F, H] right-hand sides as if targets were missing at random."""
        return right * (self.weight[:, None] / self.seen.clamp(min=_TINY))[:, None]

    def pooled(self) -> _Sums:
        """The same for one map for all places."""
        return _Sums(*(getattr(self, f.name).sum(dim=0, keepdim=True) for f in fields(_Sums)))

    def penalty(self) -> Tensor:
        """[P, H] N of each lead: less where targets are missing, as the rest of its equation is."""
        observed: Tensor = self.seen / self.weight.clamp(min=_TINY)[:, None]
        return self.whole[:, None] * observed


def _summed(windows: _Windows) -> list[list[_Sums]]:
    """[map][quarter] normal equations, in one pass over the windows."""
    linear, found = windows.linear, []
    for weights in linear.maps:
        places, count, horizon = weights.shape
        sizes = [(count, count), (count, horizon), (), (horizon,), ()]
        zeros = [[torch.zeros(places, *n, dtype=torch.float64) for n in sizes] for _ in range(FOLDS)]
        found.append([_Sums(*parts) for parts in zeros])
    for rows in windows.blocks():
        parts = list(_groups(rows, windows.fold(rows), linear.places))
        for number, folds in enumerate(found):
            features, target = windows.features(rows, number)
            for fold, place, own in parts:
                sums, x, y, w = folds[fold], features[own], target[own], rows.weight[own, None]
                there = ~y.isnan()
                weighted = (x * w).T
                sums.gram[place].addmm_(weighted, x)
                sums.cross[place].addmm_(weighted, torch.where(there, y, 0.0))
                sums.weight[place] += w.sum()
                sums.whole[place] += w.sum()
                sums.seen[place] += (there * w).sum(dim=0)
    return found


def _without(
    parts: Sequence[Sequence[_Sums]], folds: Sequence[int], whole: Sequence[Tensor] | None
) -> list[list[_Sums]]:
    """[fold, and all][map] the equations without each wanted quarter; other quarters stay in."""
    total = [_Sums.over(own, None if whole is None else whole[n]) for n, own in enumerate(parts)]
    without = [
        [
            _Sums.over([*own[:fold], *own[fold + 1 :]], one.whole)
            for own, one in zip(parts, total, strict=True)
        ]
        if fold in folds
        else total
        for fold in range(FOLDS)
    ]
    return [*without, total]


def _sums_without(spans: Sequence[_Windows], folds: Sequence[int]) -> Iterator[list[list[_Sums]]]:
    """Yields `_without` span by span, the longest first."""
    whole: list[Tensor] | None = None
    for windows in spans:
        found = _without(_summed(windows), folds, whole)
        whole = whole or [one.whole for one in found[-1]]
        yield found


def _solution(linear: LinearForecast, sums: _Sums, alphas: Tensor) -> Tensor:
    """[P, F, H] maps, as if targets were missing at random."""
    return _solved(linear, sums, sums.cross, alphas)


def _solved(linear: LinearForecast, sums: _Sums, right: Tensor, alphas: Tensor) -> Tensor:
    """[P, F, H] the solution for right-hand sides, as if targets were missing at random."""
    right = sums.filled(right)
    found, diagonal = torch.zeros_like(right), torch.eye(right.shape[1], dtype=torch.float64)
    shared = right.shape[1] - len(linear.allowed)
    for place, gram in enumerate(sums.gram):
        # Rows sum to nothing once their mean is gone: without any penalty there is no inverse.
        least = 1e-9 * gram.diagonal().mean() + _TINY
        for alpha in alphas.unique():
            factor = torch.linalg.cholesky(gram + (alpha * sums.whole[place] + least) * diagonal)
            for leads, ahead in linear.lead_blocks():
                own = torch.arange(leads.start, leads.stop)
                own = own[alphas[own] == alpha]
                size = shared + ahead  # the factor of the first features is the first part of it
                part = torch.cholesky_solve(right[place, :size, own], factor[:size, :size])
                found[place, :size, own] = part
    return found


def _refined(
    windows: _Windows, sums: Sequence[_Sums], maps: Sequence[Tensor], alphas: Tensor
) -> list[Tensor]:
    """Maps that are right for the observed targets: preconditioned conjugate gradients.

    Each lead misses other windows, and a matrix of products for each lead would be too much.
    """
    found = list(maps)
    if all(bool((one.seen >= one.weight[:, None] * (1 - 1e-9)).all()) for one in sums):
        return found
    linear = windows.linear
    images = _applied(windows, sums, found, alphas)
    rests = [_visible(linear, one.cross) - image for one, image in zip(sums, images, strict=True)]
    toward, energy = [torch.zeros_like(rest) for rest in rests], [torch.ones(()) for _ in rests]
    for turn in range(_CG_STEPS):
        if all(r.norm() <= _CG_TOLERANCE * s.cross.norm() for r, s in zip(rests, sums, strict=True)):
            break
        near = [_solved(linear, s, r, alphas) for s, r in zip(sums, rests, strict=True)]
        fresh = [_dot(rest, step) for rest, step in zip(rests, near, strict=True)]
        for n, step in enumerate(near):
            toward[n] = step + (fresh[n] / energy[n].clamp(min=_TINY) * toward[n] if turn else 0.0)
        images, energy = _applied(windows, sums, toward, alphas), fresh
        for n, image in enumerate(images):
            length = energy[n] / _dot(toward[n], image).clamp(min=_TINY)
            found[n] = found[n] + length * toward[n]
            rests[n] = rests[n] - length * image
    return found


def _applied(
    windows: _Windows, sums: Sequence[_Sums], toward: Sequence[Tensor], alphas: Tensor
) -> list[Tensor]:
    """The left-hand sides over observed targets, times a direction, map by map."""
    found = [torch.zeros_like(one) for one in toward]
    for rows in windows.blocks():
        parts = list(_groups(rows, windows.fold(rows), windows.linear.places))
        for number, (out, one) in enumerate(zip(found, toward, strict=True)):
            features, target = windows.features(rows, number)
            for _, place, own in parts:
                x, missing = features[own], target[own].isnan()
                image = (x @ one[place]) * rows.weight[own, None]
                out[place].addmm_(x.T, image.masked_fill(missing, 0.0))
    return [
        _visible(windows.linear, out + one * (alphas * own.penalty())[:, None])
        for out, one, own in zip(found, toward, sums, strict=True)
    ]


def _visible(linear: LinearForecast, numbers: Tensor) -> Tensor:
    """[P, F, H] with 0 where a lead may not read a feature."""
    ahead = len(linear.allowed)
    near, far = numbers.split([numbers.shape[1] - ahead, ahead], dim=1)
    return torch.cat([near, far * linear.allowed], dim=1)


def _groups(rows: _Rows, fold: Tensor, places: int) -> Iterator[tuple[int, int, Tensor]]:
    """Yields fold, place and the rows of both, where there are any."""
    group = fold * places + rows.place
    for number in group.unique().tolist():
        yield number // places, number % places, (group == number).nonzero()[:, 0]


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """[P, 1, H] of [P, F, H]."""
    return (one * other).sum(dim=1, keepdim=True)


def _with_periodic(
    free: Tensor, sums: _Sums, lookback: int, alphas: Tensor, period: int | None
) -> Tensor:
    """[P, F, H] the mean of a map and of one that reads whole cycles back, where there is one.

    A lead of the latter reads the values at its own place in the cycles before it, and all leads of a
    cycle share their weights: a few dozen in the place of hundreds of thousands, so that its errors
    differ from those of a free map (Lin et al., "SparseTSF", 2024).
    """
    if period is None or lookback < period:
        return free
    found, cycles = torch.zeros_like(sums.cross), lookback // period
    oldest = lookback - cycles * period
    right = sums.filled(sums.cross)
    for leads in torch.arange(right.shape[2]).split(period):
        place = torch.arange(len(leads))
        reads = oldest + place[:, None] + period * torch.arange(cycles)  # [lead of the cycle, cycle]
        gram = sums.gram[:, reads[:, :, None], reads[:, None, :]].sum(dim=1)  # [P, cycle, cycle]
        cross = right[:, reads, leads[:, None]].sum(dim=1)  # [P, cycle]
        # The last cycle may be a part of one, and is shrunk in proportion.
        penalty = alphas[leads].mean() * sums.whole * len(leads) / period
        least = 1e-9 * gram.diagonal(dim1=1, dim2=2).mean(dim=1) + _TINY
        held = gram + (penalty + least)[:, None, None] * torch.eye(cycles, dtype=gram.dtype)
        shared = torch.cholesky_solve(cross[..., None], torch.linalg.cholesky(held))[..., 0]
        found[:, reads, leads[:, None]] = shared[:, None]
    return (free + found) / 2


# Residuals


def _read(windows: _Windows, rows: _Rows) -> list[tuple[Tensor, Tensor]]:
    """[map] features [R, F] and levels [R]."""
    linear = windows.linear
    return [
        linear.features(rows.batch.inputs, rows.scale, rows.others, number)
        for number in range(len(linear.maps))
    ]


def _predicted(
    windows: _Windows,
    rows: _Rows,
    read: Sequence[tuple[Tensor, Tensor]],
    folds: Sequence[Sequence[Tensor]],
) -> Tensor:
    """[R, H] forecasts by maps [fold, and all][map] that were solved without the rows' own quarter."""
    fold, found = windows.fold(rows), torch.zeros_like(rows.target)
    for number, (features, level) in enumerate(read):
        found += level[:, None]
        for which in fold.unique().tolist():
            own = (fold == which).nonzero()[:, 0]
            found.index_add_(0, own, mapped(features[own], folds[which][number], rows.place[own]))
    return found / len(read)


def _learn_offsets(spans: Sequence[_Windows], maps: Sequence[Sequence[Sequence[Tensor]]]) -> None:
    """Puts quantiles of the residuals into the network, from an even draw of the longest span.

    They count from the residuals' own median: a few quarters' drift is more than a bias (taken for one,
    it raised the MSE of ETTh1 720 hours ahead from .83 to .98).
    """
    linear, levels = spans[0].linear, np.array(spans[0].network.config.quantile_levels)
    missed, places = [], []
    for rows in spans[0].some(max(1, _RESIDUALS // linear.horizon)):
        counted = rows.spreads / linear.residual_units(rows.spreads)
        read = _read(spans[0], rows)
        parts = [_predicted(own, rows, read, folds) for own, folds in zip(spans, maps, strict=True)]
        forecast = torch.stack(parts).mean(dim=0)
        missed.append((rows.target - forecast) * counted[:, None])
        places.append(rows.place)
    if not missed:
        return
    residuals, place = torch.cat(missed).numpy(), torch.cat(places).numpy()
    everyone = _around_median(residuals, levels)
    for number in range(linear.places):
        own = _around_median(residuals[place == number], levels) if linear.places > 1 else everyone
        for found in (everyone, own):  # a place without windows has those of all
            there = np.isfinite(found).all(axis=1)
            linear.offsets[number, torch.from_numpy(there)] = torch.from_numpy(found[there]).float()


def _around_median(values: NDArray[np.float32], levels: NDArray[np.float64]) -> NDArray[np.float64]:
    """[H, Q] quantiles of finite [n, H] less their median; NaN where fewer than two are finite.

    By hand: numpy's own goes lead by lead through Python where NaN may be.
    """
    if len(values) < 2:
        return np.full((values.shape[1], len(levels)), np.nan)
    ordered = np.sort(np.where(np.isfinite(values), values, np.nan), axis=0).astype(np.float64)
    count = (ordered == ordered).sum(axis=0)
    at = levels[:, None] * np.maximum(count - 1, 0)  # [Q, H]
    low = np.minimum(np.floor(at).astype(np.int64), len(ordered) - 2)
    below, above = (np.take_along_axis(ordered, low + n, axis=0) for n in (0, 1))
    found = np.where(at > low, below + (at - low) * (above - below), below)
    found = np.where(count >= 2, found, np.nan).T
    return found - found[:, levels == 0.5]
