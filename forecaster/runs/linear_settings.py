"""What the linear forecast reads: settings that follow from the table, and a choice on unseen windows.

`ridge.py` solves the maps of what is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forecaster.config import ModelConfig, ModelPlan, Plan
from forecaster.panel.calendar import cycle_steps
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import Panel
from forecaster.runs import ridge
from forecaster.runs.pool import bare_network
from forecaster.windows.split import Split

ALPHAS = tuple(10.0 ** (n / 2) for n in range(-8, 2))
"""Ridge penalties tried."""
_CHOICE_ROWS = 10_000  # rows that are solved over while choosing: neighbouring windows differ little
_LONGEST_LOOKBACK = 800  # by default: a solution takes the cube of what a map reads
_LOOKBACKS_IN_TABLE = 9  # a lookback is a default where the table is as many times longer
_SCORED_FOLDS = (1, 3)  # quarters whose windows score maps solved without them
_SCORED_WINDOWS = 1024
_WORTH, _PERIOD_WORTH = 0.99, 0.995  # more features must lower the error by 1 %, a period by half
_SPAN_YEARS = (1, 2, 4)
_MOST_PLACES, _ROWS_PER_FEATURE = 168, 2
_MOST_PRODUCTS = 1 << 20  # of features, over all places: a map takes 32 times that in bytes


def linear_settings(model: ModelConfig, panel: Panel, context: int, back: int) -> dict[str, object]:
    """Returns the linear settings that follow from the table, and the context they need.

    Args:
        model: the request.
        panel: the table.
        context: steps that attention reads.
        back: steps from the earliest cutoff at which experts are compared to the window's own.
    """
    calendar, lookbacks = panel.calendar, model.lookbacks
    if lookbacks is None:
        lookbacks = _default_lookbacks(panel, context)
        if model.context_length is not None:
            lookbacks = tuple(n for n in lookbacks if n <= context) or (context,)
    window, season = max(*lookbacks, context), calendar.season_length
    lengths = (season, *(cycle_steps(calendar, name) for name in calendar.cycles))
    lags = {n for n in lengths if panel.schema.known and 1 < n <= min(window, _LONGEST_LOOKBACK)}
    return {
        "lookbacks": lookbacks,
        "linear_lags": tuple(sorted(lags)),
        "linear_units": season if model.linear_units == "season" else model.linear_units,
        "context_length": window + back,
        "attention_length": context,
    }


def choose_linear(panel: Panel, plan: Plan, split: Split) -> Plan:
    """Returns the plan with phases, calendar, period, spans and ridge alphas chosen on unseen windows.

    One ability after the other is kept where it lowers the absolute errors. Two sets of windows count
    alike: the validation windows, and two quarters of the training windows, forecast by maps solved
    without them; validation alone may be of another regime. Training spans are scored by validation
    alone, because the quarters before a span are forecast by what came later.
    """
    if not plan.model.has_linear:
        return plan
    panel = with_categories(panel, split.train_end)
    plain = plan.with_model(
        linear_phases=1, linear_calendar=False, linear_period=None, linear_spans=None
    )
    with torch.no_grad():
        return _Choice(panel, plain, split).made()


def _default_lookbacks(panel: Panel, context: int) -> tuple[int, ...]:
    """A longer table has more lookbacks, each twice the one before."""
    calendar = panel.calendar
    longest = panel.longest
    first = min(context, 14 * calendar.season_length) if "day" in calendar.cycles else context
    found = [min(first, longest, _LONGEST_LOOKBACK)]
    while len(found) < 3 and 2 * found[-1] <= min(longest // _LOOKBACKS_IN_TABLE, _LONGEST_LOOKBACK):
        found.append(2 * found[-1])
    return tuple(found)


class _Choice:
    """Greedy choice of the linear settings."""

    def __init__(self, panel: Panel, plan: Plan, split: Split):
        self._plan, self._panel, self._split = plan, panel, split
        self._places = self._cycle_places()
        widest = plan.with_model(
            linear_phases=self._places or 1, linear_calendar=bool(panel.calendar.cycles)
        )
        # The sums of the widest maps hold those of all others.
        self._network = bare_network(panel, widest, split)
        self._windows: dict[int | None, ridge.RidgeWindows] = {}
        self._sums: dict[int | None, dict[int, list[ridge.Equations]]] = {}
        self._add_span(None)
        self._linear = self._windows[None].linear
        self._reference: Tensor | None = None

    def made(self) -> Plan:
        """Returns the plan with everything chosen."""
        plan, calendar = self._plan, self._panel.calendar
        abilities: list[tuple[float, dict[str, object]]] = []
        if calendar.cycles:
            abilities.append((_WORTH, {"linear_calendar": True}))
        if self._places:
            abilities.append((_WORTH, {"linear_phases": self._places}))
        season = calendar.season_length
        if 2 <= season <= max(self._linear.lookbacks) // 2:
            abilities.append((_PERIOD_WORTH, {"linear_period": season}))
        least, plan = self._with_alphas(plan, ALPHAS)
        for worth, settings in abilities:
            error, found = self._with_alphas(plan.with_model(**settings), _neighbours(plan))
            if error < worth * least:
                least, plan = error, found
        return self._with_spans(plan)

    def _with_alphas(self, plan: Plan, alphas: Sequence[float]) -> tuple[float, Plan]:
        """The error of a plan, and the plan with the best alpha of each horizon patch."""
        horizon, chooses = plan.horizon, self._plan.model.ridge_alpha is None
        if chooses:
            leads = [torch.full((horizon,), alpha, dtype=torch.float64) for alpha in alphas]
        else:
            leads = [ridge.lead_alphas(plan.model, horizon)]
        errors = self._errors([(plan, own) for own in leads])
        if self._reference is None:
            self._reference = errors.amin(dim=1, keepdim=True).clamp(min=1e-30)
        judged = (errors / self._reference).sum(dim=0)  # [alpha, patch]
        if chooses:
            chosen = [alphas[number] for number in judged.argmin(dim=0).tolist()]
            plan = plan.with_model(ridge_alpha=tuple(chosen))
        return float(judged.amin(dim=0).sum()), plan

    def _with_spans(self, plan: Plan) -> Plan:
        """Averages maps of shorter training spans, where that forecasts validation windows better."""
        windows, year = self._windows[None], cycle_steps(self._panel.calendar, "year")
        spans = [n * year for n in _SPAN_YEARS if n * year < windows.steps]
        if self._panel.calendar.integer or not len(self._split.validation_windows) or not spans:
            return plan
        for span in spans:
            self._add_span(span)
        averaged = plan.with_model(linear_spans=(*spans, None))
        alphas = ridge.lead_alphas(plan.model, plan.horizon)
        before, after = self._errors([(plan, alphas), (averaged, alphas)])[1].sum(dim=-1).tolist()
        return averaged if after < _WORTH * before else plan

    def _errors(self, tries: Sequence[tuple[Plan, Tensor]]) -> Tensor:
        """[training or validation windows, try, horizon patch] absolute errors, summed."""
        maps = [
            {
                span: {
                    fold: self._narrowed(sums, alphas, plan.model)
                    for fold, sums in self._sums[span].items()
                }
                for span in plan.model.linear_spans or (None,)
            }
            for plan, alphas in tries
        ]
        every, split, horizon = self._windows[None], self._split, self._plan.horizon
        errors = torch.zeros(2, len(tries), horizon, dtype=torch.float64)
        drawn = every.some(min(_SCORED_WINDOWS, len(split.validation_windows) or _SCORED_WINDOWS))
        validation = every.read(split.validation, split.validation_windows)
        for error, blocks in zip(errors, (drawn, validation), strict=True):
            for rows in blocks:
                unseen = torch.isin(every.fold(rows), torch.tensor([*_SCORED_FOLDS, ridge.FOLDS]))
                weight, read = rows.weight[unseen, None].sqrt(), every.reading(rows)
                for number, own in enumerate(maps):
                    spans = [self._windows[span] for span in own]
                    missed = rows.target - ridge.held_out(spans, rows, read, list(own.values()))
                    missed = missed[unseen].abs() * weight
                    error[number] += torch.where(missed.isfinite(), missed, 0.0).sum(dim=0)
        parts = errors.split(self._plan.model.decoder_patch, dim=-1)
        return torch.stack([part.sum(dim=-1) for part in parts], dim=-1)

    def _narrowed(
        self, widest: Sequence[ridge.Equations], alphas: Tensor, model: ModelPlan
    ) -> list[Tensor]:
        """The maps of a model, from the sums of one that reads more."""
        linear, maps = self._linear, []
        for sums, lookback in zip(widest, linear.lookbacks, strict=True):
            own = sums.pooled() if model.linear_phases == 1 else sums
            kept = torch.arange(own.gram.shape[1])
            if not model.linear_calendar:
                kept = kept[(kept < lookback) | (kept >= lookback + linear.calendar)]
                own = own._replace(gram=own.gram[:, kept][:, :, kept], cross=own.cross[:, kept])
            free = ridge.solution(linear, own, alphas)
            found = ridge.with_periodic(free, own, alphas, lookback, model.linear_period)
            maps.append(found.new_zeros(len(found), sums.gram.shape[1], found.shape[2]))
            maps[-1][:, kept] = found
        return maps

    def _add_span(self, span: int | None) -> None:
        # Maps of many places need all rows that they are solved over in the end.
        most = ridge.MOST_ROWS if self._places else _CHOICE_ROWS
        windows = ridge.RidgeWindows(
            self._network, self._panel, self._plan, self._split.train, most, span
        )
        whole = None if span is None else [one.whole for one in self._sums[None][ridge.FOLDS]]
        self._windows[span] = windows
        self._sums[span] = ridge.without_quarters(ridge.summed(windows), _SCORED_FOLDS, whole)

    def _cycle_places(self) -> int | None:
        """Steps of the shortest cycle, where each of its places has windows enough for its own map."""
        calendar, size = self._panel.calendar, max(self._plan.model.lookbacks or (1,))
        if not calendar.cycles:
            return None
        steps = cycle_steps(calendar, calendar.cycles[0])
        rows = min(len(self._split.train), ridge.MOST_ROWS)
        enough = rows >= _ROWS_PER_FEATURE * steps * size and steps * size**2 <= _MOST_PRODUCTS
        return steps if 2 <= steps <= _MOST_PLACES and enough else None


def _neighbours(plan: Plan) -> list[float]:
    """The penalties chosen for horizon patches, and those next to them."""
    chosen = plan.model.ridge_alpha
    own = {n for n, alpha in enumerate(ALPHAS) if isinstance(chosen, tuple) and alpha in chosen}
    return [alpha for n, alpha in enumerate(ALPHAS) if own & {n - 1, n, n + 1}]
