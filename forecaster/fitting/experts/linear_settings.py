"""What the linear forecast reads: settings that follow from the table, and a choice on unseen windows.

`ridge.py` solves the maps of what is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from forecaster.config import LinearPlan, ModelConfig, Plan
from forecaster.fitting.experts import ridge
from forecaster.fitting.experts.pool import bare_network
from forecaster.panel.calendar import cycle_steps
from forecaster.panel.categories import with_categories
from forecaster.panel.panel import Panel
from forecaster.windows.split import Split

ALPHAS = tuple(10.0 ** (n / 2) for n in range(-8, 2))
"""Ridge penalties tried, at most 3.2 per window: a table whose validation rows are of another regime chose up
to 31."""
_CHOICE_ROWS = 10_000  # rows that are solved over while choosing: neighbouring windows differ little
_LONGEST_LOOKBACK = 800  # by default: a solution takes the cube of what a map reads
_LOOKBACKS_IN_TABLE = 9  # a lookback is a default where the table is as many times longer
_SCORED_FOLDS = (1, 3)  # quarters whose windows score maps solved without them
_SCORED_WINDOWS = 1024  # of the training windows, at most
_WORTH = 0.99  # more features must lower the error by 1 %: the calendar raised it by 1 % on ETTh1
_PERIOD_WORTH = 0.995  # a period adds no features to read, and must lower it by half as much
# Spans that are averaged: prices of EPF-DE .688 → .649 with them, of EPF-NP .993 → 1.037, so it is chosen.
_SPAN_YEARS = (1, 2, 4)
_MOST_PHASES = 168  # a week of hours
_ROWS_PER_FEATURE = 2  # of each phase's map
_MOST_PRODUCTS = 1 << 20  # of features, over all phases: a map takes 32 times that in bytes


def linear_settings(model: ModelConfig, panel: Panel, context: int) -> LinearPlan:
    """Returns the linear settings that follow from the table; `choose_linear` settles the others.

    Args:
        model: the request.
        panel: the table.
        context: steps that attention reads.
    """
    lookbacks = model.lookbacks
    if lookbacks is None:
        lookbacks = _default_lookbacks(panel, context)
        if model.context_length is not None:
            lookbacks = tuple(n for n in lookbacks if n <= context) or (context,)
    units = model.linear_units
    return LinearPlan(
        lookbacks=lookbacks,
        units=panel.calendar.season_length if units == "season" else units,
        ridge_alpha=model.ridge_alpha,
    )


def choose_linear(panel: Panel, plan: Plan, split: Split) -> Plan:
    """Returns the plan with phases, calendar, period, spans and ridge alphas chosen on unseen windows.

    One ability after the other is kept where it lowers the absolute errors (each earns its lines: left out,
    spans cost 2.1 % of the WQL of 17 small tables, the calendar .7 %, phases 15 % on EPF-DE).

    Two sets of windows count alike: the validation windows, and two quarters of the training windows, forecast
    by maps solved without them; validation alone may be of another regime. Training spans are scored by
    validation alone, because the quarters before a span are forecast by what came later.
    """
    if not plan.model.pool.needs_maps:
        return plan
    panel = with_categories(panel, split.train_end)
    plain = plan.with_linear(phases=1, calendar=False, period=None, spans=None)
    with torch.no_grad():
        return _Choice(panel, plain, split).choose()


def _default_lookbacks(panel: Panel, context: int) -> tuple[int, ...]:
    """A longer table has more lookbacks, at most three, each twice the one before."""
    calendar, longest = panel.calendar, panel.longest
    first = min(context, 14 * calendar.season_length) if "day" in calendar.cycles else context
    lookbacks = [min(first, longest, _LONGEST_LOOKBACK)]
    most = min(longest // _LOOKBACKS_IN_TABLE, _LONGEST_LOOKBACK)
    while len(lookbacks) < 3 and 2 * lookbacks[-1] <= most:
        lookbacks.append(2 * lookbacks[-1])
    return tuple(lookbacks)


class _Choice:
    """Greedy choice of the linear settings."""

    def __init__(self, panel: Panel, plan: Plan, split: Split):
        self._plan = plan
        self._panel = panel
        self._split = split
        self._phases = self._cycle_phases()
        has_cycles = bool(panel.calendar.cycles)
        widest = plan.with_linear(phases=self._phases or 1, calendar=has_cycles)
        # One pass over the windows: the sums of the widest maps hold those of all others (`_narrowed`).
        self._network = bare_network(panel, widest, split.train_end)
        self._windows: dict[int | None, ridge.RidgeWindows] = {}
        self._sums: dict[int | None, dict[int, list[ridge.Equations]]] = {}
        """[training span][quarter left out] normal equations of each lookback."""
        self._add_span(None)
        self._linear = self._windows[None].linear
        self._reference: Tensor | None = None
        """[training or validation, 1, patch] least errors of the first plan: their unit."""

    def choose(self) -> Plan:
        """Returns the plan with everything chosen."""
        least, plan = self._with_alphas(self._plan, ALPHAS)
        # Alphas are chosen again, among those next to the ones before: three solutions in place of ten.
        for worth, settings in self._abilities():
            error, extended = self._with_alphas(plan.with_linear(**settings), _neighbours(plan))
            if error < worth * least:
                least, plan = error, extended
        return self._with_spans(plan)

    def _abilities(self) -> list[tuple[float, dict[str, object]]]:
        """Settings that are tried, each with the relative error below which it is kept."""
        calendar = self._panel.calendar
        abilities: list[tuple[float, dict[str, object]]] = []
        if calendar.cycles:
            abilities.append((_WORTH, {"calendar": True}))
        if self._phases:
            abilities.append((_WORTH, {"phases": self._phases}))
        season = calendar.season_length
        if 2 <= season <= max(self._linear.lookbacks) // 2:
            abilities.append((_PERIOD_WORTH, {"period": season}))
        return abilities

    def _with_alphas(self, plan: Plan, alphas: Sequence[float]) -> tuple[float, Plan]:
        """The error of a plan, and the plan with the best alpha of each horizon patch."""
        horizon = plan.horizon
        is_free = self._plan.model.linear.ridge_alpha is None
        if is_free:
            leads = [torch.full((horizon,), alpha, dtype=torch.float64) for alpha in alphas]
        else:
            leads = [ridge.lead_alphas(plan.model, horizon)]
        errors = self._errors([(plan, lead) for lead in leads])  # [set, alpha, patch]
        # In units of the first plan's errors, so that both sets of windows count alike.
        if self._reference is None:
            self._reference = errors.amin(dim=1, keepdim=True).clamp(min=1e-30)
        relative = (errors / self._reference).sum(dim=0)  # [alpha, patch]
        if is_free:
            chosen = [alphas[number] for number in relative.argmin(dim=0).tolist()]
            plan = plan.with_linear(ridge_alpha=tuple(chosen))
        return float(relative.amin(dim=0).sum()), plan

    def _with_spans(self, plan: Plan) -> Plan:
        """Averages maps of shorter training spans, where that forecasts validation windows better."""
        year = cycle_steps(self._panel.calendar, "year")
        spans = [years * year for years in _SPAN_YEARS if years * year < self._windows[None].steps]
        if self._panel.calendar.integer or not len(self._split.validation_windows) or not spans:
            return plan
        for span in spans:
            self._add_span(span)
        # All spans or none: one comparison, for validation windows may be few.
        averaged = plan.with_linear(spans=(*spans, None))
        alphas = ridge.lead_alphas(plan.model, plan.horizon)
        _, validation = self._errors([(plan, alphas), (averaged, alphas)])  # [candidate, patch]
        before, after = validation.sum(dim=-1).tolist()
        return averaged if after < _WORTH * before else plan

    def _errors(self, candidates: Sequence[tuple[Plan, Tensor]]) -> Tensor:
        """[training or validation windows, candidate, horizon patch] absolute errors, summed.

        A candidate is a plan and the penalty of each lead [H].
        """
        maps = [self._maps(plan, alphas) for plan, alphas in candidates]
        windows, split = self._windows[None], self._split
        count = len(split.validation_windows) or _SCORED_WINDOWS
        training = windows.some(min(_SCORED_WINDOWS, count))
        validation = windows.read(split.validation, split.validation_windows)
        # Quarters that have maps solved without them, and windows outside the training span.
        scored = torch.tensor([*_SCORED_FOLDS, ridge.FOLDS])
        errors = torch.zeros(2, len(candidates), self._plan.horizon, dtype=torch.float64)
        for error, blocks in zip(errors, (training, validation), strict=True):
            for rows in blocks:
                unseen = torch.isin(windows.fold(rows), scored)  # [R]
                # A weight is of squared errors; these are absolute.
                weight = rows.weight[unseen, None].sqrt()
                features = windows.features(rows)
                for number, by_span in enumerate(maps):
                    spans = [self._windows[span] for span in by_span]
                    forecast = ridge.held_out(spans, rows, features, list(by_span.values()))
                    residual = (rows.target - forecast)[unseen].abs() * weight  # [R, H]
                    residual = torch.where(residual.isfinite(), residual, 0.0)
                    error[number] += residual.sum(dim=0)
        patches = errors.split(self._plan.model.decoder_patch, dim=-1)
        return torch.stack([patch.sum(dim=-1) for patch in patches], dim=-1)

    def _maps(self, plan: Plan, alphas: Tensor) -> dict[int | None, ridge.Maps]:
        """The maps of a plan by training span, then by the quarter that they were solved without."""
        return {
            span: {
                fold: self._narrowed(sums, alphas, plan.model.linear)
                for fold, sums in self._sums[span].items()
            }
            for span in plan.model.linear.spans or (None,)
        }

    def _narrowed(
        self, widest: Sequence[ridge.Equations], alphas: Tensor, settings: LinearPlan
    ) -> list[Tensor]:
        """The maps of some settings, from the sums of one that reads more; 0 for what it does not read."""
        maps = []
        for sums, lookback in zip(widest, self._linear.lookbacks, strict=True):
            # Normal equations of fewer features are the first rows and columns of those of all.
            narrow = sums.pooled() if settings.phases == 1 else sums
            if not settings.calendar:
                gram, cross = narrow.gram[:, :lookback, :lookback], narrow.cross[:, :lookback]
                narrow = narrow._replace(gram=gram, cross=cross)
            free = ridge.solution(narrow, alphas)
            solved = ridge.with_periodic(free, narrow, alphas, lookback, settings.period)
            features = sums.gram.shape[1]
            padded = solved.new_zeros(len(solved), features, solved.shape[2])  # [P, F, H]
            padded[:, : solved.shape[1]] = solved
            maps.append(padded)
        return maps

    def _add_span(self, span: int | None) -> None:
        """Sums the normal equations of the windows of a training span."""
        # Maps of many phases need all rows that they are solved over in the end.
        most = ridge.MOST_ROWS if self._phases else _CHOICE_ROWS
        windows = ridge.RidgeWindows(
            self._network, self._panel, self._plan, self._split.train, most, span
        )
        longest_weight = None
        if span is not None:
            longest_weight = [sums.longest_weight for sums in self._sums[None][ridge.FOLDS]]
        self._windows[span] = windows
        parts = ridge.summed(windows)
        self._sums[span] = ridge.without_quarters(parts, _SCORED_FOLDS, longest_weight)

    def _cycle_phases(self) -> int | None:
        """Steps of the shortest cycle, where each has windows enough for a map of its own."""
        calendar = self._panel.calendar
        if not calendar.cycles:
            return None
        steps = cycle_steps(calendar, calendar.cycles[0])
        size = max(self._plan.model.linear.lookbacks)
        rows = min(len(self._split.train), ridge.MOST_ROWS)
        enough = rows >= _ROWS_PER_FEATURE * steps * size and steps * size**2 <= _MOST_PRODUCTS
        return steps if 2 <= steps <= _MOST_PHASES and enough else None


def _neighbours(plan: Plan) -> list[float]:
    """The penalties chosen for horizon patches, and those next to them."""
    chosen = plan.model.linear.ridge_alpha
    if not isinstance(chosen, tuple):
        return []
    numbers = {n for n, alpha in enumerate(ALPHAS) if alpha in chosen}
    return [alpha for n, alpha in enumerate(ALPHAS) if numbers & {n - 1, n, n + 1}]
